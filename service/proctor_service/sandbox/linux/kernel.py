"""Linux system calls without a Python wrapper, called through ctypes.

Runs in the fork server and in a sandbox before the submission starts: standard library only. The
constants are the Linux ABI's (see `man 2 clone`, `mount`, `mount_setattr`, `prctl`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Any

from .syscalls import MACHINES, numbers

NEWNS, NEWUTS, NEWIPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
NEWUSER, NEWPID, NEWNET = 0x1000_0000, 0x2000_0000, 0x4000_0000
NEWCGROUP = 0x0200_0000
SIGCHLD = 17

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
_SOL_SOCKET, _SCM_RIGHTS = 1, 1
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SECCOMP_MODE_FILTER = 2
_M_ARENA_MAX, _PTHREAD_ATTR_BYTES = -8, 64
_LARGEST_GAP, _LEAST_GAP, _MOST_GAPS = 1 << 16, 24, 10_000
LINUX_CAPABILITY_VERSION_3 = 0x2008_0522
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # on every architecture
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH, _MOUNT_ATTR_IDMAP = 1, 4, 0x0010_0000

# PyDLL keeps the GIL: there is a single thread, and after a fork each touched page is copied.
libc = ctypes.PyDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def numbers_of(*names: str) -> list[int]:
    """Return the numbers of system calls on this machine, for `perform`."""
    machine = os.uname().machine
    table = numbers(machine if machine in MACHINES else "x86_64")
    return [table[name] for name in names]


_CLONE, _PIVOT_ROOT, _CAPSET, _PRCTL = numbers_of("clone", "pivot_root", "capset", "prctl")
VM, FILES = 0x0000_0100, 0x0000_0400
syscall = libc.syscall

Call = tuple[Any, ...]
"""A system call: its number, then its arguments as ctypes takes them."""


def check(result: int, what: str) -> int:
    """Return the result of a libc call, or raise OSError with its errno."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def perform(calls: Iterable[Call]) -> None:
    """Make prepared system calls, in this order. Raises OSError at the first failure.

    For a process just after its fork: each touch of a Python object costs the copy of a page, and
    so does each function and each module on the way to a call.
    """
    for call in calls:
        if syscall(*call) < 0:
            check(-1, f"system call {call[0]}")


def clone(flags: int) -> int:
    """Fork straight into new namespaces; returns 0 in the child, its pid in the parent.

    Only for a single-threaded process. Python's own fork hooks reset locks held by other threads, and
    copy a hundred pages; with a single thread these hooks are unnecessary. Fork hooks registered by
    modules are skipped (`script.prepare` seeds `random`).
    """
    pid: int = syscall(_CLONE, flags | SIGCHLD, None, None, None, None)
    return pid if pid >= 0 else check(pid, "clone")


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    check(libc.unshare(flags), "unshare")


def mount(
    source: str | None, target: str, fstype: str | None, flags: int, data: str | None = None
) -> None:
    """Call mount(2)."""
    encoded = [None if text is None else text.encode() for text in (source, target, fstype, data)]
    check(
        libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]),
        f"mount {target}",
    )


