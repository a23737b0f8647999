"""The zygote: a single warm interpreter, the parent of every fork server.

The zygote never reads a job and never forks a sandbox itself. For each line on its socket (`fork
UID`, with the fork server's control socket and the files of its cgroups) the zygote clones a fork
server into new namespaces, sends `born PID` with a pidfd on the control socket, and keeps no
record: fork servers outlive their zygote. The other order is that of `read_only.py`. Standard library
only.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from ..linux import kernel
from . import fork_server, image_root, read_only

_MOST_DESCRIPTORS = 8


def main(
    orders: socket.socket,
    config: dict[str, object],
    inside_main: Callable[[int], None],
    warm_up: Callable[[], None],
) -> None:
    """Fork fork servers until the service closes the socket; return only inside a sandbox."""
    _forget_inherited_signals()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; the service holds pidfds
    image = fork_server.image_of(config)
    if image:
        image_root.keep_code(image)
    gc.collect()
    kernel.give_memory_back()
    gc.freeze()  # a collection in a child must not touch, and thereby copy, these pages
    orders.sendall(b"up\n")
    flags = _flags(config)
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, 256, _MOST_DESCRIPTORS)
        if not order:
            os._exit(0)
        if order == read_only.ORDER:
            _answer(descriptors)
            continue
        control = socket.socket(fileno=descriptors[0])
        uid = int(order.split()[1])
        reading, writing = os.pipe() if config["subordinate"] else (-1, -1)
        try:
            pid = kernel.clone(flags)
        except OSError as error:
            pid = -1
            _send(control, f"failed {error}")
        if pid == 0:
            orders.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                if writing >= 0:
                    os.close(writing)
                for descriptor in descriptors[1:]:
                    os.write(descriptor, b"0")  # 0 means this process, in any PID namespace
                    os.close(descriptor)
                fork_server.main(
                    control, {**config, "uid": uid, "users": reading}, inside_main, warm_up
                )
            except BaseException as error:
                fork_server.fail(control, error)
            return
        if pid > 0:
            _send(control, f"born {pid}", pid)
        if reading >= 0:
            os.close(reading)
            if pid > 0:
                _map_users(pid, uid, config["subordinate"], writing)
            os.close(writing)
        control.close()
        for descriptor in descriptors[1:]:
            os.close(descriptor)


def _answer(descriptors: list[int]) -> None:
    """Have a child answer a request of `read_only.py`; a failed fork closes the socket for the answer."""
    try:
        if kernel.clone(0) == 0:
            read_only.answer(descriptors)
    except OSError:
        pass
    for descriptor in descriptors:
        os.close(descriptor)


def _map_users(pid: int, uid: int, subordinate: Any, writing: int) -> None:
    """Have a helper map the users of a fork server: root to the service's, and `uid` to its own.

    newuidmap(1) must run outside of the new namespace. The helper writes `+`, or the error.
    """
    if kernel.clone(0) != 0:
        return
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(writing, 2)
        for program, own, first in subordinate["maps"]:
            mapping = (pid, 0, own, 1, uid, first + uid - subordinate["first"], 1)
            child = os.posix_spawn(program, [program, *map(str, mapping)], {})
            if os.waitpid(child, 0)[1] != 0:
                os._exit(1)
        os.write(writing, b"+")
    except OSError as error:
        os.write(writing, str(error).encode())
    finally:
        os._exit(0)


def _forget_inherited_signals() -> None:
    """Restore Python's default for signals ignored by the service (`nohup`, background job)."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python's own choice
        if signal.getsignal(number) is signal.SIG_IGN:
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


def _flags(config: dict[str, object]) -> int:
    flags = 0
    if config["namespaces"]:
        flags = kernel.NEWNS | kernel.NEWIPC | kernel.NEWUTS | kernel.NEWPID | kernel.NEWNET
    if config["user_namespace"]:
        flags |= kernel.NEWUSER
    return flags


def _send(control: socket.socket, message: str, pid: int = 0) -> None:
    """Send a message in place of a fork server, with its pidfd if available."""
    pidfds: list[int] = []
    try:
        if pid:
            pidfds.append(os.pidfd_open(pid))
        socket.send_fds(control, [f"{message}\n".encode()], pidfds)
    except OSError:
        pass  # the fork server died or the service hung up; both show on the control socket
    for pidfd in pidfds:
        os.close(pidfd)
