"""POST /reward: from the request's bytes to the answer, one JSON object or NDJSON lines.

A rejected request gets an error response for the whole request, before any code runs. After that
the response is a 200, and each item that could not be judged has its own error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from fastapi import APIRouter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proctor_client.wire import RewardRequest, RewardResponse
from proctor_service.api.body import parse_reward_request, read_body
from proctor_service.api.connection import while_connected
from proctor_service.api.rewards.batch import Batch
from proctor_service.api.rewards.examples import NDJSON, reward_docs
from proctor_service.api.rewards.idempotency import (
    IdempotencyStore,
    RequestName,
    key_of,
    name_any_request,
)
from proctor_service.api.rewards.items import Entry, Machine, Translation
from proctor_service.api.rewards.results import Line, line, summary
from proctor_service.api.rewards.shared_answers import SharedAnswers
from proctor_service.api.rewards.slices import Pacer
from proctor_service.evaluate import Evaluate, Item, NoCode
from proctor_service.scheduling.queue import FairQueue, Reservation, stopping

SENT_AT_ONCE = 256


class RewardHandler:
    """Handler of reward batches; tracks the running batches."""

    def __init__(
        self,
        machine: Machine,
        evaluate: Evaluate,
        queue: FairQueue,
        ledger: IdempotencyStore[Batch],
        shared: SharedAnswers | None = None,
    ) -> None:
        """`shared`: store of results shared between replicas."""
        self._machine = machine
        self._evaluate = evaluate
        self._queue = queue
        self._ledger = ledger
        self._shared = shared
        self._running: set[Batch] = set()

    @property
    def running(self) -> frozenset[Batch]:
        """The unfinished batches."""
        return frozenset(self._running)

    async def handle(self, tenant: str, body: bytes | bytearray, key: str | None) -> Batch:
        """Return the batch for a request: a new batch, or the earlier batch of its key.

        Raises Refusal: InvalidRequest, BatchTooLarge, Busy or Draining.
        """
        begun = time.monotonic()
        name = await name_any_request(tenant, key, body)
        if (known := self._known(name)) is not None:
            return known
        if self._queue.draining:
            raise stopping()
        judged = {}
        if name is not None and self._shared is not None:
            judged = await self._shared.judged(name)
        request = await parse_reward_request(body)
        entries = await self._translate(request, tenant, begun + request.deadline_seconds)
        # No `await` from here to the end: of two requests with the same key, one starts the batch.
        if (known := self._known(name)) is not None:
            return known
        return self._start(entries, name, judged)

    def judge_one(self, item: Item) -> Batch:
        """Judge an item without a request to /reward, as a batch. Raises Busy and Draining."""
        return self._start([Entry(0, None, None, item)], None, {})

    def _known(self, name: RequestName | None) -> Batch | None:
        """Return the batch of an earlier request, unless some of its items must be judged again."""
        batch = None if name is None else self._ledger.find(name)
        return None if batch is None or batch.retryable else batch

    async def _translate(self, request: RewardRequest, tenant: str, deadline: float) -> list[Entry]:
        translation = Translation(self._machine, request, tenant, deadline)
        entries: list[Entry] = []
        pacer = Pacer()
        for index, submission in enumerate(request.submissions):
            entries.append(translation.entry(index, submission))
            await pacer.pause()
        return entries

    def _start(
        self, entries: list[Entry], name: RequestName | None, judged: Mapping[int, Line]
    ) -> Batch:
        """Start a batch; `judged`: results of the request from another replica."""
        earlier = None if name is None else self._ledger.find(name)
        kept = {**judged, **(earlier.judged() if earlier is not None else {})}
        store_first = None
        if name is not None and self._shared is not None:
            store_first = partial(self._shared.store_first, name)
        batch = Batch(
            entries,
            self._evaluate,
            partial(line, degraded=self._machine.traits.degraded),
            self._reserve([entry.item for entry in entries if entry.index not in kept]),
            0.0 if name is None else self._machine.settings.orphan_seconds,
            kept,
            store_first,
        )
        self._running.add(batch)
        batch.when_done(partial(self._running.discard, batch))
        if name is not None:
            self._ledger.remember(name, batch)
        return batch

    def _reserve(self, items: Sequence[Item]) -> Reservation:
        """Reserve queue capacity for the items.

        Raises BatchTooLarge, and Busy; also Busy if the queue cannot judge any item in time.
        """
        if not items:
            return self._queue.reserve(0)
        first = items[0]
        whose = (first.tenant, first.job)
        self._queue.check_size(len(items))
        if not any(isinstance(item.submission, NoCode) for item in items):
            self._queue.check_deadline(whose, first.priority, first.deadline)
        return self._queue.reserve(len(items), whose)


class Answer(Response):
    """A batch's results, as one JSON object or as a line for each finished result.

    The response watches its connection: when the client disconnects, the response leaves the batch.
    """

    def __init__(self, batch: Batch, by_line: bool) -> None:
        super().__init__(media_type=NDJSON if by_line else "application/json")
        del self.headers["content-length"]
        self._batch = batch
        self._by_line = by_line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all results, or stop when the client disconnects."""
        with self._batch.reading() as more, suppress(ClientDisconnect):
            pieces = self._lines(more) if self._by_line else self._object()
            await while_connected(self._send(pieces, send), receive)

    async def _send(self, pieces: AsyncIterator[bytes], send: Send) -> None:
        started = False
        async for piece in pieces:
            if not started:
                started = True
                await send(
                    {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
                )
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _lines(self, more: asyncio.Event) -> AsyncIterator[bytes]:
        yield b""  # sends the headers at once
        sent = 0
        while True:
            lines = self._batch.finished(sent, SENT_AT_ONCE)
            if lines:
                sent += len(lines)
                yield b"".join(each.json + b"\n" for each in lines)
            elif self._batch.done:
                break
            else:
                await more.wait()
                more.clear()
        yield b'{"summary":' + summary(self._batch.lines()) + b"}\n"

    async def _object(self) -> AsyncIterator[bytes]:
        await self._batch.wait()
        lines = self._batch.lines()
        separator = b'{"results":['
        rest = iter(lines)
        while some := list(islice(rest, SENT_AT_ONCE)):
            yield separator + b",".join(each.json for each in some)
            separator = b","
        yield b'],"summary":' + summary(lines) + b"}"


def reward_routes(handler: RewardHandler, max_body_mb: int) -> APIRouter:
    """Return the route POST /reward."""
    routes = APIRouter()

    @routes.post("/reward", response_model=RewardResponse, **reward_docs())
    async def reward(request: Request) -> Response:
        """Judge a batch of submissions, and return their rewards."""
        body = await read_body(request, max_body_mb)
        tenant: str = request.state.tenant
        batch = await handler.handle(tenant, body, key_of(request.headers))
        return Answer(batch, NDJSON in request.headers.get("accept", ""))

    return routes
