"""The fork server: a warm, frozen interpreter without secrets, which forks sandboxes one at a time.

The fork server never reads a submission: a job goes straight from the service to the forked
sandbox, so the memory from which the next sandbox is forked is free of submissions' data. The
control socket carries commands (`fork DISK_MB KIND`) in. Out come the descriptors of the waiting
sandbox (its channel, stdout, stderr, a pidfd), and the ending of the previous sandbox. Standard
library only.

Process tree; when a fork server dies, the kernel kills all its sandboxes:

    service ── zygote ── fork server (1 of its PID namespace) ─┬─ init (1 of the sandbox's own)
                                                               └─ program (2)

A program is process 2, since the kernel drops signals without a handler for process 1. A session is
process 1 itself, so its commands cannot kill it (`guest/session/main.py`).
"""

from __future__ import annotations

import _socket
import ctypes
import gc
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from ..linux import kernel
from . import gaps, image_root, isolation, network
from .init import Init

CHANNEL = 300  # above a program's own descriptors, and above 3 to 255, closed by some
RLIMITS = (
    resource.RLIMIT_NOFILE, resource.RLIMIT_STACK, resource.RLIMIT_AS, resource.RLIMIT_NPROC,
)  # fmt: skip
"""A job's limits, in the order of its first bytes on the channel: `struct rlimit64` for each."""
_RLIMIT_BYTES = 16
LIMITS_BYTES = _RLIMIT_BYTES * len(RLIMITS)
PROGRAM, SESSION = b"program", b"session"
"""Kinds of a sandbox in a command `fork DISK_MB KIND`."""
LOCKED = b"+"
"""First byte from a sandbox, sent before hostile code can run; a session adds its mount namespace."""
THREAD_MB = 2  # stack of a thread, where address space is limited
BIND_NOW = "LD_BIND_NOW"
"""Variable for the zygote: symbols are bound once, and not again in each sandbox, which costs pages."""
_WARM_ROUNDS = 10
_PENDING_SIGNALS = 4096
_LOCKED_BYTES = 1 << 16
_COMMAND_BYTES = 64
_RUSAGE_WORDS = 18
_DESCRIPTORS, _DESCRIPTOR = struct.Struct("4i"), struct.Struct("i")
_MOUNTS = b"/proc/self/ns/mnt"
# Names of this module: a look into another module touches its objects, too.
_SOL_SOCKET, _SCM_RIGHTS = socket.SOL_SOCKET, socket.SCM_RIGHTS
_WAIT_FOR_ALL = int(socket.MSG_WAITALL)
_POLLIN = select.POLLIN
_pipe, _close, _closerange, _pidfd_open = os.pipe, os.close, os.closerange, os.pidfd_open
_perform, _syscall = kernel.perform, kernel.syscall
_monotonic = time.monotonic
_socketpair = _socket.socketpair  # without the wrapper of `socket`
_DUP3, _OPENAT, _WRITE, _CLOSE, _CHDIR, _RECVFROM = kernel.numbers_of(
    "dup3", "openat", "write", "close", "chdir", "recvfrom"
)
_SETSID, _SETGROUPS, _SETRESGID, _SETRESUID, _PRLIMIT64, _WAIT4, _SIGMASK = kernel.numbers_of(
    "setsid", "setgroups", "setresgid", "setresuid", "prlimit64", "wait4", "rt_sigprocmask"
)
(_SENDMSG,) = kernel.numbers_of("sendmsg")
_SET_MASK, _MASK_BYTES = 2, 8
_KILLED = int(signal.SIGKILL)
_FORK = b"fork "


_Start = tuple[
    tuple[kernel.Call, ...], tuple[kernel.Call, ...], kernel.Call, tuple[kernel.Call, ...],
    Callable[[int], None],
]  # fmt: skip
"""A sandbox's start: system calls for its descriptors, its isolation and its limits; its program."""


