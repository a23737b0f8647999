"""Store of jobs by the names of their requests, for repeated requests.

With an Idempotency-Key a repeated request gets the answer of the first request, and joins work in
progress. Error responses are not stored. If some items of an answer have a retryable error, a
repeated request keeps the judged items and judges the other items again: the client wants these
items, and must see the same verdicts for the rest.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Generic

from proctor_service.errors import InvalidRequest
from proctor_service.http.body import KEY_HEADER, RequestName
from proctor_service.http.jobs import Job, R

KEEP_SECONDS = 3600.0
"""A client that repeats a request does so within minutes, also after an outage."""
KEEP_BYTES = 256 << 20
ENTRY_BYTES = 500
"""Memory of a stored job, besides its results."""


@dataclass(slots=True, eq=False)
class _Entry(Generic[R]):
    key: Hashable
    fingerprint: bytes
    job: Job[R]
    until: float
    size_bytes: int | None  # None: unfinished, to be kept


class JobStore(Generic[R]):
    """Jobs by the names of their requests, bounded in time and memory: the oldest go first.

    `remember` and `find` are for a client's own key: a repeated request joins the unfinished job,
    or gets the results. Unfinished jobs are kept. `put` and `pop` are for equal requests without a
    key: each job serves one repeated request, and the oldest jobs are cancelled beyond the bounds.
    """

    def __init__(
        self,
        keep_seconds: float = KEEP_SECONDS,
        max_bytes: int = KEEP_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keep_seconds = keep_seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[_Entry[R], None] = OrderedDict()
        self._by_key: dict[Hashable, list[_Entry[R]]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: RequestName) -> Job[R] | None:
        """Return the job of an earlier request. Raises InvalidRequest if the bodies differ."""
        self._forget_old()
        found = self._by_key.get((name.tenant, name.key))
        if found is None:
            return None
        if found[0].fingerprint != name.fingerprint:
            raise InvalidRequest(f"{KEY_HEADER}: this key was used for a request with another body")
        return found[0].job

    def remember(self, name: RequestName, job: Job[R]) -> None:
        """Store a job under its key, in place of the earlier job."""
        key = (name.tenant, name.key)
        for earlier in list(self._by_key.get(key, [])):
            self._remove(earlier)
        entry = self._add(key, name, job)
        job.when_done(partial(self._weigh, entry, ENTRY_BYTES))

    def put(self, name: RequestName, job: Job[R], entry_bytes: int) -> None:
        """Store a job for one repeated request, with at least `entry_bytes` of memory."""
        self._weigh(self._add(name, name, job), entry_bytes)

    def pop(self, name: RequestName) -> Job[R] | None:
        """Remove and return the oldest job that was put under this name; None without a job."""
        self._forget_old()
        found = self._by_key.get(name)
        if found is None:
            return None
        entry = found[0]
        self._remove(entry)
        return entry.job

    def _add(self, key: Hashable, name: RequestName, job: Job[R]) -> _Entry[R]:
        until = self._clock() + self._keep_seconds
        entry = _Entry(key, name.fingerprint, job, until, None)
        self._entries[entry] = None
        self._by_key.setdefault(key, []).append(entry)
        return entry

    def _weigh(self, entry: _Entry[R], entry_bytes: int) -> None:
        if entry in self._entries:
            # The time begins now: the work may have taken longer.
            entry.until = self._clock() + self._keep_seconds
            self._entries.move_to_end(entry)
            entry.size_bytes = entry.job.size_bytes + entry_bytes
            self._bytes += entry.size_bytes
            self._forget_old()

    def _forget_old(self) -> None:
        """Remove the expired jobs, then the oldest jobs above the memory limit."""
        now = self._clock()
        gone: list[_Entry[R]] = []
        left = self._bytes
        for entry in self._entries:
            if entry.until > now and left <= self._max_bytes:
                break
            if entry.size_bytes is not None:
                gone.append(entry)
                left -= entry.size_bytes
        for entry in gone:
            self._remove(entry)
            entry.job.cancel("its client did not come back")

    def _remove(self, entry: _Entry[R]) -> None:
        del self._entries[entry]
        self._bytes -= entry.size_bytes or 0
        same = self._by_key[entry.key]
        same.remove(entry)
        if not same:
            del self._by_key[entry.key]
