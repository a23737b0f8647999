"""Store of tasks by the names of their requests, for repeated requests.

With an Idempotency-Key a repeated request gets the answer of the first request, and joins work in
progress. Error responses are left out. If some items of an answer have a retryable error, a repeated
request keeps the judged items and judges the other items again: the client wants these items, and must
see the same verdicts for the rest.
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
from proctor_service.http.responses import R, RequestTask

STORED_BYTES = 500
"""Memory of a stored task, besides its results."""


@dataclass(slots=True, eq=False)
class _StoredTask(Generic[R]):
    key: Hashable
    fingerprint: bytes
    task: RequestTask[R]
    until: float
    size_bytes: int | None  # None: unfinished, to be kept


KEEP_SECONDS = 3600.0
"""A client repeats a request within minutes, also after an outage."""
KEEP_BYTES = 256 << 20


class TaskStore(Generic[R]):
    """Tasks by the names of their requests, bounded in time and memory: the oldest go first.

    `remember` and `find` are for a client's own key: a repeated request joins the unfinished task, or
    gets the results. Unfinished tasks are kept. `put` and `pop` are for equal requests without a key:
    each task serves a single repeated request, and the oldest tasks are cancelled beyond the bounds.
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
        self._stored: OrderedDict[_StoredTask[R], None] = OrderedDict()
        self._by_key: dict[Hashable, list[_StoredTask[R]]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._stored)

    def find(self, name: RequestName) -> RequestTask[R] | None:
        """Return the task of an earlier request. Raises InvalidRequest if the bodies differ."""
        self._forget_old()
        found = self._by_key.get((name.tenant, name.key))
        if found is None:
            return None
        if found[0].fingerprint != name.fingerprint:
            raise InvalidRequest(f"{KEY_HEADER}: this key was used for a request with another body")
        return found[0].task

    def remember(self, name: RequestName, task: RequestTask[R]) -> None:
        """Store a task under its key, in place of the earlier task."""
        key = (name.tenant, name.key)
        for earlier in list(self._by_key.get(key, [])):
            self._remove(earlier)
        stored = self._add(key, name, task)
        task.when_done(partial(self._weigh, stored, STORED_BYTES))

    def put(self, name: RequestName, task: RequestTask[R], least_bytes: int) -> None:
        """Store a task for a single repeated request, with at least `least_bytes` of memory."""
        self._weigh(self._add(name, name, task), least_bytes)

    def pop(self, name: RequestName) -> RequestTask[R] | None:
        """Remove and return the oldest task put under this name; None without a task."""
        self._forget_old()
        found = self._by_key.get(name)
        if found is None:
            return None
        stored = found[0]
        self._remove(stored)
        return stored.task

    def _add(self, key: Hashable, name: RequestName, task: RequestTask[R]) -> _StoredTask[R]:
        until = self._clock() + self._keep_seconds
        stored = _StoredTask(key, name.fingerprint, task, until, None)
        self._stored[stored] = None
        self._by_key.setdefault(key, []).append(stored)
        return stored

    def _weigh(self, stored: _StoredTask[R], least_bytes: int) -> None:
        if stored in self._stored:
            # The time begins now: the work may have taken longer.
            stored.until = self._clock() + self._keep_seconds
            self._stored.move_to_end(stored)
            stored.size_bytes = stored.task.size_bytes + least_bytes
            self._bytes += stored.size_bytes
            self._forget_old()

    def _forget_old(self) -> None:
        """Remove the expired tasks, then the oldest tasks above the memory limit."""
        now = self._clock()
        gone: list[_StoredTask[R]] = []
        left = self._bytes
        for stored in self._stored:
            if stored.until > now and left <= self._max_bytes:
                break
            if stored.size_bytes is not None:
                gone.append(stored)
                left -= stored.size_bytes
        for stored in gone:
            self._remove(stored)
            stored.task.cancel("its client did not come back")

    def _remove(self, stored: _StoredTask[R]) -> None:
        del self._stored[stored]
        self._bytes -= stored.size_bytes or 0
        same = self._by_key[stored.key]
        same.remove(stored)
        if not same:
            del self._by_key[stored.key]
