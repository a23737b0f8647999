"""The fork server: a warm, frozen interpreter without secrets, which forks sandboxes one at a time.

The fork server never reads a submission: a job goes straight from the service to the forked
sandbox, so no data of a submission is in the memory from which the next sandbox is forked. The
control socket carries commands (`fork DISK_MB`) in. Out come the descriptors of the waiting sandbox
(its channel, stdout, stderr, a pidfd), and the ending of the previous sandbox. Standard library
only.

Process tree; when a fork server dies, the kernel kills all its sandboxes:

    service ── zygote ── forkserver (first of its pid namespace) ── sandbox (first of its own)
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import NoReturn

from ..linux import kernel
from . import isolation

CHANNEL = 300  # above a program's own descriptors, and above 3 to 255, closed by some
LIMITS_BYTES = 64
LOCKED = b"+"  # first byte from a sandbox, sent before hostile code can run
THREAD_MB = 2  # stack of a thread, where address space is limited
_WARM_ROUNDS = 10
_PENDING_SIGNALS = 4096


def main(
    control: socket.socket,
    config: dict[str, object],
    inside_main: Callable[[int], None],
    warm_up: Callable[[], None],
) -> None:
    """Set up the isolation, then serve; returns only inside a sandbox, never in the fork server."""
    uid, contained = int(str(config["uid"])), bool(config["namespaces"])
    os.setsid()
    if config["nice"]:
        os.nice(int(str(config["nice"])))
    if config["user_namespace"]:
        isolation.map_user(uid, int(str(config["outer_uid"])), int(str(config["outer_gid"])))
    if contained:
        isolation.settle_namespaces(bool(config["user_namespace"]))
        isolation.build_root(config)
    else:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    if os.geteuid() == 0 or contained:
        kernel.drop_bounding_set()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if not config["memory_counted"]:
        kernel.make_threads_lean(THREAD_MB)
    for name, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 1 << 16),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, _PENDING_SIGNALS),  # also limits timers
    ):
        most = resource.getrlimit(name)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(name, (value, value))
    if contained:
        _warm(warm_up, uid)
    server = _Forkserver(control, config, inside_main)
    # Most of the filter's cost is paid once here; a sandbox adds the few remaining rules.
    kernel.install_seccomp(kernel.load_seccomp(bytes.fromhex(str(config["seccomp_outer"]))))
    server.serve()


def _warm(warm_up: Callable[[], None], uid: int) -> None:
    """Run a sandbox's start several times in advance; see `program.warm_up`."""
    for rounds in range(_WARM_ROUNDS):
        isolation.mount_root("1m", uid)
        isolation.move_in()
        if rounds == _WARM_ROUNDS - 1:
            warm_up()
        os.chdir("/")
        kernel.umount("/proc")
        kernel.umount(isolation.BOX)