def main(
    control: socket.socket,
    config: dict[str, object],
    inside_main: Callable[[int], None],
    warm_up: Callable[[], None],
) -> None:
    """Set up the isolation, then serve; returns only inside a sandbox, never in the fork server."""
    uid, contained = int(str(config["uid"])), bool(config["namespaces"])
    os.environ.pop(BIND_NOW, None)
    os.setsid()
    if config["nice"]:
        os.nice(int(str(config["nice"])))
    image = image_of(config)
    bounds: Any = config["bounds"] if config["user_namespace"] else None
    if config["subordinate"]:
        isolation.await_users(int(str(config["users"])))
    elif config["user_namespace"]:
        user, group = (image["user"], image["group"]) if image else (uid, uid)
        outer_uid, outer_gid = int(str(config["outer_uid"])), int(str(config["outer_gid"]))
        isolation.map_user(user, group, outer_uid, outer_gid)
    if contained:
        isolation.settle_namespaces(bounds and bounds["sysctls"])
        if image:
            image_root.build_root(image)
            image_root.own_ids(image, uid)
            image_root.show_image(image)
            image["namespace"] = image_root.open_user_namespace(image["ids"])  # before the limits
        else:
            isolation.build_root(config)
    else:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    if image:
        kernel.perform(image_root.dropping_bounding())
    elif os.geteuid() == 0 or contained:
        kernel.drop_bounding_set()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if not config["memory_counted"]:
        kernel.make_threads_lean(THREAD_MB)
    try:  # with 0, a handler of the machine in core_pattern would still run: see core(5)
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    except (ValueError, OSError):  # above the hard limit of an ordinary user
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, value in (
        (resource.RLIMIT_MEMLOCK, bounds["locked_bytes"] if bounds else _LOCKED_BYTES),
        (resource.RLIMIT_MSGQUEUE, 0),
        # also limits timers
        (resource.RLIMIT_SIGPENDING, bounds["pending_signals"] if bounds else _PENDING_SIGNALS),
    ):
        most = resource.getrlimit(name)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(name, (value, value))
    if image:
        image_root.take_variables(image["variables"])
    elif contained:
        _warm(warm_up, uid)
    server = _Forkserver(control, config, inside_main)
    # Most of the filter's cost is paid once here; a sandbox adds the few remaining rules.
    kernel.install_seccomp(kernel.load_seccomp(bytes.fromhex(str(config["seccomp_outer"]))))
    server.serve()


def image_of(config: dict[str, object]) -> dict[str, Any] | None:
    """Return the configuration of the sandboxes' image, if any."""
    image = config.get("image")
    return image if isinstance(image, dict) else None


def _warm(warm_up: Callable[[], None], uid: int) -> None:
    """Run a sandbox's start several times in advance; see `program.warm_up`."""
    for rounds in range(_WARM_ROUNDS):
        kernel.perform(isolation.entering_root("1m", uid, isolation.proc_options()))
        kernel.perform(isolation.moving_in())
        if rounds == _WARM_ROUNDS - 1:
            warm_up()
        os.chdir("/")
        _closerange(CHANNEL, CHANNEL)  # closes none, but binds the symbol
        kernel.umount("/proc")
        kernel.umount(isolation.BOX)


