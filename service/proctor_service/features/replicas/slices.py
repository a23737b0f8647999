"""Slices of a batch, as the spreader sees them: items at peers, and the capacity of each peer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from proctor_service.scheduling.fair_share import PeerItem

POLL_SECONDS = 0.25
LATELY_SECONDS = 1.5
LEAD_SECONDS = 0.3
"""Work of a peer in advance, so its slots never wait for the next slice."""
SLICE_SECONDS = 0.15
MOST_IN_SLICE = 256


@dataclass(frozen=True, slots=True)
class Packed:
    """Request for the first `count` items of a slice: its headers and its body."""

    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    count: int


class Slices(Protocol):
    """Codec of slices; works are the portable works of the queue."""

    def headers(self, work: Any) -> dict[str, str]:
        """Return the headers of a request of the work's tenant."""

    def alike(self, one: Any, other: Any) -> bool:
        """Return True if both works, of the same job, may go in the same request."""

    def patience_seconds(self, work: Any) -> float:
        """Return the CPU seconds of the work at a peer, at most."""

    async def pack(self, works: Sequence[Any]) -> Packed:
        """Return the request for the first of these works, as many as fit."""

    def unpack(self, line: bytes, works: Sequence[Any]) -> tuple[int, Any]:
        """Return the index of a line's work and its result, or None to do the work here.

        The index is -1 for a line without a result. Raises ValueError for any other line.
        """


class SliceObserver(Protocol):
    """Counters. `outcome` of a slice: `answered`, `refused`, `lost` or `given_up`."""

    def slice_ended(self, outcome: str) -> None:
        """Count a slice."""

    def slice_items(self, outcome: str, items: int = 1) -> None:
        """Count items of slices: `judged`, `returned`, or `ended` (cancelled or late)."""


@dataclass(slots=True, eq=False)
class Peer:
    """A peer: its slots, whether it has free cores, its results per second, and its slices."""

    url: str
    slots: int = 0
    free: bool = False
    rate: float = 0.0
    heard: float = 0.0
    asked_at: float = 0.0
    rests_until: float = 0.0
    slices: set[Slice] = field(default_factory=set)
    capacity_request: asyncio.Task[None] | None = None
    results: int = 0
    counted_since: float = 0.0

    @property
    def outstanding(self) -> int:
        """Number of items without the peer's answer."""
        return sum(len(each.rest) for each in self.slices)

    def note_capacity(self, body: bytes, is_own: Callable[[str | None], bool]) -> None:
        """Note the peer's answer to /capacity: free cores count unless other work waits there.

        `is_own`: returns True for the fingerprint of this replica; a peer with another is never free.
        """
        self.free = False
        with contextlib.suppress(ValueError, TypeError, KeyError):
            status = json.loads(body)
            slots, busy, queued = int(status["slots"]), int(status["busy"]), int(status["queued"])
            self.slots = max(slots, 1)
            free = busy < slots and not queued
            if self.slices:  # the lead of another replica may wait there as well, but no more
                others = queued - self.outstanding
                free = others <= slots + self.rate * LEAD_SECONDS
            self.free = free and not status["draining"] and is_own(status.get("fingerprint"))

    def may_get(self, now: float) -> bool:
        """Return True if the peer was free when it was last asked, a moment ago."""
        asked_lately = now - self.asked_at <= LATELY_SECONDS
        return self.free and asked_lately and now >= self.rests_until

    def hear(self, now: float, results: int) -> None:
        """Note received results; the rate is their moving average."""
        self.heard = now
        self.results += results
        seconds = now - self.counted_since
        if seconds >= POLL_SECONDS or (not self.rate and self.results >= self.slots):
            rate = self.results / max(seconds, 0.001)
            self.rate = (self.rate + rate) / 2 if self.rate else rate
            self.results, self.counted_since = 0, now

    def wanted(self, surplus: int, replicas: int, guess_rate: float, now: float) -> int:
        """Return how many of the items in `surplus` the peer is to get now; 0 without results so
        far.

        `guess_rate`: results per second of a peer without results so far.
        """
        outstanding = self.outstanding
        share = max(surplus - self.slots, 0) / replicas
        rate = self.rate or guess_rate
        if outstanding:  # at most the peer's proven rate
            rate = min(rate, (self.results + self.slots) / max(now - self.counted_since, 0.001))
        room = self.slots + min(rate * LEAD_SECONDS, share)
        size = int(min(room - outstanding, surplus, MOST_IN_SLICE))
        least = max(1, min(rate * SLICE_SECONDS, max(self.slots, room / 4)))
        return size if size >= min(least, surplus) else 0


@dataclass(slots=True, eq=False)
class Slice:
    """Items on their way to a peer. `rest`: the items without a result, by index."""

    sent: float
    task: asyncio.Task[None] | None = None
    rest: dict[int, PeerItem] = field(default_factory=dict)
    indices: dict[PeerItem, int] = field(default_factory=dict)
    outcome: str = "answered"


async def lines_of(response: httpx.Response) -> AsyncIterator[list[bytes]]:
    """Yield the complete lines of each piece. Only a line feed ends a line, unlike in httpx."""
    begun: list[bytes] = []
    async for piece in response.aiter_raw():
        first, *others = piece.split(b"\n")
        begun.append(first)
        if others:
            *lines, last = b"".join(begun), *others
            begun = [last]
            yield lines
