"""/evaluations, /rollouts and /jobs: what the journal has, and an evaluation judged again.

The journal's reader blocks, so it has a few threads of its own: a slow database never takes the
threads that other requests need. Answers are encoded there too, since submissions choose their size.
A tenant sees its own records only; another tenant's id is unknown.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
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
from proctor_service.api.body import read_body
from proctor_service.api.jobs import Job
from proctor_service.api.responses import Line, encode, while_connected
from proctor_service.api.rewards.examples import ProblemText, answers
from proctor_service.api.rewards.routes import RewardHandler
from proctor_service.errors import (
    InvalidRequest,
    JournalDown,
    JournalOff,
    NotFound,
    NotReplayable,
)
from proctor_service.journal.reading import Filter, Reader, Row
from proctor_service.journal.replay import request_of, why_not

log = logging.getLogger(__name__)

T = TypeVar("T")
Id = Annotated[str, Path(max_length=128)]
JobName = Annotated[str, Path(max_length=200)]

THREADS = 3
_AS_RECORDED = (
    "id", "job", "step", "task", "submission_id", "rollout_id", "tags", "verdict", "reward", "error",
    "integrity", "level", "exit_code", "cache", "seconds", "sandbox_id", "graded_sandbox_id",
    "trace_id", "version", "grader_kind", "completion_characters", "with_texts",
)  # fmt: skip
_ROLLOUT_AS_RECORDED = (
    "id", "job", "step", "task", "tags", "verdict", "reward", "error", "metrics", "sandbox_id",
    "version",
)  # fmt: skip
_JUDGED_AS_ANSWERED = (
    "verdict", "reward", "message", "tests", "integrity", "level", "hack_signals", "exit_code",
    "stdout", "stderr",
)  # fmt: skip
_COMPARED = ("verdict", "reward", "error")
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

    def close(self) -> None:
        """Close the connections to the database; what still waits for a thread is cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._reader is not None:
            self._reader.close()

    async def list_evaluations(
        self, request: Request, query: Annotated[wire.EvaluationQuery, Query()]
    ) -> Response:
        """List the tenant's evaluations, the newest first; all conditions of the query hold."""
        return await self._answer(partial(_page, _tenant(request), query))

    async def get_evaluation(self, request: Request, evaluation_id: Id) -> Response:
        """Return an evaluation with all that was recorded."""
        return await self._answer(partial(_detail, _tenant(request), evaluation_id))

    async def replay(self, request: Request, evaluation_id: Id) -> Response:
        """Judge an evaluation's code again, and compare; a replay is not recorded."""
        if bytes(await read_body(request, 1)).strip() not in (b"", b"{}"):
            raise InvalidRequest("body: a replay takes no fields")
        found = await self.compare(_tenant(request), evaluation_id, request.receive)
        return await self._answer(lambda _: found)

    async def compare(self, tenant: str, evaluation_id: str, receive: Receive) -> dict[str, Any]:
        """Judge an evaluation's code again; return a `wire.Replay` as a dict.

        Raises NotFound, NotReplayable, the refusals of POST /reward, and ClientDisconnect.
        """
        recorded, body = await self.ask(partial(_recorded, tenant, evaluation_id))
        try:
            batch = await self._rewards.handle(tenant, body, None, portable=False)
        except InvalidRequest as refusal:  # such as a limit above the ceiling of today
            raise NotReplayable(
                f"evaluation {evaluation_id} cannot be judged here: {refusal.message}"
            ) from None
        line = await while_connected(line_of(batch), receive)
        return await self.ask(lambda _: _compared(evaluation_id, recorded, line, self._version))

    async def get_rollout(self, request: Request, rollout_id: Id) -> Response:
        """Return a rollout with its conversation and its evaluations."""
        return await self._answer(partial(_rollout, _tenant(request), rollout_id))

    async def list_jobs(self, request: Request) -> Response:
        """List the tenant's jobs, that with the newest evaluation first."""
        return await self._answer(partial(_jobs, _tenant(request)))

    async def get_job(self, request: Request, job: JobName) -> Response:
        """Return the series of a job by step."""
        return await self._answer(partial(_series, _tenant(request), job))

    async def _answer(self, question: Callable[[Reader], dict[str, Any]]) -> Response:
        content = await self.ask(lambda reader: encode(question(reader)))
        return Response(content, media_type="application/json")

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """Return the answer to a question, from a thread. Raises JournalOff and JournalDown."""
        if self._reader is None:
            raise JournalOff("this service keeps no journal: set PROCTOR_JOURNAL")
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, question, self._reader)
        except (SQLAlchemyError, OSError) as error:
            why = str(getattr(error, "orig", None) or error).partition("\n")[0][:300]
            log.warning("the journal cannot be read", extra={"why": why})
            raise JournalDown("the journal's database does not answer now") from None


async def line_of(batch: Job[Line]) -> Line:
    """Return the result of a batch of one. The batch ends with its only reader."""
    with batch.reading():
        await batch.wait()
    return batch.results()[0]


