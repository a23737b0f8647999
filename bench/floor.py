"""The floor: the kernel's cost of an isolated evaluation here, alone.

    python -I -S bench/floor.py [SECONDS] [CORES]

On every core a warm, bare interpreter forks itself into five new namespaces, mounts a tmpfs and a
/proc of its own, runs a program with three assertions, and is waited for; in a loop. Without HTTP,
queue and judge. Needs root, or `unshare -Ur` in front. Standard library only: each fork would copy
its imports.
"""

import ctypes
import gc
import os
import resource
import sys
import time

NAMESPACES = 0x20000 | 0x4000000 | 0x8000000 | 0x20000000 | 0x40000000  # mount uts ipc pid net
CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
SIGCHLD = 17
NOSUID_NODEV = 2 | 4
PRIVATE = 1 << 18 | 1 << 14
PROGRAM = """\
def is_prime(n):
    if n < 2: return False
    i = 2
    while i * i <= n:
        if n % i == 0: return False
        i += 1
    return True
assert is_prime(7) == True
assert is_prime(12) == False
assert is_prime(101) == True
"""

_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.pythonapi


def fork_apart() -> int:
    """Like `os.fork`, into namespaces of its own. Raises OSError."""
    _python.PyOS_BeforeFork()
    nothing = [ctypes.c_void_p(None)] * 4
    pid: int = _libc.syscall(CLONE, ctypes.c_ulong(NAMESPACES | SIGCHLD), *nothing)
    if pid == 0:
        _python.PyOS_AfterFork_Child()
    else:
        _python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone; run it as root, or under `unshare -Ur`")
    return pid


def mount(
    what: bytes | None, where: bytes, kind: bytes | None, flags: int, data: bytes | None
) -> None:
    """mount(2). Raises OSError."""
    if _libc.mount(what, where, kind, ctypes.c_ulong(flags), data):
        raise OSError(ctypes.get_errno(), f"mount {where.decode()}")


def evaluate() -> None:
    """One evaluation, from the fork to the answer and the end. Raises RuntimeError on failure."""
    reading, writing = os.pipe()
    pid = fork_apart()
    if pid == 0:
        try:
            mount(None, b"/", None, PRIVATE, None)
            mount(b"tmpfs", b"/tmp", b"tmpfs", NOSUID_NODEV, b"size=64m")
            mount(b"proc", b"/proc", b"proc", NOSUID_NODEV, None)
            exec(compile(PROGRAM, "submission", "exec"), {"__name__": "__main__"})
            os.write(writing, b"right")
        finally:
            os._exit(0)
    os.close(writing)
    answer = os.read(reading, 8)
    os.close(reading)
    os.waitpid(pid, 0)
    if answer != b"right":
        raise RuntimeError("an evaluation failed")


def work(seconds: float, answer: int) -> None:
    """Evaluate for so long, and write the count and the cost in CPU seconds."""
    gc.freeze()
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        evaluate()
        count += 1
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_seconds = sum(each.ru_utime + each.ru_stime for each in used)
    os.write(answer, f"{count} {cpu_seconds}\n".encode())


def main() -> None:
    """Prints `floor: N evaluations/s on C cores, X ms CPU each`."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    cores = int(sys.argv[2]) if len(sys.argv) > 2 else len(os.sched_getaffinity(0))
    reading, writing = os.pipe()
    for _ in range(cores):
        if os.fork() == 0:
            work(seconds, writing)
            os._exit(0)
    os.close(writing)
    failed = [os.wait()[1] for _ in range(cores)]
    lines = os.read(reading, 1 << 16).decode().splitlines()
    if any(failed) or len(lines) != cores:
        sys.exit("floor: a worker failed")
    counts, used = zip(*((int(a), float(b)) for a, b in map(str.split, lines)), strict=True)
    rate, each_ms = sum(counts) / seconds, 1000 * sum(used) / sum(counts)
    print(f"floor: {rate:.0f} evaluations/s on {cores} cores, {each_ms:.2f} ms CPU each")


if __name__ == "__main__":
    main()
