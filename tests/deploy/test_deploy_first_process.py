"""The first process of the image: what ends, whom it tells, and what it takes away."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from deploy.images import Image

AS_PID_1 = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")

Run = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def in_a_container(image: Image) -> Run:
    """Runs Python in a pid namespace; the image's first process is pid 1 there."""
    first, *arguments, _ = image.config["Entrypoint"]

    def run(act: str) -> subprocess.CompletedProcess[str]:
        script = f"""
import os, signal, sys
from pathlib import Path
assert os.getpid() != 1 == os.getppid()
{textwrap.dedent(act)}
"""
        return subprocess.run(
            [*AS_PID_1, str(image.root) + first, *arguments, sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


FOREVER = "while True: signal.pause()"
ENDS = {
    "sys.exit(3)": 3,
    "os.kill(os.getpid(), signal.SIGKILL)": 137,
    "print('done')": 0,
    f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); os.kill(1, signal.SIGTERM)\n{FOREVER}": 7,
    f"os.kill(1, signal.SIGTERM)\n{FOREVER}": 128 + 15,
}


@pytest.mark.parametrize("program", ENDS)
def test_it_ends_as_its_child_does_and_passes_signals_on(in_a_container: Run, program: str) -> None:
    done = in_a_container(program)
    assert done.returncode == ENDS[program], done.stderr
    assert done.stdout == ("done\n" if "done" in program else "")


def test_it_reaps_orphans(in_a_container: Run) -> None:
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
