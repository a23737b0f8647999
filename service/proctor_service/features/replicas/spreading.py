"""Spreading of a large batch: slices of the work which waits here go to peers with free cores.

While more items wait than the slots of this replica take within a moment, each peer is asked for
its capacity every 0.25 s. A peer with free cores gets a slice, and more as its results come: about
its work of 0.3 s, and at most an equal part of the waiting items, so that all replicas end at the
same time. A slice is a request as the tenant could send, marked as forwarded: a peer never hands a
slice on. A peer with another fingerprint gets none (`fingerprints.py`), and refuses what it gets.

A peer which refuses, fails or falls silent costs only time: its items are judged here. So
does a slow peer: when this replica is idle, it judges long outstanding items itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import httpx

from proctor_service.features.replicas.forwarding import Question, Replicas
from proctor_service.features.replicas.slices import (
    POLL_SECONDS,
    Peer,
    Slice,
    SliceObserver,
    Slices,
    lines_of,
)
from proctor_service.scheduling.fair_share import PeerItem
from proctor_service.scheduling.queue import FairQueue

log = logging.getLogger(__name__)

ANSWER_SECONDS = 1.0
SILENT_SECONDS = 3.0
"""Time after which a silent peer has lost its slices: without a result or its capacity."""
REST_SECONDS = 5.0
"""Time without slices for a peer after a refused or lost slice."""
GONE_SECONDS = 1.0
"""Time until an unreachable peer is asked again."""
LOOK_UP_SECONDS = 0.5
"""Time for the DNS; meanwhile silent peers go unnoticed."""
SOON_SECONDS = 0.05
"""Work of the slots here within this time stays here: a slice would take as long to travel."""
FIRST_PAUSE_SECONDS = 0.01
LEAST_OUTSTANDING_SECONDS = 5.0


class Spreader:
    """Spreads the portable items of a queue over the peers, from `open` until `close`."""

    def __init__(
        self,
        replicas: Replicas,
        queue: FairQueue,
        slices: Slices,
        observer: SliceObserver,
        is_own: Callable[[str, str | None], bool],
    ) -> None:
        """`is_own`: returns True for the fingerprint of this replica in the /capacity of a peer."""
        self._replicas = replicas
        self._queue = queue
        self._slices = slices
        self._observer = observer
        self._is_own = is_own
        self._clock: Callable[[], float] = queue.clock
        self._peers: dict[str, Peer] = {}
        self._surplus_begins = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._looking_up: asyncio.Task[list[str]] | None = None

    def open(self) -> None:
        """Begin, in the running loop."""
        self._runner = asyncio.create_task(self._run())
        self._queue.handover.on_portable = self._surplus_begins.set

    async def close(self) -> None:
        """End; items still at peers are given up."""
        self._queue.handover.on_portable = None
        tasks: list[asyncio.Task[Any] | None] = [
            each.task for peer in self._peers.values() for each in peer.slices
        ]
        tasks += [peer.capacity_request for peer in self._peers.values()]
        tasks += [self._runner, self._looking_up]
        left = [task for task in tasks if task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    # ------------------------------------------------------------ distribution

    async def _run(self) -> None:
        handover = self._queue.handover
        while True:
            await self._surplus_begins.wait()
            pause = FIRST_PAUSE_SECONDS
            while handover.portable or handover.away:
                try:
                    if self._surplus() > 0:
                        await self._meet_peers()
                        pause = POLL_SECONDS
                    elif handover.away:
                        pause = POLL_SECONDS
                    self._look_after()
                except Exception:
                    log.exception("the spreading of a batch failed")
                    pause = REST_SECONDS
                await asyncio.sleep(pause)
                pause = min(2 * pause, POLL_SECONDS)
            self._surplus_begins.clear()

    def _surplus(self) -> int:
        """Return how many waiting items are more than the slots here take within a moment."""
        soon = int(self._queue.tickets_per_second * SOON_SECONDS)
        return min(self._queue.handover.portable, self._queue.queued - soon)

    async def _meet_peers(self) -> None:
        """Ask each peer after a silence, and give to peers with free cores."""
        urls = await self._others()
        for gone in [url for url in self._peers if url not in urls]:
            if not self._peers[gone].slices:
                del self._peers[gone]
        for url in urls:
            peer = self._peers.setdefault(url, Peer(url))
            self._give(peer)

    async def _others(self) -> list[str]:
        """Return the URLs of the other replicas; those known so far while the DNS does not answer."""
        if self._looking_up is None:
            self._looking_up = asyncio.create_task(self._replicas.others())
        await asyncio.wait({self._looking_up}, timeout=LOOK_UP_SECONDS)
        if not self._looking_up.done():
            return list(self._peers)
        found, self._looking_up = self._looking_up, None
        return found.result()

    def _look_after(self) -> None:
        """Ask peers for their capacity; end the slices of silent ones; take back late items."""
        now = self._clock()
        for peer in self._peers.values():
            if peer.slices and now - peer.heard > SILENT_SECONDS:
                self._lose(peer, "a replica is silent; its part of a batch is judged here")
            due = now - peer.asked_at >= POLL_SECONDS / 2
            wanted = peer.slices or (self._surplus() > 0 and now >= peer.rests_until)
            if due and wanted and (peer.capacity_request is None or peer.capacity_request.done()):
                peer.capacity_request = asyncio.create_task(self._ask(peer))
        if self._queue.busy < self._queue.slots and not self._queue.queued:
            self._take_back_late(now)

    def _take_back_late(self, now: float) -> None:
        """Take back items after a long time at peers; called while this replica is idle."""
        for peer in self._peers.values():
            for each in list(peer.slices):
                for index, peer_item in list(each.rest.items()):
                    patience = (
                        self._slices.patience_seconds(peer_item.work) + LEAST_OUTSTANDING_SECONDS
                    )
                    if now - each.sent > patience:
                        del each.rest[index]
                        self._return(peer_item)
                if not each.rest and each.task is not None:
                    each.outcome = "given_up"
                    each.task.cancel()

    def _give(self, peer: Peer) -> None:
        """Give slices to a peer with free cores, as many as are due now."""
        now = self._clock()
        while peer.may_get(now):
            surplus = self._surplus()
            if surplus <= 0:
                return
            guess = self._queue.tickets_per_second * peer.slots / self._queue.slots
            size = peer.wanted(surplus, len(self._peers) + 1, guess, now)
            sent = Slice(now)
            if not size or not (taken := self._take(sent, size)):
                return
            if not peer.slices:
                peer.heard = peer.counted_since = now
                peer.results = 0
            peer.slices.add(sent)
            sent.rest = dict(enumerate(taken))
            sent.indices = {peer_item: index for index, peer_item in enumerate(taken)}
            sent.task = asyncio.create_task(self._deliver(peer, sent, taken))
            # A callback, since a task cancelled before its first step runs no code.
            sent.task.add_done_callback(partial(self._end, peer, sent))

    def _take(self, sent: Slice, size: int) -> list[PeerItem]:
        def ended(peer_item: PeerItem) -> None:
            """Forget a cancelled or late item; end a slice without waiting items."""
            if sent.rest.pop(sent.indices[peer_item], None) is None:
                return
            self._observer.slice_items("ended")
            if not sent.rest and sent.task is not None:
                sent.outcome = "given_up"
                sent.task.cancel()

        return self._queue.handover.take(size, self._slices.alike, ended)

    # ------------------------------------------------------------ a slice, and its peer

    async def _deliver(self, peer: Peer, sent: Slice, taken: list[PeerItem]) -> None:
        """Send a slice, and settle its items with the lines of the answer."""
        works = [peer_item.work for peer_item in taken]
        packed = await self._slices.pack(works)
        for index in range(len(taken) - 1, packed.count - 1, -1):  # the first goes back last
            if (peer_item := sent.rest.pop(index, None)) is not None:
                alone = not packed.count and not index  # too large for any request
                self._queue.handover.take_back(peer_item, tried=alone)
        if not packed.count:
            return
        question = Question("POST", b"/reward", packed.headers, packed.body)
        try:
            async with self._replicas.sent(peer.url, question) as response:
                if response.status_code != httpx.codes.OK:
                    sent.outcome = "refused"
                    self._rest(peer, "a replica refuses a part of a batch", response.status_code)
                    return
                async for lines in lines_of(response):
                    self._take_in(peer, sent, lines, works)
                    self._give(peer)
        except (httpx.HTTPError, OSError) as error:
            sent.outcome = "lost"
            self._rest(peer, "a replica has lost a part of a batch", repr(error))

    def _take_in(
        self, peer: Peer, sent: Slice, lines: Sequence[bytes], works: Sequence[Any]
    ) -> None:
        """Settle items with the peer's lines. A line without an item is passed over."""
        peer.hear(self._clock(), len(lines))
        for line in lines:
            try:
                index, result = self._slices.unpack(line, works)
            except ValueError:
                log.warning("a replica sent a line that is no result", extra={"replica": peer.url})
                continue
            peer_item = sent.rest.pop(index, None)
            if peer_item is None:
                continue
            if result is None:
                self._return(peer_item)
                peer.rests_until = self._clock() + REST_SECONDS
            elif self._queue.handover.finish(peer_item, result):
                self._observer.slice_items("judged")

    def _end(self, peer: Peer, sent: Slice, task: asyncio.Task[None]) -> None:
        """Take back items without a result, however the slice ended."""
        peer.slices.discard(sent)
        if not task.cancelled() and (error := task.exception()) is not None:
            sent.outcome = "lost"
            log.error("a part of a batch was not handed over", exc_info=error)
            peer.rests_until = self._clock() + REST_SECONDS
        for _, peer_item in sorted(sent.rest.items(), reverse=True):
            self._return(peer_item)
        sent.rest.clear()
        self._observer.slice_ended(sent.outcome)

    def _return(self, peer_item: PeerItem) -> None:
        if self._queue.handover.take_back(peer_item):
            self._observer.slice_items("returned")

    def _rest(self, peer: Peer, what: str, why: object) -> None:
        peer.free = False
        peer.rests_until = self._clock() + REST_SECONDS
        log.warning(what, extra={"replica": peer.url, "why": why})

    def _lose(self, peer: Peer, what: str) -> None:
        self._rest(peer, what, "no answer")
        for each in list(peer.slices):
            if each.task is not None:
                each.outcome = "lost"
                each.task.cancel()

    async def _ask(self, peer: Peer) -> None:
        """Ask a peer for its capacity: it has free cores unless others' work waits there."""
        work = self._queue.handover.first()
        peer.asked_at = self._clock()
        headers = {} if work is None else self._slices.headers(work)
        question = Question("GET", b"/capacity" if work is not None else b"/healthz", headers)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                async with self._replicas.sent(peer.url, question) as response:
                    body = await response.aread()
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if peer.slices:
                self._lose(peer, "a replica is gone; its part of a batch is judged here")
            peer.free = False
            peer.rests_until = self._clock() + GONE_SECONDS
            return
        except (httpx.HTTPError, OSError, TimeoutError):
            peer.free = False  # too busy to answer; its slices go on until it is silent for long
            return
        peer.heard = self._clock()
        if work is None:
            return
        if response.status_code != httpx.codes.OK:
            self._rest(peer, "a replica tells no capacity", response.status_code)
            return
        peer.note_capacity(body, partial(self._is_own, peer.url))
        self._give(peer)
