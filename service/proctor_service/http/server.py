"""HTTP server: uvicorn with connection limits, and a drain before the listening sockets close."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from types import FrameType
from typing import Protocol

import uvicorn
from fastapi import FastAPI

from proctor_service.errors import StartError
from proctor_service.http.heads import MOST_UNFINISHED, HeadQueue, HttpProtocol, ServerConfig
from proctor_service.http.listening import ignore_new_connections
from proctor_service.sandbox.open_files import allowed_open_files
from proctor_service.settings import OWN_OPEN_FILES, SANDBOX_OPEN_FILES, Settings
from proctor_service.settings.event_loop import event_loop
from proctor_service.settings.threads import leave_threads

log = logging.getLogger(__name__)

ANSWERING_SECONDS = 2.0
"""Part of `grace_seconds` reserved for ending sandboxes and sending the last answers."""
KEEP_ALIVE_SECONDS = 75  # longer than clients keep idle connections, so that clients close first
BACKLOG = 2048
LEAST_CONNECTIONS = 64
LAST_REQUESTS_SECONDS = 0.25
LEAST_SECONDS = 1.0
"""Time for requests without an answer once no work runs, however long the work took."""
LOOK_SECONDS = 0.02
EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that stand for all addresses of the machine."""


class Service(Protocol):
    """The service behind the server."""

    async def open(self) -> None:
        """Start all parts. Raises StartError."""

    async def drain(self) -> None:
        """Refuse new work, and end the running work."""

    async def close(self) -> None:
        """End all parts."""


class Server(uvicorn.Server):
    """uvicorn server, draining while the sockets still listen.

    A new request during the drain gets a 503 instead of a refused connection. uvicorn alone would close
    its sockets first. A request still being read or prepared has until the end of the grace period, as
    running work has, and then gets a 503, too.
    """

    def __init__(
        self,
        config: ServerConfig,
        service: Service,
        grace_seconds: float,
        when_listening: Callable[[int], None],
    ) -> None:
        """`when_listening`: called with the port once the server listens."""
        super().__init__(config)
        self._grace_seconds = grace_seconds
        self._drain_ends_at = 0.0
        self.start_error: StartError | None = None
        self._service = service
        self._when_listening = when_listening
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._signals = 0

    @property
    def close_failed(self) -> bool:
        """True if a part of the app failed to close; known after `run`."""
        return bool(self.lifespan.shutdown_failed)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the service, then listen."""
        leave_threads()
        try:
            await self._service.open()
        except StartError as error:
            self.start_error = error
            self.should_exit = True
            try:
                await self._service.close()
            except Exception:  # the reason of the start's failure is what a user needs
                log.exception("a part of the service failed to close")
            return
        await super().startup(sockets)
        if self.started:
            self._when_listening(self.servers[0].sockets[0].getsockname()[1])

    async def main_loop(self) -> None:
        """Serve until a stop signal."""
        self._loop = asyncio.get_running_loop()
        if self._signals:  # a signal came during the start
            self._begin_drain()
        await super().main_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first signal; end the service at once on the second."""
        self._signals += 1
        if self._signals > 1:
            self.force_exit = self.should_exit = True
        elif self._loop is not None:
            # A signal handler runs between any two instructions, so the work moves to the loop.
            self._loop.call_soon_threadsafe(self._begin_drain)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the connections, then the service; a forced shutdown skips all waiting."""
        if self.started and not self.force_exit:
            await self._answer_all()
        if self.force_exit:
            for connection in list(self.server_state.connections):
                connection.transport.abort()
        await super().shutdown(sockets)

    async def _answer_all(self) -> None:
        """Refuse further requests, and answer the running ones; interrupt them at the end of the drain."""
        listeners = [each for server in self.servers for each in server.sockets]
        ignore_new_connections(listener.fileno() for listener in listeners)
        # Clients that have just connected still get the 503, and may try another replica.
        await asyncio.sleep(LAST_REQUESTS_SECONDS)
        for server in self.servers:
            server.close()
        now = asyncio.get_running_loop().time
        end = max(self._drain_ends_at, now() + LEAST_SECONDS)
        while not self.force_exit:
            for connection in self._connections():  # also one that was accepted last
                if not connection.lingers:
                    connection.shutdown()
            if not self._is_answering() or now() >= end:
                break
            await asyncio.sleep(LOOK_SECONDS)
        if self._is_answering() and not self.force_exit:
            count = len(self.server_state.tasks)
            log.warning("requests are interrupted", extra={"requests": count})
            for connection in self._connections():
                connection.interrupt()
            for task in list(self.server_state.tasks):
                task.cancel()

    def _connections(self) -> list[HttpProtocol]:
        return [each for each in self.server_state.connections if isinstance(each, HttpProtocol)]

    def _is_answering(self) -> bool:
        """Return True while a request is under way, or an answer on its way."""
        return bool(self.server_state.tasks) or not all(
            each.lingers for each in self._connections()
        )

    def _begin_drain(self) -> None:
        log.info("stopping; a second signal ends it at once")
        loop = asyncio.get_running_loop()
        self._drain_ends_at = loop.time() + self._grace_seconds
        self._draining = loop.create_task(self._drain())

    async def _drain(self) -> None:
        try:
            await self._service.drain()
        finally:
            self.should_exit = True


def browser_url(settings: Settings, port: int) -> str:
    """Return the service's URL for a browser, without a slash at its end."""
    if settings.advertise_url:
        return settings.advertise_url.rstrip("/")
    host = "127.0.0.1" if settings.host in EVERYWHERE else settings.host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_config(app: FastAPI, settings: Settings, sandboxes: int) -> ServerConfig:
    """Return the server's configuration. `sandboxes`: how many this process may have at once."""
    reserved = OWN_OPEN_FILES + SANDBOX_OPEN_FILES * sandboxes
    connections = max(LEAST_CONNECTIONS, allowed_open_files() - reserved)
    return ServerConfig(
        app,
        HeadQueue(min(MOST_UNFINISHED, connections // 2)),
        connections,
        host=settings.host,
        port=settings.port,
        loop=f"{event_loop.__module__}:{event_loop.__name__}",
        http=HttpProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(ANSWERING_SECONDS / 2)),
    )
