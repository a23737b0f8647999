"""The client of Redis, which an optional extra brings: connections, and answers in bounded time."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from proctor_service.errors import StartError

ANSWER_SECONDS = 1.0
RedisDown = RedisError, OSError, TimeoutError
"""Errors of a Redis in trouble: down, slow or full."""


def connect(url: str) -> Redis:
    """Return a client without connections. Raises StartError for an invalid URL."""
    try:
        # The library's own retries would take too long here.
        return Redis.from_url(
            url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS, retry=None
        )
    except ValueError:  # its message may contain a part of the password
        raise StartError(
            "PROCTOR_REDIS_URL: it is not like redis://:password@host:6379/0"
        ) from None


async def answer_of(pending: Any) -> Any:
    """Await an answer for 2 s at most. Raises `RedisDown`.

    The library's types leave open if an answer is awaitable.
    """
    async with asyncio.timeout(2 * ANSWER_SECONDS):
        return await pending
