"""Containers for the stand-in: namespaces with a root of their own, and a first process that takes orders.

Runs as a process of its own, single-threaded, so that it may fork. Hostile programs run in here: no
network but a loopback, nothing of the host but its programs, read-only, a few capabilities, and all of
it gone when its first process is. One network namespace for all of them: to make one costs much.

    gateway ── containers.py ── monitor ── first process of a container ── commands
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from proctor_service.sandbox.linux import kernel

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_PLAIN = ("proc", "dev", "etc", "root", "home", "run", "var", "opt", "srv", "mnt")
_SHOWN_OF_ETC = ("alternatives", "java")
_ETC = {
    "passwd": "root:x:0:0::/root:/bin/sh\n",
    "group": "root:x:0:\n",
    "shadow": "root:*::0:::::\n",
    "hosts": "127.0.0.1 localhost\n",
}
# What container engines leave to root: ownership, users, signals, ports, mknod, chroot.
_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHUNK = 1 << 16
_NEW = kernel.NEWNS | kernel.NEWPID | kernel.NEWIPC | kernel.NEWUTS


def serve(orders: socket.socket) -> NoReturn:
    """Makes a container for each order, and hands out the socket of its first process."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        kernel.unshare(kernel.NEWNET)
    except PermissionError:  # not root: then the containers' only user is ours
        uid, gid = os.getuid(), os.getgid()
        kernel.unshare(kernel.NEWUSER | kernel.NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    kernel.bring_loopback_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        order = orders.recv(_CHUNK)
        if not order:
            os._exit(0)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            if os.fork() == 0:
                orders.close()
                ours.close()
                _monitor(theirs, json.loads(order))
            socket.send_fds(orders, [b"+"], [ours.fileno()])


def _monitor(control: socket.socket, order: dict[str, Any]) -> NoReturn:
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.unshare(_NEW)
    first = os.fork()
    if first:
        control.close()
        os.waitpid(first, 0)
        os._exit(0)
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        _build_root(order["shown"], order["hidden"])
        _drop_capabilities()
        _First(control, order["path"], order["user"], order["variables"]).serve()
    except BaseException as error:
        with contextlib.suppress(OSError):
            control.send(json.dumps(["failed", f"{type(error).__name__}: {error}"]).encode())
    os._exit(1)


def _build_root(shown: list[str], hidden: list[str]) -> None:
    """A writable tmpfs with the host's programs in it, as an image would look; nothing in `hidden`."""
    new = "/sys"  # hidden from now on; nothing below needs it
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", new, "tmpfs", kernel.MS_NOSUID, "size=512m,mode=755")
    for name in _PLAIN:
        os.mkdir(f"{new}/{name}", 0o755)
    system = [f"/{name}" for name in _SYSTEM]
    # Where Debian's languages are linked from, and what they read.
    etc = [str(path) for path in Path("/etc").iterdir() if path.name.startswith(_SHOWN_OF_ETC)]
    for path in (*system, *etc, *shown):
        if os.path.islink(path):
            os.symlink(os.readlink(path), new + path)
        elif os.path.isdir(path):
            os.makedirs(new + path, exist_ok=True)
            kernel.bind_read_only(path, new + path)
    for path in hidden:
        kernel.mount("tmpfs", new + path, "tmpfs", kernel.MS_RDONLY, "size=4k,mode=755")
    for path in ("tmp", "var/tmp", "dev/shm"):
        os.mkdir(f"{new}/{path}")
        os.chmod(f"{new}/{path}", 0o1777)
    os.symlink("/proc/self/fd", f"{new}/dev/fd")
    for name in _DEVICES:
        Path(f"{new}/dev/{name}").touch()
        kernel.mount(f"/dev/{name}", f"{new}/dev/{name}", None, kernel.MS_BIND)
    for name, text in _ETC.items():
        Path(f"{new}/etc/{name}").write_text(text)
    os.chmod(f"{new}/etc/shadow", 0o600)
    for name in ("ld.so.cache", "ld.so.conf", "localtime"):
        if os.path.isfile(f"/etc/{name}"):
            Path(f"{new}/etc/{name}").write_bytes(Path(f"/etc/{name}").read_bytes())
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("proc", f"{new}/proc", "proc", flags, "subset=pid")
    kernel.pivot_root(new)


def _drop_capabilities() -> None:
    for capability in range(64):
        if capability not in _CAPABILITIES:
            kernel.libc.prctl(kernel.PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)


class _First:
    """The first process of a container: starts commands, ends them, and says how they ended.

    Orders: ["exec", n, argv] with three descriptors, ["write", n, path] with one to read from, ["kill", n].
    """

    def __init__(
        self, control: socket.socket, path: str, user: int, variables: dict[str, str]
    ) -> None:
        self.control = control
        self.user = user  # the image's; 0 is root
        self.environment = {**variables, "PATH": f"{path}:{_PATH}", "HOME": "/root"}
        self.commands: dict[int, int] = {}  # number by pid
        self.wake, wake = os.pipe()
        for descriptor in (self.wake, wake):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.control.send(json.dumps(["ready", 0]).encode())

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self.wake:
                    os.read(self.wake, _CHUNK)
                elif not self.hear():
                    os._exit(0)
            self.reap()

    def hear(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self.control, _CHUNK, 3)
        if not data:
            return False
        kind, number, *rest = json.loads(data)
        if kind == "kill":
            for pid in [pid for pid, found in self.commands.items() if found == number]:
                os.killpg(pid, signal.SIGKILL)
            return True
        pid = os.fork()
        if pid == 0:
            self.become(kind, rest[0], descriptors)
        self.commands[pid] = number
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def become(self, kind: str, what: Any, descriptors: list[int]) -> NoReturn:
        code = 126
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if self.user:
                os.setgroups([])
                os.setresgid(self.user, self.user, self.user)
                os.setresuid(self.user, self.user, self.user)
            if kind == "write":
                with open(descriptors[0], "rb") as source:
                    Path(what).write_bytes(source.read())
                os._exit(0)
            for target, descriptor in enumerate(descriptors):
                os.dup2(descriptor, target)
            os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            os.chdir("/")
            os.nice(9)
            os.execvpe(what[0], what, self.environment)
        except FileNotFoundError:
            code = 127
        except BaseException as error:
            os.write(2, repr(error).encode())
        os._exit(code)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self.commands.pop(pid, None)
            if number is not None:
                code = os.waitstatus_to_exitcode(status)
                self.control.send(
                    json.dumps(["exit", number, code % 256 if code >= 0 else 128 - code]).encode()
                )


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
