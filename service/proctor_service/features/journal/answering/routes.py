"""/evaluations, /rollouts and /jobs: what the journal has, and an evaluation judged again.

Another process reads the database and encodes the answers (`process.py`), since submissions choose
their size. A tenant sees its own records only; another tenant's id is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from proctor_client import wire
from proctor_service.errors import (
    InvalidRequest,
    JournalOff,
    NotReplayable,
)
from proctor_service.features.journal.answering.questions import Answer, Questions
from proctor_service.http.body import read_body
from proctor_service.http.openapi import ProblemText, answers
from proctor_service.http.responses import Line, RequestTask, response_of, while_connected
from proctor_service.rewards.routes import RewardHandler

Id = Annotated[str, Path(max_length=128)]
JobName = Annotated[str, Path(max_length=200)]

_PROBLEMS: Mapping[int, ProblemText] = {
    404: ("journal_off", "this service keeps no journal: set PROCTOR_JOURNAL", False),
    409: ("not_replayable", "evaluation ev_5f0c cannot be judged again: it had no code", False),
    422: ("invalid_request", "query.verdikt: unknown field", False),
    503: ("journal_down", "the journal's database does not answer now", True),
}


class JournalHandler:
    """Handlers of the journal's routes, one method a route.

    `questions`: None without a journal. `rewards`: judges replays. `version`: version of the service.
    """

    def __init__(self, questions: Questions | None, rewards: RewardHandler, version: str) -> None:
        self._questions = questions
        self._rewards = rewards
        self._version = version

    def open(self) -> None:
        """Start the process that reads the journal."""
        if self._questions is not None:
            self._questions.open()

    async def close(self) -> None:
        """End the process that reads the journal."""
        if self._questions is not None:
            await self._questions.close()

    async def list_evaluations(
        self, request: Request, query: Annotated[wire.EvaluationQuery, Query()]
    ) -> Response:
        """List the tenant's evaluations, the newest first; all conditions of the query hold."""
        return await self._answer("page", _tenant(request), query.model_dump())

    async def get_evaluation(self, request: Request, evaluation_id: Id) -> Response:
        """Return an evaluation with all that was recorded."""
        return await self._answer("detail", _tenant(request), evaluation_id)

    async def replay(self, request: Request, evaluation_id: Id) -> Response:
        """Judge an evaluation's code again, and compare; a replay is not recorded."""
        if bytes(await read_body(request, 1)).strip() not in (b"", b"{}"):
            raise InvalidRequest("body: a replay takes no fields")
        compared = await self.compare(_tenant(request), evaluation_id, request.receive)
        return response_of(compared.pieces, "application/json")

    async def compare(self, tenant: str, evaluation_id: str, receive: Receive) -> Answer:
        """Judge an evaluation's code again; return a `wire.Replay` as JSON.

        Raises NotFound, NotReplayable, the refusals of POST /reward, and ClientDisconnect.
        """
        recorded = await self.ask("replay_request", tenant, evaluation_id)
        body = b"".join(recorded.pieces)
        try:
            batch = await self._rewards.handle(tenant, body, None, portable=False)
        except InvalidRequest as refusal:  # such as a limit above the ceiling of today
            raise NotReplayable(
                f"evaluation {evaluation_id} cannot be judged here: {refusal.message}"
            ) from None
        line = await while_connected(line_of(batch), receive)
        return await self.ask("compared", tenant, evaluation_id, line.json, self._version)

    async def get_rollout(self, request: Request, rollout_id: Id) -> Response:
        """Return a rollout with its conversation and its evaluations."""
        return await self._answer("rollout", _tenant(request), rollout_id)

    async def list_jobs(self, request: Request) -> Response:
        """List the tenant's newest 200 jobs, that with the newest evaluation first."""
        return await self._answer("jobs", _tenant(request))

    async def get_job(
        self, request: Request, job: JobName, query: Annotated[wire.JobQuery, Query()]
    ) -> Response:
        """Return the series of a job by step or by time, and its figures."""
        return await self._answer("series", _tenant(request), job, query.by)

    async def _answer(self, question: str, *values: object) -> Response:
        answer = await self.ask(question, *values)
        return response_of(answer.pieces, "application/json")

    async def ask(self, question: str, *values: object) -> Answer:
        """Return the answer to a question of `process.questions`, with plain values.

        Raises JournalOff, JournalDown, Busy and the refusals of that question.
        """
        if self._questions is None:
            raise JournalOff("this service keeps no journal: set PROCTOR_JOURNAL")
        return await self._questions.ask(question, *values)


async def line_of(batch: RequestTask[Line]) -> Line:
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
