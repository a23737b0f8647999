"""A cable in front of a replica: TCP in and out, until it is cut, slowed down or goes dead.

`whole` passes bytes on. `slow` does so with a pause for each piece. `cut` breaks what is under way and
takes no connection. `dead` takes connections and swallows what comes, as a machine does that is gone
from the network.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from waits import WAIT_SECONDS

T = TypeVar("T")
State = Literal["whole", "slow", "cut", "dead"]

PIECE_BYTES = 1 << 16
PAUSE_SECONDS = 0.1


class Cable:
    """Listens at `url`, and leads to a port on loopback."""

    def __init__(self, room: CableRoom, port: int) -> None:
        self._room = room
        self._to = port
        self._state: State = "whole"
        self._mended = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        room.do(self._listen())

    @property
    def url(self) -> str:
        """Where it begins."""
        return f"http://127.0.0.1:{self.port}"

    def turn(self, state: State) -> None:
        """Changes what it does; `cut` breaks all that is under way."""
        self._room.do(self._turn(state))

    async def close(self) -> None:
        """Cuts it for good."""
        await self._turn("cut")

    async def _turn(self, state: State) -> None:
        self._state = state
        if state == "dead":
            self._mended.clear()
        else:
            self._mended.set()
        if state == "cut":
            if self._server is not None:
                self._server.close()
                self._server = None
            for writer in list(self._open):
                writer.transport.abort()
        elif self._server is None:
            await self._listen()

    async def _listen(self) -> None:
        self._mended.set()
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, reuse_address=True, backlog=1024
        )

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            await self._mended.wait()
            back, there = await asyncio.open_connection("127.0.0.1", self._to)
            self._open.add(there)
            await asyncio.gather(self._carry(reader, there), self._carry(back, writer))
        except OSError:
            pass
        finally:
            for each in filter(None, (writer, there)):
                self._open.discard(each)
                each.transport.abort() if each.transport.is_closing() else each.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(PIECE_BYTES):
            if self._state == "slow":
                await asyncio.sleep(PAUSE_SECONDS)
            await self._mended.wait()
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


class CableRoom:
    """The thread in which all cables run, until the block ends."""

    def __init__(self) -> None:
        self._cables: list[Cable] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def cable(self, port: int) -> Cable:
        """One that leads to this port."""
        self._cables.append(Cable(self, port))
        return self._cables[-1]

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Does something there, and waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for cable in self._cables:
            self.do(cable.close())
        self.do(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS)
        self._loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
