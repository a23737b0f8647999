"""/evaluations, /rollouts and /jobs: what the journal has, and an evaluation judged again.

The journal's reader blocks, so it has a few threads of its own: a slow database never takes the
threads that other requests need. Answers are encoded there too, since submissions choose their size.
A tenant sees its own records only; another tenant's id is unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from proctor_client import wire
from proctor_service.api import journal_answers
from proctor_service.api.body import read_body
from proctor_service.api.jobs import Job
from proctor_service.api.responses import Line, bytes_response, while_connected
from proctor_service.api.rewards.examples import ProblemText, answers
from proctor_service.api.rewards.routes import RewardHandler
from proctor_service.errors import (
    Busy,
    InvalidRequest,
    JournalDown,
    JournalOff,
    NotReplayable,
)
from proctor_service.journal.database import TooSlow
from proctor_service.journal.reading import Reader

log = logging.getLogger(__name__)

T = TypeVar("T")
Id = Annotated[str, Path(max_length=128)]
JobName = Annotated[str, Path(max_length=200)]

THREADS = 3
MOST_ASKED = 60
"""Questions that run or wait for a thread; each ends within the reader's time limit."""
_TOO_SLOW = "the question took too long: narrow it, for example by a job and a step"
_PROBLEMS: Mapping[int, ProblemText] = {
    404: ("journal_off", "this service keeps no journal: set PROCTOR_JOURNAL", False),
    409: ("not_replayable", "evaluation ev_5f0c cannot be judged again: it had no code", False),
    422: ("invalid_request", "query.verdikt: unknown field", False),
    503: ("journal_down", "the journal's database does not answer now", True),
}


class JournalHandler:
    """Handlers of the journal's routes, one method a route.

    `reader`: None without a journal. `rewards`: judges replays. `version`: version of the service.
    """

    def __init__(self, reader: Reader | None, rewards: RewardHandler, version: str) -> None:
        self._reader = reader
        self._rewards = rewards
        self._version = version
        self._threads = ThreadPoolExecutor(THREADS, "journal")
        self._asked = 0

    def close(self) -> None:
        """Close the connections to the database; what still waits for a thread is cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._reader is not None:
            self._reader.close()

    async def list_evaluations(
        self, request: Request, query: Annotated[wire.EvaluationQuery, Query()]
    ) -> Response:
        """List the tenant's evaluations, the newest first; all conditions of the query hold."""
        return await self._answer(partial(journal_answers.page, _tenant(request), query))

    async def get_evaluation(self, request: Request, evaluation_id: Id) -> Response:
        """Return an evaluation with all that was recorded."""
        question = partial(journal_answers.detail, _tenant(request), evaluation_id)
        return await self._answer(question)

    async def replay(self, request: Request, evaluation_id: Id) -> Response:
        """Judge an evaluation's code again, and compare; a replay is not recorded."""
        if bytes(await read_body(request, 1)).strip() not in (b"", b"{}"):
            raise InvalidRequest("body: a replay takes no fields")
        compared = await self.compare(_tenant(request), evaluation_id, request.receive)
        return bytes_response(compared)

    async def compare(self, tenant: str, evaluation_id: str, receive: Receive) -> bytes:
        """Judge an evaluation's code again; return a `wire.Replay` as JSON.

        Raises NotFound, NotReplayable, the refusals of POST /reward, and ClientDisconnect.
        """
        row, body = await self.ask(partial(journal_answers.recorded, tenant, evaluation_id))
        try:
            batch = await self._rewards.handle(tenant, body, None, portable=False)
        except InvalidRequest as refusal:  # such as a limit above the ceiling of today
            raise NotReplayable(
                f"evaluation {evaluation_id} cannot be judged here: {refusal.message}"
            ) from None
        line = await while_connected(line_of(batch), receive)
        return await self.ask(lambda _: journal_answers.compared(row, line, self._version))

    async def get_rollout(self, request: Request, rollout_id: Id) -> Response:
        """Return a rollout with its conversation and its evaluations."""
        return await self._answer(partial(journal_answers.rollout, _tenant(request), rollout_id))

    async def list_jobs(self, request: Request) -> Response:
        """List the tenant's newest 200 jobs, that with the newest evaluation first."""
        return await self._answer(partial(journal_answers.jobs, _tenant(request)))

    async def get_job(
        self, request: Request, job: JobName, query: Annotated[wire.JobQuery, Query()]
    ) -> Response:
        """Return the series of a job by step or by time, and its figures."""
        return await self._answer(partial(journal_answers.series, _tenant(request), job, query))

    async def _answer(self, question: Callable[[Reader], bytes]) -> Response:
        return bytes_response(await self.ask(question))

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """Return the answer to a question, from a thread. Raises JournalOff, JournalDown and Busy."""
        if self._reader is None:
            raise JournalOff("this service keeps no journal: set PROCTOR_JOURNAL")
        if self._asked >= MOST_ASKED:
            raise Busy("the journal has many questions to answer: ask again in a moment")
        loop = asyncio.get_running_loop()
        self._asked += 1
        try:
            return await loop.run_in_executor(self._threads, question, self._reader)
        except TooSlow:
            raise JournalDown(_TOO_SLOW) from None
        except (SQLAlchemyError, OSError) as error:
            why = str(getattr(error, "orig", None) or error).partition("\n")[0][:300]
            log.warning("the journal cannot be read", extra={"why": why})
            raise JournalDown("the journal's database does not answer now") from None
        finally:
            self._asked -= 1


async def line_of(batch: Job[Line]) -> Line:
    """Return the result of a batch of one. The batch ends with its only reader."""
    with batch.reading():
        await batch.wait()
    return batch.results()[0]


def _tenant(request: Request) -> str:
    tenant: str = request.state.tenant
    return tenant


class _AnyText(PathConvertor):
    """A part of a path in which every character is allowed, such as a job's name."""

    regex = "(?s:.+)"


register_url_convertor("any", _AnyText())


def _docs(model: type[BaseModel], *statuses: int) -> dict[str, Any]:
    found = answers(model, *sorted({401, 404, 422, 500, 503, *statuses}), own=_PROBLEMS)
    return {"response_model": model, "responses": found}


def journal_routes(handler: JournalHandler) -> APIRouter:
    """Return the routes of /evaluations, /rollouts and /jobs."""
    routes = APIRouter()
    add = routes.add_api_route
    one = "/evaluations/{evaluation_id}"
    add("/evaluations", handler.list_evaluations, **_docs(wire.EvaluationPage))
    add(one, handler.get_evaluation, **_docs(wire.EvaluationDetail))
    add(one + "/replay", handler.replay, methods=["POST"], **_docs(wire.Replay, 409, 429))
    add("/rollouts/{rollout_id}", handler.get_rollout, **_docs(wire.RolloutRecord))
    add("/jobs", handler.list_jobs, **_docs(wire.JobList))
    add("/jobs/{job:any}", handler.get_job, **_docs(wire.JobSeries))
    return routes
