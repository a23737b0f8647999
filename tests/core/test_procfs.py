"""What /proc tells of a process whose first thread has exited and whose others live."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest
from waits import WAIT_SECONDS

from proctor_service.sandbox.linux import procfs
from proctor_service.sandbox.local.memory import MemoryLimit, exceeds

HOLDS = """
import ctypes, os, threading
def hold():
    held = b"x" * (100 << 20)
    with open(f"/proc/{os.getpid()}/stat") as file:
        while file.read().rpartition(")")[2].split()[0] != "Z":
            file.seek(0)
    print("held", flush=True)
    threading.Event().wait()
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""


@pytest.fixture
def headless() -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds 100 MB, and whose first thread has exited."""
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def test_it_is_not_exiting_until_it_is_killed(headless: subprocess.Popen[bytes]) -> None:
    pidfd = os.pidfd_open(headless.pid)
    try:
        assert not procfs.is_exiting(pidfd)
        headless.kill()
        headless.wait(WAIT_SECONDS)
        assert procfs.is_exiting(pidfd)
    finally:
        os.close(pidfd)


def test_its_memory_counts(headless: subprocess.Popen[bytes]) -> None:
    assert exceeds([headless.pid], MemoryLimit(90, own_network=False))
    assert not exceeds([headless.pid], MemoryLimit(200, own_network=False))
    assert procfs.exceeds_memory([headless.pid], 90)
    assert not procfs.exceeds_memory([headless.pid], 200)


def test_without_descriptors_nothing_is_said_about_a_process() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    pidfd = os.pidfd_open(os.getpid())
    resource.setrlimit(resource.RLIMIT_NOFILE, (pidfd, hard))
    try:
        for ask in (procfs.threads, procfs.walk, procfs.schedule, procfs.memory_directory):
            with pytest.raises(procfs.Unread):
                ask(os.getpid())
        assert not procfs.is_exiting(pidfd)
        with pytest.raises(procfs.Unread):
            procfs.out_of_memory_kills("/proc/vmstat")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(pidfd)
