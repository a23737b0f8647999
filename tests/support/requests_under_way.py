"""Requests that are under way while a test does something else."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
from anyio.from_thread import start_blocking_portal
from harness import Service
from waits import WAIT_SECONDS


@contextmanager
def asking(
    service: Service, path: str, body: Any, **options: Any
) -> Iterator[Future[httpx.Response]]:
    """Send a request in a thread of its own; `options` are those of its client."""
    with service.client(**options) as client, ThreadPoolExecutor(1) as pool:
        yield pool.submit(client.post, path, json=body)


@contextmanager
def hanging_up(service: Service, path: str, body: Any, **headers: str) -> Iterator[None]:
    """Send a request, the client of which hangs up at the end of the block."""

    async def ask() -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client:
            await client.post(f"{service.url}{path}", json=body, headers=headers)

    with start_blocking_portal() as portal:
        asked = portal.start_task_soon(ask)
        yield
        asked.cancel()
