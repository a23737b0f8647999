"""The real app on a real server in a thread, with a scripted judge or a real one."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import httpx
import pytest
import uvicorn.server
from fastapi import FastAPI
from waits import WAIT_SECONDS

from proctor_service.app import Parts, build_app, make_server
from proctor_service.evaluate import Judge
from proctor_service.http import server as server_module
from proctor_service.http.server import Server
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import (
    DEFAULT,
    Asleep,
    Backend,
    Limits,
    Sandbox,
    Sandboxes,
    StatefulSandbox,
    Traits,
)
from proctor_service.settings import Settings

_PAUSE_SECONDS = 0.005


class NoBackend:
    """A backend without sandboxes, for judges that need none. Notes that it was closed."""

    def __init__(self, traits: Traits | None = None) -> None:
        self._traits = traits or Traits("none", languages=("python", "bash"))
        self.opened = False
        self.closed = False

    @property
    def traits(self) -> Traits:
        """As given."""
        return self._traits

    async def start(self) -> None:
        """Nothing to make ready."""
        self.opened = True

    def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = 0
    ) -> AbstractAsyncContextManager[Sandbox]:
        """A scripted judge leases nothing."""
        raise AssertionError("a scripted judge leases no sandbox")

    def open(
        self, limits: Limits, environment: str = DEFAULT, tags: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[StatefulSandbox]:
        """None of these either."""
        raise AssertionError("a backend without sandboxes keeps none")

    async def close(self) -> None:
        """Nothing to end."""
        self.closed = True

    def when_asleep(self, tell: Asleep) -> None:
        """Nothing here sleeps."""

    def census(self) -> dict[str, int]:
        """None at all."""
        return {"running": 0}


@dataclass(frozen=True)
class Service:
    """A running service."""

    url: str
    app: FastAPI
    parts: Parts
    server: Server
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread

    def client(self, **options: Any) -> httpx.Client:
        """A client for it; close it."""
        return httpx.Client(base_url=self.url, timeout=4 * WAIT_SECONDS, trust_env=False, **options)

    def call(self, function: Callable[[], Any]) -> Any:
        """Calls a function in the service's loop, and gives back what it returns."""

        async def called() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result(WAIT_SECONDS)

    def drain(self) -> None:
        """Begins the drain, as the signal does, and waits until it has begun."""
        self.call(lambda: self.server.handle_exit(signal.SIGTERM, None))
        self.until(lambda: self.parts.core.queue.draining)

    def until(self, condition: Callable[[], bool], *, pause_seconds: float = 0) -> None:
        """Waits until the condition holds, looking at every turn of the service's loop.

        With a pause, for a condition that lasts, the loop leaves the processor to other services.
        """

        async def watched() -> None:
            async with asyncio.timeout(WAIT_SECONDS):
                while not condition():  # noqa: ASYNC110  what is watched has no event
                    await asyncio.sleep(pause_seconds)

        asyncio.run_coroutine_threadsafe(watched(), self.loop).result(WAIT_SECONDS + 1)


async def passes(submission: Submission, backend: Sandboxes) -> Judgement:
    """A judge that is always content."""
    return Judgement("passed", passed=1, total=1)


@contextmanager
def running_service(
    settings: Settings | None = None,
    *,
    judge: Judge | None = passes,
    backend: Backend | None = None,
    port: int = 0,
) -> Iterator[Service]:
    """Serves on a free port, or on `port`, until the block ends. `judge=None`: the real one."""
    settings = (settings or Settings()).model_copy(update={"port": port})
    app = build_app(settings, backend or (NoBackend() if judge else None), judge)
    server = make_server(app)
    started = threading.Event()
    found: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        found.append(asyncio.get_running_loop())
        serving = asyncio.create_task(server.serve())
        while not (server.started or serving.done()):  # noqa: ASYNC110  uvicorn has no event
            await asyncio.sleep(0)
        started.set()
        await serving

    factory = server.config.get_loop_factory()

    def in_thread() -> None:
        try:
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(run())
        finally:
            started.set()

    thread = threading.Thread(target=in_thread, name="service", daemon=True)
    thread.start()
    assert started.wait(WAIT_SECONDS), "the service did not start"
    if server.start_error is not None:
        raise server.start_error
    assert server.started, "the service did not start"
    port = server.servers[0].sockets[0].getsockname()[1]
    service = Service(f"http://127.0.0.1:{port}", app, app.state.parts, server, found[0], thread)
    try:
        yield service
    finally:
        with _quick_shutdown():
            server.should_exit = True
            thread.join(WAIT_SECONDS)
        assert not thread.is_alive(), "the service did not stop"


@contextmanager
def _quick_shutdown() -> Iterator[None]:
    """Spares each test the pauses of a shutdown: those for late requests, and uvicorn's own."""
    quick = ModuleType("asyncio")
    quick.__dict__.update(asyncio.__dict__)
    quick.__dict__["sleep"] = lambda seconds: asyncio.sleep(min(seconds, _PAUSE_SECONDS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_module, "LAST_REQUESTS_SECONDS", 0.0)
        patch.setattr(uvicorn.server, "asyncio", quick)
        yield


class Gate:
    """A judge that holds every submission until it is let go; sources are noted as they pass."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.cancelled: list[str] = []
        self._open = False
        self._waiting: dict[str, asyncio.Event] = {}

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """Passes, once it is let go."""
        source = submission.source
        self.entered.append(source)
        if not self._open:
            try:
                await self._waiting.setdefault(source, asyncio.Event()).wait()
            except asyncio.CancelledError:
                self.cancelled.append(source)
                raise
        return Judgement("passed", passed=1, total=1, message=source)

    def release(self, source: str) -> None:
        """Lets one source go; in the service's loop."""
        self._waiting.setdefault(source, asyncio.Event()).set()

    def open(self) -> None:
        """Lets everything go from now on; in the service's loop."""
        self._open = True
        for event in self._waiting.values():
            event.set()


def free_ports(count: int) -> list[int]:
    """So many ports on loopback that nobody listens on."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def one_answer(connection: socket.socket) -> bytes:
    """The next answer with a Content-Length, however many pieces it comes in."""
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None and len(body) >= int(length[1]):
            break
    return answer


def exec_request(*sources: str, **fields: Any) -> dict[str, Any]:
    """The body of a request that judges these sources as they stand."""
    return {
        "submissions": [{"completion": source} for source in sources],
        "grader": {"kind": "exec"},
        "extract": "none",
        **fields,
    }
