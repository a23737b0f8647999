"""A port of this machine that leads to one of a pod, whose loopback is its own: `kubectl port-forward`."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from waits import WAIT_SECONDS

from proctor_service.sandbox.linux import kernel

PIECE_BYTES = 1 << 16


@contextmanager
def forwarded(pid: int, port: int) -> Iterator[str]:
    """Yields the URL of a port of this machine; what comes there goes to the network of the process `pid`."""
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)  # in this network
    started = threading.Event()
    found: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        over = asyncio.Event()
        found.append((asyncio.get_running_loop(), over))
        async with await asyncio.start_server(connected, sock=listener, start_serving=True):
            started.set()
            await over.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            back, there = await asyncio.open_connection("127.0.0.1", port)
            try:
                await asyncio.gather(_pass_on(reader, there), _pass_on(back, writer))
            finally:
                there.close()
        writer.close()

    def in_its_network() -> None:
        kernel.check(kernel.libc.setns(namespace, kernel.NEWNET), "setns")  # of this thread alone
        asyncio.run(run())

    thread = threading.Thread(target=in_its_network, name="port of a pod", daemon=True)
    thread.start()
    try:
        assert started.wait(WAIT_SECONDS), "nobody listens"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        [(loop, over)] = found
        loop.call_soon_threadsafe(over.set)
        thread.join(WAIT_SECONDS)
        os.close(namespace)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
