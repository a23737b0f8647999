"""The first process of a container: what ends, whom it tells, and what it takes away."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

AS_PID_1 = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


def in_a_container(act: str) -> subprocess.CompletedProcess[str]:
    """Runs Python as pid 1 of a pid namespace; `act` is done by what stands behind it."""
    script = f"""
import os, signal, sys
from pathlib import Path
from proctor_service.cli.first_process import stand_before
stand_before()
assert os.getpid() != 1 == os.getppid()
{textwrap.dedent(act)}
"""
    return subprocess.run(
        [*AS_PID_1, sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_ends_as_its_child_does() -> None:
    assert in_a_container("sys.exit(3)").returncode == 3
    assert in_a_container("os.kill(os.getpid(), signal.SIGKILL)").returncode == 137
    assert in_a_container("print('done')").stdout == "done\n"


def test_it_passes_signals_on() -> None:
    done = in_a_container("""
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
        os.kill(1, signal.SIGTERM)
        while True:
            signal.pause()
    """)
    assert done.returncode == 7, done.stderr


def test_a_signal_ends_what_does_not_handle_it() -> None:
    done = in_a_container("""
        os.kill(1, signal.SIGTERM)
        while True:
            signal.pause()
    """)
    assert done.returncode == 128 + 15, done.stderr


def test_it_reaps_orphans() -> None:
    done = in_a_container("""
        reader, writer = os.pipe()
        if os.fork() == 0:
            orphan = os.fork()
            if orphan:
                os.write(writer, str(orphan).encode())
            os._exit(0)
        orphan = int(os.read(reader, 99))
        os.wait()
        while Path(f"/proc/{orphan}").exists():
            os.sched_yield()
        print("gone")
    """)
    assert done.stdout == "gone\n", done.stderr


def test_any_other_process_goes_on_by_itself() -> None:
    from proctor_service.cli.first_process import stand_before

    before = os.getpid()
    stand_before()
    assert os.getpid() == before