def umount(target: str) -> None:
    """Detach a mount with umount2(2), even while in use."""
    check(libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns_fd")]


def bind_read_only(source: str, target: str) -> None:
    """Bind `source` and all mounts below at `target`, read-only and without setuid."""
    mount(source, target, None, MS_BIND | MS_REC)
    wanted = _MountAttr(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    result = syscall(
        _MOUNT_SETATTR,
        AT_FDCWD,
        target.encode(),
        AT_RECURSIVE,
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )
    if result < 0:  # Before Linux 5.12: only the topmost mount can be changed in one call.
        flags = os.statvfs(target).f_flag & (MS_NODEV | MS_NOEXEC)
        mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | flags)


def mount_with_ids(path: str, namespace: int) -> None:
    """Mount a read-only mount once more on itself, with the ids of a user namespace; close this.

    Raises OSError, before Linux 5.12 and for file systems without support.
    """
    tree = -1
    try:
        tree = check(
            syscall(_OPEN_TREE, AT_FDCWD, path.encode(), _OPEN_TREE_CLONE | os.O_CLOEXEC),
            "open_tree",
        )
        wanted = _MountAttr(
            MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | _MOUNT_ATTR_IDMAP,
            0,
            0,
            namespace,
        )
        size = ctypes.c_size_t(ctypes.sizeof(wanted))
        check(
            syscall(_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(wanted), size),
            "mount_setattr",
        )
        check(
            syscall(_MOVE_MOUNT, tree, b"", AT_FDCWD, path.encode(), _MOVE_MOUNT_F_EMPTY_PATH),
            "move_mount",
        )
    finally:
        os.close(namespace)
        if tree >= 0:
            os.close(tree)


def pivot_root(new_root: str) -> None:
    """Make `new_root` the root and detach the old root."""
    os.chdir(new_root)
    check(syscall(_PIVOT_ROOT, b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount the old root")
    os.chdir("/")


def prctl(option: int, value: int = 0, pointer: object = None) -> None:
    """Call prctl(2) with at most two arguments."""
    check(libc.prctl(option, ctypes.c_ulong(value), pointer or 0, 0, 0), f"prctl {option}")


def drop_bounding_set() -> None:
    """Prevent an exec below this process from gaining a capability, for any file."""
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break  # past the kernel's last capability


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def drop_capabilities() -> None:
    """Drop every capability of the calling process."""
    perform([dropping_capabilities()])


def dropping_capabilities() -> Call:
    """Return the call of `drop_capabilities`."""
    return keeping_capabilities(0)


def keeping_capabilities(mask: int) -> Call:
    """Return the call which drops all capabilities but the bits set in `mask`.

    All bits are below 32. The kept capabilities are effective and permitted, without inheritance.
    """
    header = _CapHeader(LINUX_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(mask, mask)
    return _CAPSET, ctypes.byref(header), ctypes.byref(sets)


class FilterProgram(ctypes.Structure):
    """A BPF program for `install_seccomp`, with the memory of its instructions."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]
    instructions_memory: object


def load_seccomp(program: bytes) -> FilterProgram:
    """Prepare a BPF program of 8 bytes per instruction."""
    buffer = ctypes.create_string_buffer(program, len(program))
    loaded = FilterProgram(len(program) // 8, ctypes.addressof(buffer))
    loaded.instructions_memory = buffer
    return loaded


def install_seccomp(program: FilterProgram) -> None:
    """Restrict the calling process to the calls allowed by the program."""
    perform([installing_seccomp(program)])


def installing_seccomp(program: FilterProgram) -> Call:
    """Return the call of `install_seccomp`."""
    return setting(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program))


def setting(option: int, value: int, pointer: object = None) -> Call:
    """Return a call of prctl(2) with at most two arguments."""
    return _PRCTL, option, value, pointer, 0, 0


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("length", ctypes.c_size_t)]


class _Rights(ctypes.Structure):
    """`struct cmsghdr` of one descriptor."""

    _fields_ = [
        ("length", ctypes.c_size_t), ("level", ctypes.c_int), ("type", ctypes.c_int),
        ("descriptor", ctypes.c_int), ("padding", ctypes.c_int),
    ]  # fmt: skip


class Message(ctypes.Structure):
    """`struct msghdr` of a text with a descriptor, for sendmsg(2)."""

    _fields_ = [
        ("name", ctypes.c_void_p), ("name_bytes", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)), ("vector_count", ctypes.c_size_t),
        ("control", ctypes.POINTER(_Rights)), ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]  # fmt: skip

    def __init__(self, text: bytes, descriptor: int) -> None:
        rights = _Rights(_Rights.padding.offset, _SOL_SOCKET, _SCM_RIGHTS, descriptor, 0)
        vector = ctypes.pointer(_Vector(text, len(text)))
        size = ctypes.sizeof(_Rights)
        super().__init__(None, 0, vector, 1, ctypes.pointer(rights), size, 0)


def give_memory_back() -> None:
    """Return freed memory to the kernel: every fork pays for each remaining page."""
    trim = getattr(libc, "malloc_trim", None)  # glibc has it, musl has not
    if trim is not None:
        trim(ctypes.c_size_t(0))


def fill_heap() -> None:
    """Allocate all gaps in the heap of malloc for good, the largest first."""
    if not hasattr(libc, "malloc_trim"):
        return  # not glibc, so its gaps are elsewhere
    libc.malloc.restype = ctypes.c_void_p
    size, highest = _LARGEST_GAP, 0
    for _ in range(_MOST_GAPS):
        place = libc.malloc(ctypes.c_size_t(size)) or 0
        if place > highest:  # at the heap's end: no gap of this size is left
            highest = place
            size = size - 16 if size <= 1024 else size * 15 // 16
        if size < _LEAST_GAP:
            return


def make_threads_lean(stack_mb: int) -> None:
    """Give new threads a smaller stack, and reduce the number of malloc arenas to 2.

    For limits on address space: by default, a thread uses 8 MB for its stack and 64 MB for malloc.
    """
    attributes = ctypes.create_string_buffer(_PTHREAD_ATTR_BYTES)
    if hasattr(libc, "mallopt") and hasattr(libc, "pthread_setattr_default_np"):  # glibc's
        libc.mallopt(_M_ARENA_MAX, 2)
        libc.pthread_attr_init(attributes)
        libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(stack_mb << 20))
        libc.pthread_setattr_default_np(attributes)


def bring_loopback_up() -> None:
    """Enable `lo` in the current network namespace, for connections inside a sandbox."""
    import fcntl
    import socket
    import struct

    siocgifflags, siocsifflags, iff_up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(probe, siocgifflags, request))[1]
        fcntl.ioctl(probe, siocsifflags, struct.pack("16sH14x", b"lo", flags | iff_up))
