"""Answers about the journal, made in the reader process (`process.py`): JSON, and bodies of pages.

Texts and JSON of submissions may be tens of megabytes; a page leaves out long JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, get_args

from pydantic_core import from_json

from proctor_client import wire
from proctor_client.wire import long_integers
from proctor_service.errors import NotFound, NotReplayable
from proctor_service.features.journal.answering.questions import TEXTS
from proctor_service.features.journal.filters import Filter
from proctor_service.features.journal.pages.render import Templates
from proctor_service.features.journal.reading import Page, Reader, Row, parsed
from proctor_service.features.journal.replay import request_json, why_not
from proctor_service.features.journal.series import By
from proctor_service.http.json import encode

Query = Mapping[str, Any]
"""Fields of a `wire.EvaluationQuery`."""
_AS_RECORDED = (
    "id", "job", "step", "task", "submission_id", "rollout_id", "tags", "verdict", "reward", "error",
    "integrity", "level", "negative_control", "exit_code", "cache", "seconds", "sandbox_id",
    "graded_sandbox_id",
    "trace_id", "version", "grader_kind", "completion_characters", "with_texts",
)  # fmt: skip
_ROLLOUT_AS_RECORDED = (
    "id", "job", "step", "task", "tags", "verdict", "reward", "error", "metrics", "sandbox_id",
    "version",
)  # fmt: skip
_JUDGED_AS_ANSWERED = (
    "verdict", "reward", "message", "tests", "integrity", "level", "hack_signals",
    "negative_control", "exit_code", "stdout", "stderr",
)  # fmt: skip
_CONDITIONS = ("extract", "language", "limits", "scoring", "environment")
_COMPARED = ("verdict", "reward", "error")
_COMPARED_BESIDE = (
    *_COMPARED, "integrity", "level", "negative_control", "exit_code", "version",
)  # fmt: skip
_NO_OUTPUT = {"message": None, "stdout": None, "stderr": None, "error_message": None}
_EMPTY_OUTPUT = {"message": "", "stdout": "", "stderr": ""}
_NO_CONVERSATION = {"messages_and_choices": None, "tools": None, "error_message": None}
_USAGE = (
    "cpu_seconds", "wall_seconds", "queue_seconds", "peak_memory_mb", "compile_seconds",
    "control_seconds",
)  # fmt: skip
FILTERS = ("job", "step", "task", "tag", "signal", "verdict", "error", "reward", "text")
SHORT_CHARACTERS = 1_000_000
_JSON = ("grader", "files", "output", "failures", "prompt")


def found_page(reader: Reader, tenant: str, query: Query) -> Page:
    """Return the rows of a query."""
    fields = {name: query[name] for name in query if name not in ("limit", "cursor", "text")}
    before = None if query["cursor"] is None else int(query["cursor"])
    return reader.evaluations(tenant, Filter(**fields, words=query["text"]), query["limit"], before)


def evaluation_row(reader: Reader, tenant: str, id_: str) -> Row:
    """Return a recorded evaluation. Raises NotFound."""
    row = reader.evaluation(tenant, id_)
    if row is None:
        raise NotFound(f"no evaluation {id_!a}")
    return row


def rollout_row(reader: Reader, tenant: str, id_: str) -> Row:
    """Return a recorded rollout. Raises NotFound."""
    row = reader.rollout(tenant, id_)
    if row is None:
        raise NotFound(f"no rollout {id_!a}")
    return row


def page(reader: Reader, tenant: str, query: Query) -> bytes:
    """Return the answer of GET /evaluations."""
    found = found_page(reader, tenant, query)
    following = None if found.following is None else str(found.following)
    return encode({"evaluations": [_evaluation(row) for row in found.rows], "next": following})


def detail(reader: Reader, tenant: str, id_: str) -> bytes:
    """Return the answer of GET /evaluations/{id}. Raises NotFound."""
    stored = evaluation_row(reader, tenant, id_)
    row = parsed(stored)
    conditions = row["conditions"] or {}
    return encode(
        {
            **_evaluation(row),
            **{name: conditions.get(name) for name in _CONDITIONS},
            "replayable": why_not(stored) is None,
            "source_begin": row["source_begin"],
            "truncated": row["truncated"] if row["with_texts"] else None,
            "tests": _tests(row),
            "completion": row["completion_text"],
            "source": row["source"],
            "grader": row["grader"],
            "files": row["files"] or {},
            "prompt": row["prompt"],
            **_output(row),
        }
    )


def replay_request(reader: Reader, tenant: str, id_: str) -> bytes:
    """Return the body of the request to judge an evaluation again.

    Raises NotFound and NotReplayable.
    """
    row = evaluation_row(reader, tenant, id_)
    reason = why_not(row)
    if reason is not None:
        raise NotReplayable(f"evaluation {row['id']} cannot be judged again: {reason}")
    return request_json(parsed(row))


def compared(reader: Reader, tenant: str, id_: str, line: bytes, version: str) -> bytes:
    """Return the answer of POST /evaluations/{id}/replay. Raises NotFound.

    `line`: the result of the replay, by the service of this version.
    """
    row = parsed(evaluation_row(reader, tenant, id_))
    result = from_json(line)
    replayed = {name: result[name] for name in _JUDGED_AS_ANSWERED}
    replayed |= {"error": None, "version": version}
    error = result["error"]
    if error is not None:
        replayed |= {"error": error["reason"], "message": error["message"]}
    recorded = {
        **{name: row[name] for name in _COMPARED_BESIDE},
        "hack_signals": row["signals"],
        "tests": _tests(row),
        **(row["output"] or _EMPTY_OUTPUT),
    }
    same = all(row[name] == replayed[name] for name in _COMPARED)
    return encode({"id": row["id"], "same": same, "recorded": recorded, "replayed": replayed})


def rollout(reader: Reader, tenant: str, id_: str) -> bytes:
    """Return the answer of GET /rollouts/{id}. Raises NotFound."""
    row = parsed(rollout_row(reader, tenant, id_))
    return encode(
        {
            **{name: row[name] for name in _ROLLOUT_AS_RECORDED},
            "at": _time(row["at"]),
            "evaluations": [_evaluation(each) for each in row["evaluations"]],
            **(row["conversation"] or _NO_CONVERSATION),
        }
    )


def jobs(reader: Reader, tenant: str) -> bytes:
    """Return the answer of GET /jobs."""
    names = ("job", "evaluations", "judged", "mean_reward", "last_step")
    found = [
        {**{name: row[name] for name in names}, "last_at": _time(row["last_at"])}
        for row in reader.jobs(tenant)
    ]
    return encode({"jobs": found})


def series(reader: Reader, tenant: str, job: str, by: By) -> bytes:
    """Return the answer of GET /jobs/{job}. Raises NotFound."""
    found = reader.job(tenant, job, by)
    if found is None:
        raise NotFound(f"no job {job!a} in the journal")
    points = [
        {**point, "at": _time(point["at"])} if "at" in point else point for point in found["series"]
    ]
    return encode({**found, "series": points})


class Views:
    """Bodies of pages with one tenant's records."""

    def __init__(self, reader: Reader, templates: Templates) -> None:
        self._reader = reader
        self._templates = templates

    def jobs_page(self, tenant: str) -> str:
        """Return the list of jobs."""
        return self._templates.html("jobs.html", jobs=self._reader.jobs(tenant))

    def job_page(self, tenant: str, job: str) -> str:
        """Return the figures and charts of a job. Raises NotFound."""
        found = self._reader.job_page(tenant, job)
        if found is None:
            raise NotFound("the journal has no evaluation of this job")
        return self._templates.html(
            "job.html",
            found={"job": job, **found["figures"]},
            steps=found["series"],
            times=found["times"],
            links=True,
        )

    def evaluations_page(self, tenant: str, query: Query, parameters: Mapping[str, str]) -> str:
        """Return the matching evaluations, with the form of the filters."""
        page = found_page(self._reader, tenant, query)
        filters = {name: parameters.get(name, "") for name in FILTERS}
        active = {name: value for name, value in filters.items() if value.strip()}
        return self._templates.html(
            "evaluations.html",
            rows=page.rows,
            filters=filters,
            active=active,
            following=page.following,
            is_first=query["cursor"] is None,
            choices={"verdict": get_args(wire.Verdict), "error": get_args(wire.ErrorReason)},
        )

    def evaluation_page(self, tenant: str, id_: str, csrf: str, compared: bytes | None) -> str:
        """Return an evaluation; `compared`: the comparison with a replay. Raises NotFound."""
        row = evaluation_row(self._reader, tenant, id_)
        short = {name: _parsed_if_short(row[f"{name}_json"]) for name in _JSON}
        return self._templates.html(
            "evaluation.html",
            row=row,
            **short,
            long=[name for name in _JSON if short[name] is None and row[f"{name}_json"]],
            conditions=row["conditions"] or {},
            why_not=why_not(row),
            csrf=csrf,
            compared=None if compared is None else from_json(compared),
        )

    def whole_text(self, tenant: str, id_: str, name: str) -> bytes:
        """Return a whole text of an evaluation. Raises NotFound."""
        row = evaluation_row(self._reader, tenant, id_)
        found = row[TEXTS[name]]
        if found is None:
            raise NotFound(f"evaluation {id_!a} has no such text")
        content: bytes = found.encode("utf-8", "surrogatepass")
        return content

    def rollout_page(self, tenant: str, id_: str) -> str:
        """Return a rollout as a conversation. Raises NotFound."""
        row = rollout_row(self._reader, tenant, id_)
        return self._templates.html(
            "rollout.html", row=row, conversation=_parsed_if_short(row["conversation_json"])
        )