def _tenant(request: Request) -> str:
    tenant: str = request.state.tenant
    return tenant


def _page(tenant: str, query: wire.EvaluationQuery, reader: Reader) -> dict[str, Any]:
    fields = query.model_dump(exclude={"limit", "cursor", "text"})
    before = None if query.cursor is None else int(query.cursor)
    page = reader.evaluations(tenant, Filter(**fields, words=query.text), query.limit, before)
    following = None if page.following is None else str(page.following)
    return {"evaluations": [_evaluation(row) for row in page.rows], "next": following}


def _detail(tenant: str, id_: str, reader: Reader) -> dict[str, Any]:
    row = _row(tenant, id_, reader)
    conditions, output = row["conditions"] or {}, row["output"] or {}
    found = _evaluation(row)
    return {
        **found,
        "tests": {**found["tests"], "failures": _failures(output)},
        "replayable": why_not(row) is None,
        "completion": row["completion_text"],
        "source": row["source"],
        "source_begin": row["source_begin"],
        "grader": row["grader"],
        **{name: conditions.get(name) for name in ("extract", "language", "limits", "scoring")},
        "files": conditions.get("files", {}),
        **{
            name: output.get(name)
            for name in ("message", "stdout", "stderr", "truncated", "error_message")
        },
    }


def _recorded(tenant: str, id_: str, reader: Reader) -> tuple[dict[str, Any], bytes]:
    """Return what one judging came to, and the body of the request that judges again."""
    row = _row(tenant, id_, reader)
    body = json.dumps(request_of(row)).encode()
    output = row["output"] or {}
    message = output.get("error_message") if row["error"] else output.get("message")
    judged = {
        **{name: row[name] for name in (*_COMPARED, "integrity", "level", "exit_code", "version")},
        "message": message or "",
        "tests": {**_evaluation(row)["tests"], "failures": _failures(output)},
        "hack_signals": row["signals"],
        "stdout": output.get("stdout", ""),
        "stderr": output.get("stderr", ""),
    }
    return judged, body


def _compared(id_: str, recorded: dict[str, Any], line: Line, version: str) -> dict[str, Any]:
    result = json.loads(line.json)
    replayed = {name: result[name] for name in _JUDGED_AS_ANSWERED}
    replayed |= {"error": None, "version": version}
    error = result["error"]
    if error is not None:
        replayed |= {"error": error["reason"], "message": error["message"]}
    same = all(recorded[name] == replayed[name] for name in _COMPARED)
    return {"id": id_, "same": same, "recorded": recorded, "replayed": replayed}


def _rollout(tenant: str, id_: str, reader: Reader) -> dict[str, Any]:
    row = reader.rollout(tenant, id_)
    if row is None:
        raise NotFound(f"no rollout {id_!a}")
    conversation = row["conversation"] or {}
    return {
        **{name: row[name] for name in _ROLLOUT_AS_RECORDED},
        "at": _time(row["at"]),
        "error_message": conversation.get("message"),
        "messages_and_choices": conversation.get("messages_and_choices"),
        "tools": conversation.get("tools"),
        "evaluations": [_evaluation(each) for each in row["evaluations"]],
    }


def _jobs(tenant: str, reader: Reader) -> dict[str, Any]:
    names = ("job", "evaluations", "judged", "mean_reward", "last_step")
    rows = reader.jobs(tenant)
    return {
        "jobs": [
            {**{name: row[name] for name in names}, "last_at": _time(row["last_at"])}
            for row in rows
        ]
    }


def _series(tenant: str, job: str, reader: Reader) -> dict[str, Any]:
    found = reader.job(tenant, job)
    if found is None:
        raise NotFound(f"no job {job!a} in the journal")
    return found


def _row(tenant: str, id_: str, reader: Reader) -> Row:
    """Return a recorded evaluation. Raises NotFound."""
    row = reader.evaluation(tenant, id_)
    if row is None:
        raise NotFound(f"no evaluation {id_!a}")
    return row


def _evaluation(row: Row) -> dict[str, Any]:
    """Return an evaluation as listed."""
    return {
        **{name: row[name] for name in _AS_RECORDED},
        "at": _time(row["at"]),
        "tests": {"passed": row["passed"], "total": row["total"], "failures": []},
        "hack_signals": row["signals"],
        "usage": {
            name: row[name]
            for name in ("cpu_seconds", "wall_seconds", "queue_seconds", "peak_memory_mb")
        },
    }


def _failures(output: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the failed tests, which the journal keeps as triples."""
    return [
        {"index": index, "test": test, "message": said}
        for index, test, said in output.get("failures", ())[: wire.MAX_FAILURES]
    ]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


class _JobName(PathConvertor):
    """A job's name, in which every character is allowed."""

    regex = "(?s:.+)"


register_url_convertor("job", _JobName())


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
    add("/jobs/{job:job}", handler.get_job, **_docs(wire.JobSeries))
    return routes
