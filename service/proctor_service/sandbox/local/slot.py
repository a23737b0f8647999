"""A slot: a fork server and its current sandbox.

    starting ──▶ ready ──▶ leased ──▶ recycling ──▶ ready …        (any) ──▶ dead

In state `ready`, a fresh, locked-down and idle sandbox waits in the slot, so a lease is cheap. The
fork server forks the next sandbox as soon as the last is gone; if a waiting sandbox ends, for
example because the machine runs out of memory, after a pause. When a fork server dies, its sandbox
dies too, and the pool replaces the slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import signal
import socket
from collections.abc import Callable
from typing import Literal

from proctor_service.errors import SandboxUnavailable
from proctor_service.sandbox.interface import Limits
from proctor_service.sandbox.linux.poller import Poller
from proctor_service.sandbox.local.cgroups import AWAKE, Group
from proctor_service.sandbox.local.sandbox import LocalSandbox
from proctor_service.sandbox.local.spawn import Launch, Spawner

_END_SECONDS = 5.0
_PAUSE_SECONDS = 0.1  # what ended a waiting sandbox may end the next one as well
_PER_SANDBOX = 4  # its channel, stdout, stderr and a pidfd

State = Literal["starting", "ready", "leased", "recycling", "dead"]


class Slot:
    """Owns a fork server and talks to it; calls `on_change` when ready and when dead.

    Raises OSError when the zygote cannot accept the order.
    """

    def __init__(
        self,
        spawner: Spawner,
        launch: Launch,
        number: int,
        group: Group,
        poller: Poller,
        on_change: Callable[[Slot], None],
    ) -> None:
        self.state: State = "starting"
        self.error = ""
        self.closed = False
        self.has_served = False  # a sandbox was ready here before
        self.sandbox: LocalSandbox | None = None
        self.disk_mb = launch.disk_mb
        self.group = group
        self._launch = launch
        self._poller = poller
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._descriptors: list[int] = []
        self._unsent = bytearray()
        self._pause: asyncio.TimerHandle | None = None
        self.pid = 0
        self._pidfd = -1
        entrances = group.entrances()
        try:
            self._control, theirs = socket.socketpair()
            with contextlib.ExitStack() as on_failure, theirs:
                on_failure.callback(self._control.close)
                spawner.spawn(number, theirs, entrances)
                on_failure.pop_all()
        finally:
            for entrance in entrances:
                os.close(entrance)
        self._control.setblocking(False)
        self._send(b"fork %d\n" % self.disk_mb)
        self._loop.add_reader(self._control.fileno(), self._on_control)

    # ------------------------------------------------------------ called by the pool

    def lease(self, limits: Limits) -> LocalSandbox:
        """Return the waiting sandbox; the caller must kill the sandbox and wait for its end.

        Raises OSError when the kernel refuses the limits.
        """
        self.group.set_limits(limits.memory_mb, limits.processes)
        if self.state != "ready" or self.sandbox is None:
            raise SandboxUnavailable(f"slot is {self.state}")
        self.state = "leased"
        self._send(b"fork %d\n" % self.disk_mb)
        return self.sandbox

    def give_back(self, sandbox: LocalSandbox) -> None:
        """Kill a leased sandbox, unless the sandbox has already ended."""
        if self.sandbox is sandbox:
            self.state = "recycling"
            sandbox.kill()

    def refit(self, disk_mb: int) -> None:
        """Replace the waiting sandbox by a sandbox with another disk size."""
        self.disk_mb = disk_mb
        if self.sandbox is not None:
            self.state = "recycling"
            self._send(b"fork %d\n" % disk_mb)
            self.sandbox.kill()

    def close(self) -> None:
        """Kill the fork server; the kernel kills its descendants."""
        self.closed = True
        self._die("closed")

    def wait_closed(self) -> None:
        """Block until the killed processes are gone, then remove the cgroup."""
        if self._pidfd >= 0:
            if not _wait_gone(self._pidfd, _END_SECONDS):
                # Without namespaces, the fork server was not killed and cleans up first.
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                _wait_gone(self._pidfd, _END_SECONDS)
            os.close(self._pidfd)
            self._pidfd = -1
        self.group.close()

    # ------------------------------------------------------------ messages with the fork server

    def _send(self, line: bytes = b"") -> None:
        """Send an order and the unsent rest of earlier orders; the rest follows when possible."""
        self._unsent += line
        try:
            if self._unsent:
                del self._unsent[: self._control.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # the fork server is gone, as `_on_control` will find
        if self._unsent:
            self._loop.add_writer(self._control.fileno(), self._send)
        elif not line:
            self._loop.remove_writer(self._control.fileno())

    def _on_control(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 16)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        self._descriptors += descriptors
        if not data:
            self._die(self.error or "the forkserver died")
            return
        self._received += data
        while b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            kind, _, rest = line.decode("utf-8", "replace").partition(" ")
            self._on_message(kind, rest)

    def _on_message(self, kind: str, rest: str) -> None:
        if kind == "born" and not self._descriptors:
            self._die("no descriptor is left")
        elif kind == "born":
            self.pid, self._pidfd = int(rest), self._descriptors.pop(0)
        elif kind == "failed":
            self.error = rest
            self._die(rest)
        elif kind == "ready" and len(self._descriptors) < _PER_SANDBOX:
            self._die("no descriptor is left")
        elif kind == "ready":
            lent = self._descriptors[:_PER_SANDBOX]
            del self._descriptors[:_PER_SANDBOX]
            self.sandbox = LocalSandbox(
                f"sb_{secrets.token_hex(12)}", lent, self.group, self._launch, self._poller
            )
            if int(rest) == self.disk_mb:
                self.state, self.has_served = "ready", True
                self._on_change(self)
            else:
                self.refit(self.disk_mb)
        elif self.sandbox is not None:
            sandbox, self.sandbox = self.sandbox, None
            self.group.set_weight(AWAKE)  # the next sandbox is being forked
            if self.state == "ready":  # no lease has ordered the next one
                self._pause = self._loop.call_later(_PAUSE_SECONDS, self._order_another)
            if self.state != "dead":
                self.state = "recycling"
            status, cpu_microseconds, max_rss_kb = map(int, rest.split())
            sandbox.on_exit(status, cpu_microseconds / 1e6, max_rss_kb)

    def _order_another(self) -> None:
        self._send(b"fork %d\n" % self.disk_mb)

    def _die(self, why: str) -> None:
        if self.state == "dead":
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._control.close()
        if self._launch.contained and self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            sandbox.on_lost(f"its forkserver is gone: {why}")
        self.error = self.error or why
        self.state = "dead"
        self._on_change(self)


def _wait_gone(pidfd: int, seconds: float) -> bool:
    """Block until a pidfd's process has ended; False on timeout."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