def questions(reader: Reader) -> Mapping[str, Callable[..., bytes | str]]:
    """Return all questions by name. An answer in JSON is bytes, and the body of a page is text."""
    views = Views(reader, Templates())
    answers = (page, detail, replay_request, compared, rollout, jobs, series)
    pages: tuple[Callable[..., bytes | str], ...] = (
        views.jobs_page,
        views.job_page,
        views.evaluations_page,
        views.evaluation_page,
        views.rollout_page,
        views.whole_text,
    )
    return {
        **{each.__name__: partial(each, reader) for each in answers},
        **{each.__name__: each for each in pages},
    }


def _evaluation(row: Row) -> dict[str, Any]:
    """Return an evaluation as listed."""
    return {
        **{name: row[name] for name in _AS_RECORDED},
        "at": _time(row["at"]),
        "tests": {"passed": row["passed"], "total": row["total"], "failures": []},
        "hack_signals": row["signals"],
        "usage": {name: row[name] for name in _USAGE},
    }


def _tests(row: Row) -> dict[str, Any]:
    return {"passed": row["passed"], "total": row["total"], "failures": row["failures"] or []}


def _output(row: Row) -> dict[str, Any]:
    """Return the message, the message of the error and the streams; either message is empty."""
    output = row["output"]
    if output is None:
        return _NO_OUTPUT
    if row["error"] is None:
        return {**output, "error_message": ""}
    return {**output, "message": "", "error_message": output["message"]}


def _parsed_if_short(text: str | None) -> Any:
    """Return the value of a stored text; None for a missing or a long text."""
    return None if text is None or len(text) > SHORT_CHARACTERS else long_integers.loads(text)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
