"""Allow list of system calls for sandboxes, as a BPF program.

An unlisted call fails with ENOSYS, as on a kernel without the call, so libraries use their
fallback. A call refused by name fails with EPERM. The filter is the last of several protections
(see docs/security.md): the namespaces, the missing capabilities and the read-only root hold without
the filter. The filter keeps hostile code away from parts of the kernel unused by honest programs.

Format: `struct sock_filter` (code, jt, jf, k) over `struct seccomp_data` (nr, arch, ip, args[6]);
see the kernel's Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import errno
import struct

from proctor_service.sandbox.linux.syscalls import numbers as numbers_of

# Each comment: the use in honest programs, and the bound on hostile programs.
_ALLOWED = (
    # Files. A sandbox's own files are in a tmpfs of limited size; all others are read-only and have
    # another owner. mknod makes pipes; devices require a capability.
    """
    read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 open openat
    openat2 creat close close_range stat fstat lstat newfstatat statx statfs fstatfs access
    faccessat faccessat2 lseek fsync fdatasync sync_file_range truncate ftruncate fallocate
    fadvise64 readahead flock fcntl dup dup2 dup3 pipe pipe2 getdents getdents64 getcwd
    chdir fchdir mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat
    symlink symlinkat readlink readlinkat chmod fchmod fchmodat fchmodat2 chown fchown
    lchown fchownat umask utime utimes utimensat futimesat mknod mknodat sendfile
    copy_file_range splice tee getxattr lgetxattr fgetxattr listxattr llistxattr
    flistxattr setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr
    """,
    # Notification of file changes: tail -f, node, watchers. Limited per user.
    """
    inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
    """,
    # Memory, for every program. Bounded by the cgroup; without a cgroup, by an rlimit and the
    # monitor. Locked memory is bounded by an rlimit.
    """
    brk mmap munmap mremap mprotect madvise msync mincore mlock mlock2 munlock mlockall
    munlockall membarrier get_mempolicy pkey_alloc pkey_free pkey_mprotect memfd_create
    """,
    # Processes and threads: subprocess, multiprocessing, shells, compilers. Bounded by the pids
    # cgroup or an rlimit; signals stay in the PID namespace. Flags of clone are checked below.
    """
    fork vfork clone execve execveat exit exit_group wait4 waitid getpid getppid gettid
    getpgid setpgid getpgrp getsid setsid set_tid_address set_robust_list get_robust_list
    rseq futex futex_waitv arch_prctl prctl kill tkill tgkill pidfd_open pidfd_send_signal
    """,
    # Scheduling: reading is harmless; a process may only lower its own priority.
    """
    sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_getattr
    sched_setscheduler
    sched_get_priority_max sched_get_priority_min sched_rr_get_interval getpriority
    setpriority ioprio_get getcpu
    """,
    # Signals, reading of clocks, timers. Queued signals and timers are bounded by an rlimit.
    """
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait
    rt_sigqueueinfo rt_tgsigqueueinfo sigaltstack pause alarm signalfd signalfd4
    restart_syscall nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time
    times getitimer setitimer timer_create timer_settime timer_gettime timer_getoverrun
    timer_delete timerfd_create timerfd_settime timerfd_gettime
    """,
    # Identity, read by start-up code. Without capabilities the setters can only reduce rights.
    """
    getuid geteuid getgid getegid getgroups getresuid getresgid setuid setgid setreuid
    setregid setresuid setresgid setfsuid setfsgid capget uname sysinfo getrusage getrlimit
    setrlimit prlimit64 getrandom
    """,
    # Waiting for descriptors, for every event loop. Bounded by the number of descriptors.
    """
    poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
    epoll_pwait2 eventfd eventfd2 ioctl
    """,
    # Sockets, for communication inside a sandbox. The network namespace has only a loopback
    # interface; families and protocols are checked below.
    """
    socket socketpair bind listen accept accept4 connect getsockname getpeername setsockopt
    getsockopt shutdown sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg
    """,
)

# Known calls without use in a computing program. Most would fail anyway for a missing capability or
# in a namespace; refusal by name keeps hostile code away from the kernel's checks.
_REFUSED = (
    # access to other processes
    "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd "
    # the mount table, namespaces, files by handle, the file systems and disks of the host
    "mount umount2 pivot_root chroot setns unshare open_by_handle_at name_to_handle_at quotactl "
    "sync syncfs swapon swapoff acct "
    # large parts of the kernel which accept programs, rings or faults from a process
    "bpf perf_event_open userfaultfd io_setup vmsplice "
    # the kernel's keys, modules and messages, and the machine itself
    "keyctl add_key request_key init_module finit_module delete_module kexec_load reboot syslog "
    # machine-wide clocks and names
    "settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname "
    # choice of core, priority and memory node, reserved for the service
    "sched_setaffinity sched_setparam sched_setattr ioprio_set mbind "
    "set_mempolicy move_pages migrate_pages "
    # more privilege; an own filter, which could fake the success of the service's calls; emulation
    # of another kernel
    "setgroups capset seccomp personality"
)

# Calls needed by a fork server to make a sandbox, besides clone with any flags and PR_SET_SECCOMP;
# unshare for a new PID or network namespace only, with a socket that lists its sockets (AF_NETLINK,
# NETLINK_SOCK_DIAG).
_SETTING_UP = ("mount", "umount2", "setgroups", "capset", "unshare", "setns")
_SETTING_UP_IMAGE = (*_SETTING_UP, "pivot_root")
# Calls for services of an image, to become another user of their user namespace.
_IN_IMAGE = frozenset({"setgroups"})

_ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32_BIT = 0x4000_0000
_NEW_NAMESPACES = 0x7E02_0000  # every CLONE_NEW… flag of clone(2)
_NEW_PID, _NEW_NETWORK = 0x2000_0000, 0x4000_0000
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_NETLINK, _SOCK_DIAG = 16, 4
_PROTOCOLS = (0, 1, 6, 17, 58)  # the family's default, ICMP, TCP, UDP, ICMPv6
_TYPES, _TYPE_BITS = (1, 2, 3, 5), 0xF  # SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423  # typing into a terminal; its modules
# Requests of sockets about themselves and interfaces, FICLONE and FICLONERANGE; and all of terminals
# and waiting bytes, by their second byte. Others belong to devices, file systems of the host, and
# parts of the kernel that load a module: SIOCGIFBR = 0x8940, SIOCGIFVLAN = 0x8982.
_IOCTL = (*range(0x8901, 0x8940), 0x4004_9409, 0x4020_940D)
_IOCTL_BYTE, _IOCTL_TERMINAL = 0xFF00, 0x5400
# Socket options by level whose memory in the kernel is charged to nobody, or which outlast their
# socket. SOL_SOCKET: SO_ATTACH_FILTER, whose machine code all programs of the machine share. TCP: keys
# (TCP_MD5SIG). IPv6: labels of flows (IPV6_FLOWLABEL_MGR).
_OPTIONS_REFUSED: dict[int, tuple[int, ...]] = {1: (26,), 6: (14,), 41: (32,)}
# Later options have programs in the kernel, TLS in the kernel, or memory outside of the limits:
# SO_ATTACH_BPF = 50, SO_RESERVE_MEM = 73, TCP_ULP = 31.
_OPTIONS_LATER = {1: 50, 6: 31}
# Joining a group fails as on a machine without a device for it (MCAST_JOIN…, and the older names of
# IPv4 and IPv6). Leaving thousands of groups would lock the configuration of all networks for minutes.
_JOINS: dict[int, tuple[int, ...]] = {0: (35, 39, 42, 46), 41: (20, 27, 42, 46)}
# Setting this limit succeeds without effect. The kernel's kill at a CPU time limit looks like a
# kill from outside, so a program could escape a bad reward. The service limits CPU time.
_RLIMIT_CPU = 0
_SCHED_OTHER = 0
_SOL_SOCKET, _BUFFER_OPTIONS = 1, (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF, and both with FORCE
# prctl(2): signal of the parent's death, dumpable, kept capabilities, name, PR_GET_SECCOMP, bounding
# set, PR_GET_TSC, PR_GET_SECUREBITS, timer slack, subreaper, no new privileges, huge pages, ambient
# capabilities, vectors of ARM, PR_GET_SPECULATION_CTRL, tagged addresses of ARM, PR_GET_AUXV. Not
# PR_SET_MEMORY_MERGE, whose merged pages tell about others; nor PR_SET_VMA, whose names no cgroup counts.
_PRCTL = (
    1, 2, 3, 4, 7, 8, 15, 16, 21, 23, 24, 25, 27, 29, 30, 36, 37, 38, 39, 41, 42, 47, 50, 51, 52, 55, 56,
    0x4155_5856,
)  # fmt: skip
_PR_SET_SECCOMP = 22
# arch_prctl(2): the registers of threads, and large vectors.
_ARCH_PRCTL = (*range(0x1001, 0x1005), *range(0x1021, 0x1026))
# madvise(2), without MADV_MERGEABLE, whose merged pages tell about others, and faults of hardware.
_MADVISE = (*range(12), *range(14, 26), 102, 103)
# The machine's huge pages belong to no cgroup of memory.
_MAP_HUGETLB, _MFD_KNOWN = 0x4_0000, 0x1 | 0x2 | 0x8 | 0x10

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NR, _ARCH, _ARG0, _ARG1, _ARG2, _ARG3 = 0, 4, 16, 24, 32, 40
_ALLOW, _KILL, _NOTHING = 0x7FFF_0000, 0x8000_0000, 0x0005_0000  # _NOTHING: success without effect
_EPERM, _ENOSYS, _EINVAL, _ENOMEM, _ENOTTY, _ENODEV = (
    0x0005_0000 | code
    for code in (
        errno.EPERM, errno.ENOSYS, errno.EINVAL, errno.ENOMEM, errno.ENOTTY, errno.ENODEV,
    )
)  # fmt: skip
_EAFNOSUPPORT, _ESOCKTNOSUPPORT, _EPROTONOSUPPORT, _ENOPROTOOPT = (
    0x0005_0000 | code
    for code in (
        errno.EAFNOSUPPORT, errno.ESOCKTNOSUPPORT, errno.EPROTONOSUPPORT, errno.ENOPROTOOPT,
    )
)  # fmt: skip

Instruction = tuple[int, int, int, int]


def outer(machine: str, memory_is_counted: bool, in_image: bool = False) -> bytes:
    """Return the allow list, 8 bytes per instruction; `machine` as in `uname -m`.

    A fork server installs the filter on itself, and every sandbox inherits the filter. So the list
    allows the calls for making a sandbox (`_SETTING_UP`); `inner` removes them. Where no cgroup
    counts memory, memfd is refused, since files in memory would escape every limit, and sockets
    keep their default buffer sizes, which the memory limit assumes. `in_image`: for sandboxes of an
    image. Raises KeyError for an architecture without a table.
    """
    arch, numbers = _ARCHITECTURES[machine], numbers_of(machine)
    allowed = {name for group in _ALLOWED for name in group.split()}
    looked_at = {
        "socket", "socketpair", "setsockopt", "ioctl", "setrlimit", "prlimit64", "setpriority",
        "sched_setscheduler", "prctl", "arch_prctl", "madvise", "mmap", "memfd_create", "unshare",
    }  # fmt: skip
    setting_up = _SETTING_UP_IMAGE if in_image else _SETTING_UP
    allowed = (allowed | set(setting_up)) - looked_at
    code = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NR)]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _ENOSYS)]
    listing = _only(_ARG2, (_SOCK_DIAG,), _EPROTONOSUPPORT)
    netlink = [(_LOAD, 0, 0, _ARG0), (_EQUAL, 0, len(listing), _NETLINK), *listing]
    code += _looked_at(numbers, "socket", [*netlink, *_families_and_protocols()])
    code += _looked_at(numbers, "unshare", _only(_ARG0, (_NEW_PID, _NEW_NETWORK), _EPERM))
    code += _looked_at(numbers, "socketpair", _families_and_protocols())
    code += _looked_at(numbers, "mmap", _no_bit_of(_ARG3, _MAP_HUGETLB, _ENOMEM))
    code += _looked_at(numbers, "madvise", _only(_ARG2, _MADVISE, _EINVAL))
    code += _looked_at(numbers, "ioctl", _ioctls())
    code += _looked_at(numbers, "prctl", _only(_ARG0, (*_PRCTL, _PR_SET_SECCOMP), _EINVAL))
    if "arch_prctl" in numbers:
        code += _looked_at(numbers, "arch_prctl", _only(_ARG0, _ARCH_PRCTL, _EINVAL))
    if memory_is_counted:
        others = ~_MFD_KNOWN & 0xFFFF_FFFF
        code += _looked_at(numbers, "memfd_create", _no_bit_of(_ARG1, others, _ENOSYS))
    cpu_time = [(_EQUAL, 0, 1, _RLIMIT_CPU), (_RETURN, 0, 0, _NOTHING), (_RETURN, 0, 0, _ALLOW)]
    code += _looked_at(numbers, "setrlimit", [(_LOAD, 0, 0, _ARG0), *cpu_time])
    own = [(_LOAD, 0, 0, _ARG0), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _EPERM)]  # own limits only
    asks = [(_LOAD, 0, 0, _ARG2), (_EQUAL, 0, 3, 0), (_LOAD, 0, 0, _ARG2 + 4), (_EQUAL, 0, 1, 0)]
    asks += [(_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _ARG1)]
    code += _looked_at(numbers, "prlimit64", [*own, *asks, *cpu_time])
    # Refuse changes to the priority of other processes, such as a stateful sandbox's first process.
    itself = [(_LOAD, 0, 0, _ARG0), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _EPERM)]
    code += _looked_at(numbers, "setpriority", [*itself, *_only(_ARG1, (0,), _EPERM)])
    # Mono asks for the usual policy, and complains on stdout where that fails. It is in force already.
    usual = [(_LOAD, 0, 0, _ARG1), (_EQUAL, 0, 1, _SCHED_OTHER), (_RETURN, 0, 0, _NOTHING)]
    code += _looked_at(numbers, "sched_setscheduler", [*usual, (_RETURN, 0, 0, _EPERM)])
    code += _looked_at(numbers, "setsockopt", _socket_options(memory_is_counted))
    code += _tree(sorted(numbers[n] for n in allowed if n in numbers))
    for name in _REFUSED.split():
        if name in numbers and name not in setting_up:
            code += [(_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, _EPERM)]
    return _assemble([*code, (_RETURN, 0, 0, _ENOSYS)])


def inner(machine: str, in_image: bool = False) -> bytes:
    """Return the filter installed on top of `outer` just before a sandbox reads its job.

    Short, because the kernel compiles the filter anew for every sandbox.
    """
    numbers = numbers_of(machine)
    code: list[Instruction] = [(_LOAD, 0, 0, _NR)]
    code += _looked_at(numbers, "clone", _no_bit_of(_ARG0, _NEW_NAMESPACES, _EPERM))
    netlink = [(_LOAD, 0, 0, _ARG0), (_EQUAL, 0, 1, _NETLINK), (_RETURN, 0, 0, _EAFNOSUPPORT)]
    code += _looked_at(numbers, "socket", [*netlink, (_RETURN, 0, 0, _ALLOW)])
    code += _looked_at(numbers, "prctl", _none_of(_ARG0, (_PR_SET_SECCOMP,)))
    for name in _SETTING_UP_IMAGE if in_image else _SETTING_UP:
        if name in _REFUSED.split() and not (in_image and name in _IN_IMAGE):
            code += [(_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, _EPERM)]
    return _assemble([*code, (_RETURN, 0, 0, _ALLOW)])


def _assemble(code: list[Instruction]) -> bytes:
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _looked_at(numbers: dict[str, int], name: str, check: list[Instruction]) -> list[Instruction]:
    """Return the decision code for a call allowed with some arguments only; ends in a return."""
    return [(_EQUAL, 0, len(check), numbers[name]), *check]


def _none_of(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    code: list[Instruction] = [(_LOAD, 0, 0, argument)]
    for value in values:
        code += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _EPERM)]
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _only(argument: int, values: tuple[int, ...], otherwise: int) -> list[Instruction]:
    return [(_LOAD, 0, 0, argument), *_tree(sorted(values)), (_RETURN, 0, 0, otherwise)]


def _ioctls() -> list[Instruction]:
    """Allow the requests of files, pipes, sockets and terminals."""
    *refusing, _ = _none_of(_ARG1, (_TIOCSTI, _TIOCLINUX, _TIOCSETD))
    code = [*refusing, *_tree(sorted(_IOCTL)), (_AND, 0, 0, _IOCTL_BYTE)]
    return [*code, *_tree([_IOCTL_TERMINAL]), (_RETURN, 0, 0, _ENOTTY)]


def _families_and_protocols() -> list[Instruction]:
    """Allow these families, types and protocols; any other may make the kernel load a module."""
    code: list[Instruction] = [(_LOAD, 0, 0, _ARG0), *_unless(_FAMILIES, _EAFNOSUPPORT)]
    code += [(_LOAD, 0, 0, _ARG1), (_AND, 0, 0, _TYPE_BITS), *_unless(_TYPES, _ESOCKTNOSUPPORT)]
    return [*code, *_only(_ARG2, _PROTOCOLS, _EPROTONOSUPPORT)]


def _unless(values: tuple[int, ...], otherwise: int) -> list[Instruction]:
    """Go on behind this code for a listed value, else return."""
    jumps = [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [*jumps, (_RETURN, 0, 0, otherwise)]


def _socket_options(memory_is_counted: bool) -> list[Instruction]:
    """Refuse the options of `_OPTIONS_REFUSED` and `_JOINS`, and options of later kernels.

    Where no cgroup counts memory, sockets keep their default buffer sizes: setting another size
    succeeds without effect, which the kernel's own rules permit.
    """
    results = [(level, options, _ENOPROTOOPT) for level, options in _OPTIONS_REFUSED.items()]
    results += [(level, options, _ENODEV) for level, options in _JOINS.items()]
    if not memory_is_counted:
        results.append((_SOL_SOCKET, _BUFFER_OPTIONS, _NOTHING))
    code: list[Instruction] = []
    for level, options, result in results:
        body: list[Instruction] = [(_LOAD, 0, 0, _ARG2)]
        if level in _OPTIONS_LATER:
            body += [(_AT_LEAST, 0, 1, _OPTIONS_LATER[level]), (_RETURN, 0, 0, _ENOPROTOOPT)]
        for option in options:
            body += [(_EQUAL, 0, 1, option), (_RETURN, 0, 0, result)]
        code += [(_LOAD, 0, 0, _ARG1), (_EQUAL, 0, len(body), level), *body]
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _no_bit_of(argument: int, bits: int, otherwise: int) -> list[Instruction]:
    return [
        (_LOAD, 0, 0, argument),
        (_ANY_BIT, 0, 1, bits),
        (_RETURN, 0, 0, otherwise),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _tree(numbers: list[int]) -> list[Instruction]:
    """Allow `numbers`: consecutive numbers form a run, and the runs are checked in order.

    A run of any length costs three instructions, so the list stays far below the kernel's 4,096.
    """
    code: list[Instruction] = []
    start = 0
    for i, number in enumerate(numbers):
        if i + 1 < len(numbers) and numbers[i + 1] == number + 1:
            continue
        first = numbers[start]
        # nr >= first and not nr >= number + 1
        code += [(_AT_LEAST, 0, 2, first), (_AT_LEAST, 1, 0, number + 1), (_RETURN, 0, 0, _ALLOW)]
        start = i + 1
    return code
