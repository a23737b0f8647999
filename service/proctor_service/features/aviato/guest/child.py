"""Child process of a remote sandbox: sets up its own isolation, then runs the program.

The supervisor forks the child before reading a job or its secret word, so the child's memory is
free of secrets. Runs in the remote sandbox: standard library only. The remote sandbox, which holds
only this program, replaces the namespaces of a local sandbox. The child adds a separate user, no
capabilities, a system call filter, and rlimits.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from typing import Any, NoReturn

from ....guest import main
from ....guest.session import file_operations, snippet
from ....sandbox.linux import kernel
from ....sandbox.linux.time_limits import PREPARATION_SECONDS

CHANNEL = 300  # above a program's own descriptors, and above 3 to 255, closed by some
LIMITS_BYTES = 64
LOCKED = b"+"  # first byte from the child, sent before hostile code can run
UNFILTERED = b"~"  # the same, if the kernel accepts no system call filter
_DESCRIPTORS = 1024
_CHUNK = 1 << 16


def become(
    ends: tuple[int, int, int], uid: int | None, box: str, fresh: bool, walls: Any
) -> NoReturn:
    """Set up the isolation in the child; never returns. `ends`: channel, stdout and stderr."""
    try:
        os.dup2(ends[0], CHANNEL, inheritable=False)
        filtered = _lock_down(ends, uid, box, walls["seccomp"])
    except BaseException as error:
        os.write(CHANNEL, repr(error).encode()[:500])
        os._exit(70)
    os.write(CHANNEL, LOCKED if filtered else UNFILTERED)
    if _apply_limits():
        if fresh:
            main.main(CHANNEL)
        else:
            _obey()
    os._exit(71)


def _lock_down(ends: tuple[int, int, int], uid: int | None, box: str, filters: list[str]) -> bool:
    """Return True with a system call filter. Raises OSError if another protection fails."""
    _, out, err = ends
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # otherwise root owns /proc/self
    null = os.open("/dev/null", os.O_RDWR)
    for source, target in ((null, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
    os.closerange(3, CHANNEL)
    os.setsid()
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # killed first when the remote sandbox's memory is used up
    for name, value in (
        # With 0, a handler of the machine in core_pattern would still run: see core(5).
        (resource.RLIMIT_CORE, 1 if resource.getrlimit(resource.RLIMIT_CORE)[1] else 0),
        (resource.RLIMIT_NOFILE, _DESCRIPTORS),
        (resource.RLIMIT_MEMLOCK, 1 << 16),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        _limit(name, value)
    if uid is not None:
        kernel.drop_bounding_set()
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.umask(0o022)
    os.environ.update(HOME=f"{box}/home", TMPDIR=_tmp(box))
    os.chdir(f"{box}/work")
    return _filter_calls(filters)


def _filter_calls(filters: list[str]) -> bool:
    try:
        for code in filters:
            kernel.install_seccomp(kernel.load_seccomp(bytes.fromhex(code)))
    except OSError:
        return False
    return bool(filters)


def _tmp(box: str) -> str:
    return "/tmp" if os.path.realpath("/tmp") == f"{box}/tmp" else f"{box}/tmp"


def limits_line(limits: dict[str, Any], fresh: bool) -> bytes:
    """Return the rlimits for the child to set, in addition to the limits of the supervisor."""
    # Before a program, our work has its own limit.
    before = int(max(limits["cpu_seconds"], PREPARATION_SECONDS)) if fresh else 0
    words = (
        int(limits["timeout_seconds"] or limits["all_cpu_seconds"]) + 2 + before,
        max(8, min(64, limits["memory_mb"] // 4)),
        limits["memory_mb"] + 64,  # for a bare interpreter
        limits["processes"],
        limits["disk_mb"] if fresh else 1 << 20,  # the size of a sparse file exceeds its disk use
    )
    return " ".join(map(str, words)).encode().ljust(LIMITS_BYTES)


def _apply_limits() -> bool:
    """Read the job's limits, a line of fixed length, and apply them; False without a job."""
    line = _read(LIMITS_BYTES)
    if len(line) < LIMITS_BYTES:
        return False
    cpu_seconds, stack_mb, data_mb, processes, file_mb = (int(word) for word in line.split())
    _, most = resource.getrlimit(resource.RLIMIT_STACK)  # unchanged: contest programs raise it
    resource.setrlimit(resource.RLIMIT_STACK, (stack_mb << 20, most))
    # Limits writable memory, but not address space merely reserved, as by Java and Go.
    for name, value in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_DATA, data_mb << 20),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_FSIZE, file_mb << 20),
    ):
        _limit(name, value)
    return True


def _limit(name: int, value: int) -> None:
    resource.setrlimit(name, (value, value))


def _read(size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = os.read(CHANNEL, min(_CHUNK, size - len(data)))
        if not piece:
            break
        data += piece
    return bytes(data)


def _obey() -> None:
    """Run an order of a stateful sandbox: eight digits of length, the order, then its stdin."""
    order = json.loads(_read(int(_read(8))))
    _feed_stdin(order["stdin_bytes"])
    for name, value in order["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if order["file_mb"] is not None:
        _limit(resource.RLIMIT_FSIZE, order["file_mb"] << 20)
    kind, what = order["kind"], order["what"]
    if kind in file_operations.KINDS:
        file_operations.KINDS[kind](*what)
        os._exit(0)
    if kind == "code":
        snippet.run(what[0], CHANNEL)
    snippet.become_program(what)


def _feed_stdin(size: int) -> None:
    """Use the next bytes on the channel as stdin, through a file, since a pipe could fill up."""
    try:
        descriptor = os.memfd_create("stdin", 0)
    except OSError:
        descriptor = os.open(os.environ["TMPDIR"], os.O_TMPFILE | os.O_RDWR, 0o600)
    while size:
        data = memoryview(_read(min(size, _CHUNK)))
        if not data:
            os._exit(71)
        size -= len(data)
        while data:
            data = data[os.write(descriptor, data) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    os.close(descriptor)
