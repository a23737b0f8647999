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


def test_it_ends_as_its_child_does(in_a_container: Run) -> None:
    assert in_a_container("sys.exit(3)").returncode == 3
    assert in_a_container("os.kill(os.getpid(), signal.SIGKILL)").returncode == 137
    assert in_a_container("print('done')").stdout == "done\n"


def test_it_passes_signals_on(in_a_container: Run) -> None:
    done = in_a_container("""
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
        os.kill(1, signal.SIGTERM)
        while True:
            signal.pause()
    """)
    assert done.returncode == 7, done.stderr


def test_a_signal_ends_what_does_not_handle_it(in_a_container: Run) -> None:
    done = in_a_container("""
        os.kill(1, signal.SIGTERM)
        while True:
            signal.pause()
    """)
    assert done.returncode == 128 + 15, done.stderr


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
