"""Repeated requests: by tenant and Idempotency-Key, the batch that the first one started.

A repeated request gets the first one's answer, and joins what is under way. Refusals are not kept:
they were no answer. Of an answer in which some items carry a retryable error, the judged items
stand and the others are judged anew when it is asked for again: a client that sends the same
request once more wants those items, and must not see other verdicts for the rest. Memory is
bounded: of the finished answers the oldest go first.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from proctor_service.api.batch import Batch
from proctor_service.errors import InvalidRequest

LONGEST_KEY = 255
HEADER = "idempotency-key"
ENTRY_BYTES = 500


@dataclass(frozen=True, slots=True)
class RequestName:
    """What makes a request the same as an earlier one, and what it must agree in."""

    tenant: str
    key: str
    fingerprint: bytes


def name_request(tenant: str, key: str, body: bytes | bytearray) -> RequestName:
    """The name of a request with a key. Raises InvalidRequest for a key that is none."""
    if not key or len(key) > LONGEST_KEY:
        raise InvalidRequest(f"{HEADER}: a key has 1 to {LONGEST_KEY} characters")
    return RequestName(tenant, key, hashlib.blake2b(body, digest_size=20).digest())


@dataclass(slots=True)
class _Remembered:
    name: RequestName
    batch: Batch
    until: float
    size_bytes: int | None = None  # once it is done


class Ledger:
    """Which batch each key stands for."""

    def __init__(
        self, keep_seconds: float, max_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._keep_seconds = keep_seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], _Remembered] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, name: RequestName) -> Batch | None:
        """The batch of an earlier request. Raises InvalidRequest when that had another body."""
        self._forget_old()
        found = self._kept.get((name.tenant, name.key))
        if found is None:
            return None
        if found.name.fingerprint != name.fingerprint:
            raise InvalidRequest(f"{HEADER}: this key was used for a request with another body")
        return found.batch

    def remember(self, name: RequestName, batch: Batch) -> None:
        """Keeps a batch under its key, in place of one that it continues."""
        self._drop((name.tenant, name.key))
        until = self._clock() + self._keep_seconds
        kept = _Remembered(name, batch, until)
        self._kept[name.tenant, name.key] = kept
        batch.when_done(partial(self._weigh, kept))

    def _weigh(self, kept: _Remembered) -> None:
        where = (kept.name.tenant, kept.name.key)
        if self._kept.get(where) is kept:
            kept.size_bytes = kept.batch.size_bytes + ENTRY_BYTES
            self._bytes += kept.size_bytes
            self._forget_old()

    def _forget_old(self) -> None:
        """Drops what is too old, then the oldest while there is too much; never what runs."""
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
