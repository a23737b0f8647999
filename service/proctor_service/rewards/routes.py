"""POST /reward: from the request's bytes to the answer, one JSON object or NDJSON lines.

A rejected request gets an error response for the whole request, before any code runs. After that
the response is a 200, and each item that could not be judged has its own error.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from proctor_client.wire import RewardRequest, RewardResponse
from proctor_service.errors import Cancelled, JudgeFailed
from proctor_service.evaluate import Evaluate, Item, NoCode, Outcome
from proctor_service.features.replicas import FORWARDED
from proctor_service.features.replicas.shared_answers import SharedAnswers
from proctor_service.http.body import RequestName, key_of, name_any_request, parse_body, read_body
from proctor_service.http.job_store import JobStore
from proctor_service.http.jobs import Job
from proctor_service.http.responses import NDJSON, AnswerFormat, Line, job_response
from proctor_service.rewards.examples import reward_docs
from proctor_service.rewards.items import Entry, Machine, Translation, line
from proctor_service.scheduling.queue import FairQueue, stopping

log = logging.getLogger(__name__)

ORPHAN_SECONDS = 30.0
"""With a key, work goes on this long after its client went away: it may come back for the answer."""
SENT_AT_ONCE = 256
GATHER_SECONDS = 0.01
PEER_GATHER_SECONDS = 0.05
"""Longest delay of a line, for a client and for a peer; the last line is never delayed."""
OUTPUT_CHARACTERS = 32 << 20
"""Output in all results of a request: a policy that prints much must not fill the service's memory."""


class _OutputBudget:
    """Output that the results of a request may still have."""

    def __init__(self) -> None:
        self._left = OUTPUT_CHARACTERS

    def bounded(self, outcome: Outcome) -> Outcome:
        """Return the outcome, without its output if this is too much."""
        judgement = outcome.judgement
        size = 0 if judgement is None else len(judgement.stdout) + len(judgement.stderr)
        if judgement is None or size <= self._left:
            self._left -= size
            return outcome
        return replace(outcome, judgement=replace(judgement, stdout="", stderr="", truncated=True))


class RewardHandler:
    """Handler of reward batches: a batch is a job with a line for each submission.

    `running`: the unfinished batches.
    """

    def __init__(
        self,
        machine: Machine,
        evaluate: Evaluate,
        queue: FairQueue,
        store: JobStore[Line],
        shared: SharedAnswers | None = None,
    ) -> None:
        """`shared`: store of results shared between replicas."""
        self.running: set[Job[Line]] = set()
        self._machine = machine
        self._evaluate = evaluate
        self._queue = queue
        self._store = store
        self._shared = shared

    async def handle(
        self, tenant: str, body: bytes | bytearray, key: str | None, portable: bool = True
    ) -> Job[Line]:
        """Return the batch for a request: a new batch, or the earlier batch of its key.

        `portable`: peers may judge its submissions.
        Raises Refusal: InvalidRequest, BatchTooLarge, Busy or Draining.
        """
        begun = time.monotonic()
        name = None if key is None else await name_any_request(tenant, key, body)
        if name is not None and (known := self._known(name)) is not None:
            return known
        if self._queue.draining:
            raise stopping()
        judged: Mapping[int, Line] = {}
        if name is not None and self._shared is not None:
            judged = await self._shared.judged(name)
        request = await parse_body(RewardRequest, body)
        deadline = begun + request.deadline_seconds
        translation = Translation(self._machine, request, tenant, deadline, portable)
        entries = await translation.entries()
        # No `await` from here to the end: of two requests with the same key, one starts the batch.
        if name is not None and (known := self._known(name)) is not None:
            return known
        return self._start(entries, name, judged)

    def judge_one(self, item: Item) -> Job[Line]:
        """Judge an item without a request to /reward, as a batch. Raises Busy and Draining."""
        return self._start([Entry(0, None, None, item)], None, {})

    def _known(self, name: RequestName) -> Job[Line] | None:
        """Return the batch of an earlier request, unless some of its items must be judged again."""
        batch = self._store.find(name)
        return None if batch is None or batch.retryable else batch

    def _start(
        self, entries: list[Entry], name: RequestName | None, judged: Mapping[int, Line]
    ) -> Job[Line]:
        """Start a batch; `judged`: results of the request from another replica.

        Raises BatchTooLarge, and Busy; also Busy if the queue cannot judge any item in time.
        """
        earlier = None if name is None else self._store.find(name)
        if earlier is not None:
            judged = {**judged, **earlier.final()}
        first = entries[0].item
        items = [entry.item for entry in entries if entry.index not in judged]
        if items:
            whose = (first.tenant, first.job)
            self._queue.check_size(len(items))
            if not any(isinstance(item.submission, NoCode) for item in items):
                self._queue.check_deadline(whose, first.priority, first.deadline)
            places = self._queue.reserve(len(items), whose)
        else:
            places = self._queue.reserve(0)
        share = None
        if name is not None and self._shared is not None:
            share = partial(self._shared.store_first, name)
        batch = Job(
            entries,
            nullcontext(lambda entry: self._evaluate(entry.item)),
            partial(self._line, _OutputBudget()),
            self.running,
            places=places,
            orphan_seconds=0.0 if name is None else ORPHAN_SECONDS,
            known=judged,
            share=share,
        )
        fields = {"tenant": first.tenant, "job": first.job, "tags": list(first.tags)}
        batch.when_done(partial(_log_end, batch, time.monotonic(), fields))
        if name is not None:
            self._store.remember(name, batch)
        return batch

    def _line(self, budget: _OutputBudget, entry: Entry, outcome: Outcome | BaseException) -> Line:
        if isinstance(outcome, Cancelled):
            outcome = Outcome(failure=outcome)
        elif isinstance(outcome, BaseException):
            evaluation_id = entry.item.evaluation_id
            log.error("an item failed", exc_info=outcome, extra={"evaluation_id": evaluation_id})
            message = f"a fault of the service; its log has it under {evaluation_id}"
            outcome = Outcome(failure=JudgeFailed(message))
        return line(entry, budget.bounded(outcome), self._machine.backend.traits.degraded)


def _log_end(batch: Job[Line], begun: float, fields: Mapping[str, object]) -> None:
    verdicts = Counter(each.verdict or "error" for each in batch.results())
    seconds = round(time.monotonic() - begun, 3)
    more = {"count": verdicts.total(), "verdicts": dict(verdicts), "seconds": seconds}
    log.info("judged", extra={**fields, **more})


def reward_routes(handler: RewardHandler, max_body_mb: int) -> APIRouter:
    """Return the route POST /reward."""
    routes = APIRouter()

    @routes.post("/reward", response_model=RewardResponse, **reward_docs())
    async def reward(request: Request) -> Response:
        """Judge a batch of submissions, and return their rewards."""
        body = await read_body(request, max_body_mb)
        tenant: str = request.state.tenant
        handed_over = FORWARDED in request.headers  # it stays here: no loops
        batch = await handler.handle(tenant, body, key_of(request.headers), not handed_over)
        by_line = NDJSON in request.headers.get("accept", "")
        form = AnswerFormat(
            "results",
            ("passed", "no_code"),
            by_line,
            SENT_AT_ONCE,
            headers_first=by_line,
            gather_seconds=PEER_GATHER_SECONDS if handed_over else GATHER_SECONDS,
        )
        return job_response(batch, form)

    return routes