class _Forkserver:
    def __init__(
        self, control: socket.socket, config: dict[str, object], inside_main: Callable[[int], None]
    ) -> None:
        self.control = control
        self.uid = int(str(config["uid"]))
        self.drops_user = bool(config["drops_user"])
        self.contained = bool(config["namespaces"])
        self.seccomp = kernel.load_seccomp(bytes.fromhex(str(config["seccomp_inner"])))
        self.inside_main = inside_main
        self.place: str | None = None  # workdir of a sandbox without namespaces
        self.null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)

    def serve(self) -> None:
        """Handle one command and one sandbox at a time, until the service closes the socket."""
        gc.collect()
        kernel.give_memory_back()
        gc.freeze()  # a collection in a sandbox must not touch, and thereby copy, these pages
        buffer = b""
        while True:
            while b"\n" not in buffer:
                data = self.control.recv(4096)
                if not data:
                    os._exit(0)
                buffer += data
            command, buffer = buffer.split(b"\n", 1)
            self.fork_one(int(command.split()[1]))

    def fork_one(self, disk_mb: int) -> None:
        ours, channel = (end.detach() for end in socket.socketpair())
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        flags = kernel.NEWPID | kernel.NEWNS | kernel.NEWIPC | kernel.NEWUTS
        if not self.contained:
            flags = 0
            self.place = isolation.make_place(self.uid, self.drops_user)
        try:
            pid = kernel.clone(flags)
        except OSError as error:
            self.report(f"failed {error}")
            for descriptor in (ours, channel, out_read, out_write, err_read, err_write):  # fmt: skip
                os.close(descriptor)
            return
        if pid == 0:
            self.become_sandbox(channel, out_write, err_write, disk_mb)
        for descriptor in (channel, out_write, err_write):
            os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        lent = (ours, out_read, err_read, pidfd)
        self.report(f"ready {disk_mb}", lent)
        for descriptor in lent[:3]:
            os.close(descriptor)
        self.wait_for(pid, pidfd)

    def report(self, message: str, descriptors: tuple[int, ...] = ()) -> None:
        try:
            socket.send_fds(self.control, [message.encode() + b"\n"], descriptors)
        except OSError:  # the service is gone
            self.leave()

    def leave(self) -> NoReturn:
        """Exit; the kernel then kills all processes of the PID namespace, if present."""
        if self.place is not None:
            _end_orphans()
            isolation.remove(self.place)
        os._exit(0)

    def wait_for(self, pid: int, pidfd: int) -> None:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self.control.fileno(), 0)  # reports only a hang-up
        for descriptor, _ in poll.poll():
            if descriptor != pidfd:  # the service is gone
                self.leave()
        _, status, used = os.wait4(pid, 0)
        os.close(pidfd)
        if self.place is not None:
            _end_orphans()
            isolation.remove(self.place)
            self.place = None
        self.report(f"ended {status} {used.ru_utime + used.ru_stime:.6f} {used.ru_maxrss}")

    def become_sandbox(self, channel: int, out: int, err: int, disk_mb: int) -> None:
        """In the child: finish the isolation, then wait for a job. Never returns."""
        try:
            self.lock_down(channel, out, err, disk_mb)
        except BaseException as error:
            os.write(channel, repr(error).encode()[:500])
            os._exit(70)
        os.write(CHANNEL, LOCKED)
        inside_main = self.inside_main
        self.__dict__.clear()
        if _apply_limits():
            inside_main(CHANNEL)
        os._exit(71)

    def lock_down(self, channel: int, out: int, err: int, disk_mb: int) -> None:
        os.dup2(channel, CHANNEL, inheritable=False)
        os.dup2(self.null, 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, CHANNEL)
        os.setsid()
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, b"1000")  # killed first when the sandbox's memory is used up
        os.close(score)
        if self.place is None:
            isolation.mount_root(f"{disk_mb}m", self.uid)
        if self.drops_user:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)
        kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.install_seccomp(self.seccomp)
        if self.place is None:
            isolation.move_in()
        else:
            os.environ.update(HOME=f"{self.place}/home", TMPDIR=f"{self.place}/tmp")
            os.chdir(f"{self.place}/work")


def _apply_limits() -> bool:
    """Read the job's limits, a line of fixed length, and apply them; False without a job."""
    line = b""
    while len(line) < LIMITS_BYTES:
        data = os.read(CHANNEL, LIMITS_BYTES - len(line))
        if not data:
            return False
        line += data
    stack_mb, address_space_mb, processes, descriptors = map(int, line.split())
    # Only now: the kernel counts descriptors in transit per user and refuses them beyond the
    # sender's own limit. The fork server must be able to send even when its sandboxes are not.
    descriptors = min(descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    _, most = resource.getrlimit(resource.RLIMIT_STACK)  # unchanged: contest programs raise it
    resource.setrlimit(resource.RLIMIT_STACK, (stack_mb << 20, most))
    if address_space_mb:
        resource.setrlimit(resource.RLIMIT_AS, (address_space_mb << 20, address_space_mb << 20))
    if processes:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    return True


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
