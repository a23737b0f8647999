"""Idempotency store: finds the work of an earlier request by tenant and Idempotency-Key.

A repeated request gets the answer of the first request, and joins work in progress. Error responses
are not stored. If some items of an answer have a retryable error, a repeated request keeps the
judged items and judges the other items again: the client wants these items, and must see the same
verdicts for the rest. Memory is bounded: the oldest finished answers are removed first.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from starlette.datastructures import Headers

from proctor_service.errors import AmbiguousKey, InvalidRequest

LONGEST_KEY = 255
HEADER = "idempotency-key"
ENTRY_BYTES = 500
HASHED_IN_THREAD_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RequestName:
    """Identity of a request: tenant and key. The fingerprint of the body must match as well."""

    tenant: str
    key: str
    fingerprint: bytes


def name_request(tenant: str, key: str, body: bytes | bytearray) -> RequestName:
    """Return the name of a request with a key. Raises InvalidRequest for an invalid key."""
    if not key or len(key) > LONGEST_KEY:
        raise InvalidRequest(f"{HEADER}: a key has 1 to {LONGEST_KEY} characters")
    return RequestName(tenant, key, hashlib.blake2b(body, digest_size=20).digest())


def key_of(headers: Headers) -> str | None:
    """Return the key of a request, if any. Raises AmbiguousKey for several keys."""
    keys = headers.getlist(HEADER)
    if len(keys) > 1:
        raise AmbiguousKey(f"{HEADER}: the request has {len(keys)} of them")
    return keys[0] if keys else None


async def name_any_request(
    tenant: str, key: str | None, body: bytes | bytearray
) -> RequestName | None:
    """Return the name of a request, None without a key; a thread hashes a large body."""
    if key is None:
        return None
    if len(body) < HASHED_IN_THREAD_BYTES:
        return name_request(tenant, key, body)
    return await asyncio.to_thread(name_request, tenant, key, body)


class Work(Protocol):
    """Work under a key: a batch, or the creation of a sandbox."""

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the finished answer, in bytes."""

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` when the work is done, or at once if it is done already."""


W = TypeVar("W", bound=Work)


@dataclass(slots=True)
class _Remembered(Generic[W]):
    name: RequestName
    work: W
    until: float
    size_bytes: int | None = None  # set when the work is done


class IdempotencyStore(Generic[W]):
    """Store of the work under each key."""

    def __init__(
        self, keep_seconds: float, max_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._keep_seconds = keep_seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], _Remembered[W]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, name: RequestName) -> W | None:
        """Return the work of an earlier request. Raises InvalidRequest if the bodies differ."""
        self._forget_old()
        found = self._kept.get((name.tenant, name.key))
        if found is None:
            return None
        if found.name.fingerprint != name.fingerprint:
            raise InvalidRequest(f"{HEADER}: this key was used for a request with another body")
        return found.work

    def remember(self, name: RequestName, work: W) -> None:
        """Store work under its key, in place of the earlier work."""
        self._drop((name.tenant, name.key))
        until = self._clock() + self._keep_seconds
        kept = _Remembered(name, work, until)
        self._kept[name.tenant, name.key] = kept
        work.when_done(partial(self._weigh, kept))

    def _weigh(self, kept: _Remembered[W]) -> None:
        where = (kept.name.tenant, kept.name.key)
        if self._kept.get(where) is kept:
            kept.size_bytes = kept.work.size_bytes + ENTRY_BYTES
            self._bytes += kept.size_bytes
            self._forget_old()

    def _forget_old(self) -> None:
        """Remove expired work, then the oldest work above the memory limit; keep running work."""
        now = self._clock()
        gone: list[tuple[str, str]] = []
        left = self._bytes
        for where, kept in self._kept.items():
            if kept.until > now and left <= self._max_bytes:
                break
            if kept.size_bytes is not None:
                gone.append(where)
                left -= kept.size_bytes
        for where in gone:
            self._drop(where)

    def _drop(self, where: tuple[str, str]) -> None:
        kept = self._kept.pop(where, None)
        if kept is not None and kept.size_bytes is not None:
            self._bytes -= kept.size_bytes
