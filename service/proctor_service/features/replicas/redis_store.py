"""Shared store of the replicas in Redis: hash fields by name, and only the first value counts.

Without Redis every replica works alone. So `load` and `store_first` raise no errors if Redis is down,
slow or full: the store pauses for 5 s, reports the failure in the log and the metrics, and answers
without shared data. Write access to this Redis allows forged rewards, so only the service may have
access.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from redis.exceptions import AuthenticationError, ResponseError

from proctor_service.errors import StartError
from proctor_service.redis_client import RedisDown, answer_of, connect

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_SECONDS = 5.0
TRIES = 2
"""Attempts per request: after its own stall, a replica finds all its requests overdue."""
PREFIX = b"proctor:"


class RedisStore:
    """Store of fields for `keep_seconds`; `on_failure` is called for each failure."""

    def __init__(
        self,
        url: str,
        keep_seconds: float,
        on_failure: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the client. Raises StartError for an invalid URL."""
        self._redis = connect(url)
        self._where = urlsplit(url).hostname
        self._password = unquote(urlsplit(url).password or "")
        self._keep_seconds = max(1, round(keep_seconds))
        self._on_failure = on_failure
        self._clock = clock
        self._paused_until = 0.0
        self._away = False

    @property
    def up(self) -> bool:
        """True unless a request has failed since the last successful write."""
        return not self._away

    async def open(self) -> None:
        """Ping Redis once: a wrong address shows at the start, before the first reward.

        Raises StartError if Redis refuses the client. An unreachable Redis is only logged, since
        Redis may come back.
        """
        try:
            await answer_of(self._redis.ping())
        except (AuthenticationError, ResponseError) as error:
            # Old versions repeat an unknown command, with the password.
            message = str(error).replace(self._password, "***") if self._password else str(error)
            raise StartError(
                f"PROCTOR_REDIS_URL: Redis at {self._where} refuses: {message}"
            ) from None
        except TypeError as error:  # an unknown option of the URL
            raise StartError(f"PROCTOR_REDIS_URL: {error}") from None
        except RedisDown as error:
            self._away = True
            where = {"setting": "PROCTOR_REDIS_URL", "host": self._where, "why": str(error)}
            log.error("Redis cannot be reached; this replica goes on by itself", extra=where)

    async def load(self, name: bytes) -> Mapping[bytes, bytes]:
        """Return all fields under a name; empty if Redis is down."""

        async def loaded() -> Mapping[bytes, bytes]:
            found: Mapping[bytes, bytes] = await answer_of(self._redis.hgetall(_key(name)))
            return found

        return await self._unless_away(loaded, {})

    async def store_first(
        self, name: bytes, fields: Mapping[bytes, bytes]
    ) -> Mapping[bytes, bytes]:
        """Set the missing fields; return the stored values, or `fields` without Redis."""

        async def settled() -> Mapping[bytes, bytes]:
            async with self._redis.pipeline(transaction=True) as pipe:
                for field, value in fields.items():
                    pipe.hsetnx(_key(name), field, value)
                pipe.expire(_key(name), self._keep_seconds)
                pipe.hmget(_key(name), list(fields))
                values: list[bytes] = (await pipe.execute())[-1]
            if self._away:  # only a successful write counts, since a full Redis still answers reads
                log.info("Redis answers again", extra={"host": self._where})
                self._away = False
            return dict(zip(fields, values, strict=True))

        return await self._unless_away(settled, fields)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def _unless_away(self, ask: Callable[[], Awaitable[T]], otherwise: T) -> T:
        if self._clock() < self._paused_until:
            return otherwise
        failure: Exception | None = None
        for _ in range(TRIES):
            try:
                answer: T = await answer_of(ask())
                return answer
            except RedisDown as error:
                failure = error
        self._on_failure()
        self._paused_until = self._clock() + PAUSE_SECONDS
        if not self._away:
            why = {"host": self._where, "why": type(failure).__name__}
            log.warning("Redis does not answer; this replica goes on by itself", extra=why)
        self._away = True
        return otherwise


def _key(name: bytes) -> bytes:
    return PREFIX + name
