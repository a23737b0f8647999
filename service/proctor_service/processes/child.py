"""Child processes of low priority: their start by the listening process, and their own end.

`connection.py` has the messages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor_service.processes.connection import (
    Connection,
    Message,
    Receive,
    take_messages,
)
from proctor_service.settings.garbage import spare_collector

log = logging.getLogger(__name__)

NICE = 10
"""Rewards come first: sandboxes have a nice value of 5."""
_READ_BYTES = 1 << 20
_AUTOGROUP = Path("/proc/self/autogroup")
_TRIES, _PAUSE_SECONDS = 10, 0.1


class Child:
    """Child process and its connection; the process ends with its connection."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.connection: Connection
        self._process = process
        self._lost = asyncio.Event()

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        receive: Receive,
        lost: Callable[[Child], None] = lambda _: None,
    ) -> Child:
        """Start a process. `lost`: called when its end of the connection is gone. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    str(theirs.fileno()),
                    env=dict(environment),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=sys.__stderr__,
                    pass_fds=(theirs.fileno(),),
                    # Ctrl-C is for the listening process, from the first moment. uvloop starts
                    # processes in a new session, but not in a new group of this one.
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        child = cls(process)

        def end() -> None:
            child._lost.set()
            lost(child)

        try:
            child.connection = await Connection.over(ours, receive, end)
        except BaseException:
            ours.close()
            process.kill()
            raise
        return child

    @property
    def is_lost(self) -> bool:
        """True if the connection is gone."""
        return self._lost.is_set()

    async def ended(self) -> None:
        """Wait for the end of the process and of its messages."""
        await self._process.wait()
        await self._lost.wait()

    async def kill(self) -> None:
        """End the process at once."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self.connection.close()


class Incoming:
    """Messages that a child process receives; the wait blocks.

    `last_bytes`: size of the last reading.
    """

    def __init__(self, end: socket.socket) -> None:
        self.is_open = True
        self.last_bytes = 0
        self._end = end
        self._bytes = bytearray()

    def messages(self, seconds: float) -> Iterator[Message]:
        """Yield the messages received within a time, or at once where some have come."""
        self.last_bytes = 0
        if not select.select([self._end], [], [], max(seconds, 0.0))[0]:
            return
        try:
            data = self._end.recv(_READ_BYTES)
        except ConnectionError:
            data = b""
        self.is_open = bool(data)
        self.last_bytes = len(data)
        self._bytes += data
        yield from take_messages(self._bytes)


def _give_way() -> None:
    """Lower the priority of this process, and of its session: the scheduler weighs sessions first.

    See "The autogroup feature" in sched(7). The kernel takes few such changes at a time from ordinary users.
    """
    os.nice(NICE)
    for _ in range(_TRIES):
        try:
            _AUTOGROUP.write_text(str(NICE))
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
        except OSError:  # a kernel without autogroups
            return
        else:
            return


def set_up(descriptor: str) -> tuple[socket.socket, Incoming, list[Any]]:
    """Set up this child process, and wait for its first messages.

    `descriptor`: of the connection. Returns the connection, its further messages, and the first
    messages: empty if the connection ended. Signals of a terminal are for the listening process.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _give_way()
    spare_collector()
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s")
    end = socket.socket(fileno=int(descriptor))
    end.setblocking(True)
    incoming = Incoming(end)
    first: list[Message] = []
    while incoming.is_open and not first:
        first += incoming.messages(60.0)
    return end, incoming, first