class _Forkserver:
    """Forks sandboxes. Its loop and a sandbox's start touch few objects, since each costs a page.

    A fork shares all pages; afterwards the first write of either process to a page copies the page,
    and counting references is writing. So a sandbox starts by system calls prepared once.
    """

    def __init__(
        self, control: socket.socket, config: dict[str, object], inside_main: Callable[[int], None]
    ) -> None:
        self.control = control
        self.uid = int(str(config["uid"]))
        self.drops_user = bool(config["drops_user"])
        self.contained = bool(config["namespaces"])
        self.shows_mounts = bool(config["shows_mounts"])
        self.flags = 0
        if self.contained:
            self.flags = kernel.NEWNS | kernel.NEWIPC | kernel.NEWUTS
        self.init = Init() if self.contained else None
        self.seccomp = kernel.load_seccomp(bytes.fromhex(str(config["seccomp_inner"])))
        self.proc_options = isolation.proc_options() if self.contained else None
        self.image = image_of(config)
        if self.image:
            self.image["terminals"] = image_root.has_terminals()
            seed = str(config["hash_seed"])
            inside_main = image_root.running_job(self.image, seed, inside_main)
        self.inside_main = inside_main
        self.place: str | None = None  # workdir of a sandbox without namespaces
        self.network: network.Network | None = None
        if self.contained:
            self.network = network.Network(image_root.NETWORK_SYSCTLS if self.image else {})
            self.enter_network(new=False)
        self.null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.poll = select.poll()
        self.poll.register(control.fileno(), 0)  # reports only a hang-up
        self.start: _Start
        self.start_of: tuple[int | bytes, ...] = ()
        self.status = ctypes.c_int()
        # `struct rusage`: user and system time, each in seconds and microseconds, and the peak in kB.
        self.used = (ctypes.c_long * _RUSAGE_WORDS)()

    def serve(self) -> None:
        """Handle one command and one sandbox at a time, until the service closes the socket."""
        # Of a program, an init would otherwise get signals of its user.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        gc.collect()
        kernel.give_memory_back()
        self.fillers = gaps.fill()
        gc.freeze()  # a collection in a sandbox must not touch, and thereby copy, these pages
        receive = self.control.recv
        buffer = b""
        while True:
            while b"\n" not in buffer:
                data = receive(_COMMAND_BYTES)
                if not data:
                    os._exit(0)
                buffer += data
            command, buffer = buffer.split(b"\n", 1)
            self.fork_one(command[len(_FORK) :])

    def enter_network(self, *, new: bool) -> None:
        """Set up the network namespace, and give the service a look at its sockets."""
        assert self.network is not None
        self.network.enter(new=new)
        sockets = network.socket_of_sockets()
        if sockets is not None:
            self.report(b"network\n", _DESCRIPTOR.pack(sockets.fileno()))
            sockets.close()

    def fork_one(self, shape: bytes) -> None:
        if self.network is not None and self.network.is_used():
            self.enter_network(new=True)
        ours, channel = _socketpair()
        out_read, out_write = _pipe()
        err_read, err_write = _pipe()
        if not self.contained:
            self.place = isolation.make_place(self.uid, self.drops_user)
        start_of = channel.fileno(), out_write, err_write, shape
        if self.start_of != start_of or self.place is not None:
            self.start, self.start_of = (
                self.prepare(channel.fileno(), out_write, err_write, shape),
                start_of,
            )
        start = self.start
        init = None if shape.endswith(SESSION) else self.init
        try:
            if init is None:
                pid = kernel.clone(self.flags | (kernel.NEWPID if self.contained else 0))
            else:
                pid = init.clone_beside(self.flags)
        except OSError as error:
            self.report(b"failed %s\n" % str(error).encode())
            ours.close()
            channel.close()
            for descriptor in (out_read, out_write, err_read, err_write):
                _close(descriptor)
            return
        if pid == 0:
            _become_sandbox(start)
        pidfd = _pidfd_open(pid)
        lent = _DESCRIPTORS.pack(ours.fileno(), out_read, err_read, pidfd)
        self.report(b"ready %s\n" % shape, lent)
        ours.close()
        channel.close()
        _close(out_read)
        _close(out_write)
        _close(err_read)
        _close(err_write)
        self.wait_for(pid, pidfd, init)

    def report(self, message: bytes, descriptors: bytes = b"") -> None:
        with_it = [(_SOL_SOCKET, _SCM_RIGHTS, descriptors)] if descriptors else []
        try:
            self.control.sendmsg([message], with_it)
        except OSError:  # the service is gone
            self.leave()

    def leave(self) -> NoReturn:
        """Exit; the kernel then kills all processes of the PID namespace, if present."""
        if self.place is not None:
            _end_orphans()
            isolation.remove(self.place)
        os._exit(0)

    def wait_for(self, pid: int, pidfd: int, init: Init | None) -> None:
        poll = self.poll
        poll.register(pidfd, _POLLIN)
        for descriptor, _ in poll.poll():
            if descriptor != pidfd:  # the service is gone
                self.leave()
        poll.unregister(pidfd)
        status, used = self.status, self.used
        kernel.perform(((_WAIT4, pid, ctypes.byref(status), 0, ctypes.byref(used)),))
        _close(pidfd)
        if self.place is not None:
            _end_orphans()
            isolation.remove(self.place)
            self.place = None
        is_foreign = self.contained and status.value == _KILLED
        if init is not None:
            is_foreign = is_foreign and init.is_dying()
            init.kill()
        cpu_microseconds = (used[0] + used[2]) * 1_000_000 + used[1] + used[3]
        at = int(_monotonic() * 1e6)
        self.report(
            b"ended %d %d %d %d %d\n" % (status.value, cpu_microseconds, used[4], is_foreign, at)
        )
        if init is not None:  # the program is gone, and so is all else in a moment
            init.wait()

    def prepare(self, channel: int, out: int, err: int, shape: bytes) -> _Start:
        """Prepare the start of a sandbox with these descriptors and this shape, `DISK_MB KIND`."""
        disk_mb = int(shape.split()[0])
        descriptors: list[kernel.Call] = [
            (_DUP3, channel, CHANNEL, os.O_CLOEXEC),
            (_DUP3, self.null, 0, 0),
            (_DUP3, out, 1, 0),
            (_DUP3, err, 2, 0),
        ]
        isolating: list[kernel.Call] = [
            (_SETSID,),
            # Killed first when the sandbox's memory is used up. 3 is the lowest free descriptor.
            (_OPENAT, kernel.AT_FDCWD, b"/proc/self/oom_score_adj", os.O_WRONLY, 0),
            (_WRITE, 3, b"1000", 4),
            (_CLOSE, 3),
        ]
        isolating += self.root_and_user(disk_mb)
        isolating += [
            kernel.setting(kernel.PR_SET_DUMPABLE, 1),
            kernel.setting(kernel.PR_SET_PDEATHSIG, int(signal.SIGKILL)),
            kernel.installing_seccomp(self.seccomp),
        ]
        isolating += self.moving_in()
        mask = ctypes.create_string_buffer(_MASK_BYTES)
        isolating.append((_SIGMASK, _SET_MASK, ctypes.byref(mask), None, _MASK_BYTES))
        isolating += self.greeting(is_session=shape.endswith(SESSION))
        limits = ctypes.create_string_buffer(LIMITS_BYTES)
        take_limits: kernel.Call = (
            _RECVFROM, CHANNEL, ctypes.byref(limits), LIMITS_BYTES, _WAIT_FOR_ALL, None, None,
        )  # fmt: skip
        set_limits: list[kernel.Call] = [
            (_PRLIMIT64, 0, name, ctypes.byref(limits, place * _RLIMIT_BYTES), None)
            for place, name in enumerate(RLIMITS)
        ]
        calls = tuple(descriptors), tuple(isolating), take_limits, tuple(set_limits)
        return *calls, self.inside_main

    def greeting(self, *, is_session: bool) -> list[kernel.Call]:
        """Return the calls which send LOCKED; with its mount namespace, if it is a session's own."""
        if not (is_session and self.contained and self.shows_mounts):
            return [(_WRITE, CHANNEL, LOCKED, len(LOCKED))]
        message = kernel.Message(LOCKED, 3)  # 3 is the lowest free descriptor
        return [
            (_OPENAT, kernel.AT_FDCWD, _MOUNTS, os.O_RDONLY | os.O_CLOEXEC, 0),
            (_SENDMSG, CHANNEL, ctypes.byref(message), 0),
            (_CLOSE, 3),
        ]

    def root_and_user(self, disk_mb: int) -> list[kernel.Call]:
        """Return the calls which enter a sandbox's root, and become its user."""
        if self.image:
            return [
                *image_root.entering_image(self.image, disk_mb, self.proc_options),
                *image_root.changing_user(self.image),
            ]
        calls: list[kernel.Call] = []
        if self.place is None:
            calls += isolation.entering_root(f"{disk_mb}m", self.uid, self.proc_options)
        if self.drops_user:
            calls += [
                (_SETGROUPS, 0, None),
                (_SETRESGID, self.uid, self.uid, self.uid),
                (_SETRESUID, self.uid, self.uid, self.uid),
            ]
        return [*calls, kernel.dropping_capabilities()]

    def moving_in(self) -> list[kernel.Call]:
        """Return the calls which enter a sandbox's working directory."""
        if self.image:
            return [(_CHDIR, self.image["workdir"].encode())]
        if self.place is None:
            return isolation.moving_in()
        os.environ.update(HOME=f"{self.place}/home", TMPDIR=f"{self.place}/tmp")
        return [(_CHDIR, f"{self.place}/work".encode())]


def _become_sandbox(start: _Start) -> NoReturn:
    """In the child: finish the isolation, then wait for a job."""
    descriptors, isolating, take_limits, set_limits, inside_main = start
    try:
        _perform(descriptors)
        _closerange(3, CHANNEL)
        _perform(isolating)
    except BaseException as error:
        os.write(CHANNEL, repr(error).encode()[:500])
        os._exit(70)
    # Limits only now: the kernel counts descriptors in transit per user and refuses them beyond the
    # sender's own limit. The fork server must be able to send even when its sandboxes are not.
    if _syscall(*take_limits) == LIMITS_BYTES:
        _perform(set_limits)
        inside_main(CHANNEL)
    os._exit(71)


def _end_orphans() -> None:
    """Kill a sandbox's orphans: without a PID namespace, they are children of this subreaper."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = file.read().split()
        if not children:
            return
        for child in children:
            os.kill(int(child), signal.SIGKILL)
            os.waitpid(int(child), 0)


def fail(control: socket.socket, error: BaseException) -> None:
    """Report to the service why the fork server failed to start, and exit."""
    text = f"{type(error).__name__}: {error}".replace("\n", " ")
    control.sendall(f"failed {text}\n".encode())
    sys.exit(1)
