"""What the kernel does for a sandbox, what `proctor doctor` says of it, and what honest programs keep."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from hostile import ordinary_user
from hostile.services import Started
from proctor_service.sandbox.linux import seccomp
from proctor_service.sandbox.linux.syscalls import numbers

# A machine whose kernel lacks one call: a filter that says so, and then the checks of the doctor.
OLDER_KERNEL = """
import struct
from proctor_service.sandbox.linux import kernel
from proctor_service.sandbox.local import abilities
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 442), (6, 0, 0, 0x50026), (6, 0, 0, 0x7fff0000)]
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
kernel.install_seccomp(kernel.load_seccomp(b"".join(struct.pack("HBBI", *each) for each in code)))
flags = kernel.NEWNS | kernel.NEWPID | kernel.NEWUSER
for check in abilities.kernel_checks(flags): print(check.name, check.ok, check.guards)
"""
HONEST = {
    "a pool of processes with much shared memory": """
import mmap, multiprocessing, os
shared = mmap.mmap(-1, 96 << 20)
def fill(part):
    for page in range(part * (12 << 20), (part + 1) * (12 << 20), 4096): shared[page] = 1
    return part
context = multiprocessing.get_context("fork")
with context.Pool(8) as pool: assert pool.map(fill, range(8)) == list(range(8))
assert sum(shared[page] for page in range(0, len(shared), 1 << 20)) == 96
""",
    "many connections with itself": """
import asyncio
async def echo(reader, writer):
    writer.write(await reader.readline()); await writer.drain(); writer.close()
async def ask(port, number):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"%d\\n" % number)
    assert int(await reader.readline()) == number
    writer.close()
async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for _ in range(4): await asyncio.gather(*(ask(port, number) for number in range(50)))
asyncio.run(main())
""",
    "sockets with options": """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with socket.create_connection(server.getsockname()) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        other, _ = server.accept()
        client.sendall(b"x" * 100_000)
        assert len(other.recv(100_000, socket.MSG_WAITALL)) == 100_000
        other.close()
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    for end in socket.socketpair(socket.AF_UNIX, kind): end.close()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP) as s: s.bind(("127.0.0.1", 0))
""",
    "children that nobody waits for": """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(40):
    if os.fork() == 0: sum(range(100_000)); os._exit(0)
    time.sleep(0.005)
""",
    "a program that keeps to itself": """
import ctypes, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
b = bytearray(b"x") * (100 << 20)
time.sleep(0.3)
""",
    "options of calls": """
import array, ctypes, errno, fcntl, mmap, os, shutil, signal, socket, struct, subprocess
libc = ctypes.CDLL(None, use_errno=True)
name = ctypes.create_string_buffer(16)
named = (15, b"own"), (16, name)
others = (1, 15), (3, 0), (4, 1), (23, 1), (29, 50000), (30, 0), (36, 1), (38, 1), (39, 0), (41, 0)
for option, value in (*named, *others):
    assert libc.prctl(option, value, 0, 0, 0) >= 0, option
assert name.value == b"own"
for advice in ("WILLNEED", "DONTNEED", "FREE", "DONTFORK", "HUGEPAGE", "DONTDUMP"):
    place = mmap.mmap(-1, 1 << 16, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    place.madvise(getattr(mmap, "MADV_" + advice))
assert not os.isatty(1)
subprocess.run(["true"], check=True)
with socket.socket() as s:
    assert fcntl.ioctl(s, 0x8912, struct.pack("iP", 512, ctypes.addressof(ctypes.create_string_buffer(512))))
    assert fcntl.ioctl(s, 0x8921, struct.pack("16s16x8x", b"lo"))[16:20] == (65536).to_bytes(4, "little")
    known = {0: (1, 2), 1: (2, 9, 15, 20), 6: (1, 4, 5, 6, 12, 18, 23)}
    for level, option in ((level, option) for level in known for option in known[level]):
        value = struct.pack("ll", 1, 0) if (level, option) == (1, 20) else 1
        s.setsockopt(level, option, value)
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ours.send(b"abc")
waiting = array.array("i", [0])
fcntl.ioctl(theirs, 0x541B, waiting, True)
assert waiting[0] == 3
open("a", "w").write("text"), shutil.copy2("a", "b")
try: fcntl.ioctl(os.open("b", os.O_RDWR), 0x40049409, os.open("a", os.O_RDONLY))
except OSError as error: assert error.errno == errno.EOPNOTSUPP, error
""",
    "waiting, timers and watches": """
import ctypes, os, select, signal, threading
for _ in range(30): threading.Timer(0.01, lambda: None).start()
polls = [select.epoll() for _ in range(20)]
for poll in polls: poll.register(os.eventfd(0))
assert ctypes.CDLL(None).inotify_init1(0) >= 0
signal.setitimer(signal.ITIMER_REAL, 0.01); signal.signal(signal.SIGALRM, lambda *a: None)
""",
}


def flags_of(groups: Any) -> list[str]:
    return [name for group in groups for name in group.split()]


@pytest.mark.parametrize("what", HONEST)
def test_honest_programs_keep_what_they_need(service: Started, what: str) -> None:
    body = {
        "submissions": [{"completion": HONEST[what]}],
        "grader": {"kind": "exec"},
        "limits": {"memory_mb": 256, "cpu_seconds": 10, "wall_seconds": 20},
        "extract": "none",
    }
    with service.client() as client:
        [result] = client.post("/reward", json=body).json()["results"]
    assert result["verdict"] == "passed", result


def test_every_call_that_is_named_has_a_number_and_one_fate() -> None:
    allowed = flags_of(seccomp._ALLOWED)
    refused = seccomp._REFUSED.split()
    assert len(set(allowed)) == len(allowed)
    assert len(set(refused)) == len(refused)
    assert not set(allowed) & set(refused)
    assert set(allowed) | set(refused) == set(numbers("x86_64"))
    assert set(numbers("aarch64")) <= set(numbers("x86_64"))


def test_the_doctor_says_what_a_kernel_lacks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OLDER_KERNEL],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.splitlines() == [
        "read_only_mounts False True",
        "narrow_proc True True",
        "read_only_tests True True",
    ]


@pytest.mark.parametrize("ordinary", [False, True], ids=["as root", "as an ordinary user"])
def test_the_doctor_names_every_wall(ordinary: bool) -> None:
    command = [sys.executable, "-m", "proctor_service", "doctor"]
    if ordinary and os.geteuid() == 0:
        command = [sys.executable, ordinary_user.__file__, "41000", *command]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    found = dict(re.findall(r"^(\w+) +(ok|missing)", done.stdout, re.MULTILINE))
    walls = {
        "namespaces",
        "seccomp",
        "read_only_mounts",
        "narrow_proc",
        "read_only_tests",
        "service_hidden",
    }
    assert walls | {"memory_cgroup", "pids_cgroup", "cpu_cgroup"} <= set(found), done.stdout
    assert {found[wall] for wall in walls} == {"ok"}, done.stdout
    assert ("to mend:" in done.stdout) == ("missing" in found.values())
