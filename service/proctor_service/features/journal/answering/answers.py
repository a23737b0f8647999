"""JSON answers about the journal, made in the process that reads it (`process.py`).

Texts and JSON of submissions may be tens of megabytes. Stored JSON goes into an answer as it is, and
texts are encoded in parts, so that no thread keeps the interpreter from the others for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json

from proctor_service.errors import NotFound
from proctor_service.features.journal.filters import Filter
from proctor_service.features.journal.json_texts import for_answer
from proctor_service.features.journal.reading import Page, Reader, Row
from proctor_service.features.journal.replay import request_json, why_not
from proctor_service.features.journal.series import By
from proctor_service.http.json import encode, encode_long, joined, member

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
_NO_CONVERSATION = {"messages_and_choices": None, "tools": None, "error_message": None}
_MESSAGE, _ERROR_MESSAGE = b'{"message":', b'{"error_message":'


def found_page(reader: Reader, tenant: str, query: Query) -> Page:
    """Return the rows that fit a query."""
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
    row = evaluation_row(reader, tenant, id_)
    conditions = row["conditions"] or {}
    small = {
        **_evaluation(row),
        **{name: conditions.get(name) for name in _CONDITIONS},
        "replayable": why_not(row) is None,
        "source_begin": row["source_begin"],
        "truncated": row["truncated"] if row["with_texts"] else None,
    }
    del small["tests"]
    return joined(
        encode(small),
        member("tests", _tests(row)),
        member("completion", _text(row["completion_text"])),
        member("source", _text(row["source"])),
        member("grader", _json(row["grader_json"], "null")),
        member("files", _json(row["files_json"], "{}")),
        member("prompt", _json(row["prompt_json"], "null")),
        *_output(row),
    )


def replay_request(reader: Reader, tenant: str, id_: str) -> bytes:
    """Return the body of the request that judges an evaluation again.

    Raises NotFound and NotReplayable.
    """
    return request_json(evaluation_row(reader, tenant, id_))


def compared(reader: Reader, tenant: str, id_: str, line: bytes, version: str) -> bytes:
    """Return the answer of POST /evaluations/{id}/replay. Raises NotFound.

    `line`: the result of the replay, by the service of this version.
    """
    row = evaluation_row(reader, tenant, id_)
    result = from_json(line)
    replayed = {name: result[name] for name in _JUDGED_AS_ANSWERED}
    replayed |= {"error": None, "version": version}
    error = result["error"]
    if error is not None:
        replayed |= {"error": error["reason"], "message": error["message"]}
    small = {name: row[name] for name in _COMPARED_BESIDE}
    judged = joined(
        encode({**small, "hack_signals": row["signals"]}),
        member("tests", _tests(row)),
        _json(row["output_json"], '{"message":"","stdout":"","stderr":""}'),
    )
    same = all(row[name] == replayed[name] for name in _COMPARED)
    return joined(
        encode({"id": row["id"], "same": same}),
        member("recorded", judged),
        member("replayed", encode(replayed)),
    )


def rollout(reader: Reader, tenant: str, id_: str) -> bytes:
    """Return the answer of GET /rollouts/{id}. Raises NotFound."""
    row = rollout_row(reader, tenant, id_)
    small = {
        **{name: row[name] for name in _ROLLOUT_AS_RECORDED},
        "at": _time(row["at"]),
        "evaluations": [_evaluation(each) for each in row["evaluations"]],
    }
    conversation = row["conversation_json"]
    said = encode(_NO_CONVERSATION) if conversation is None else _json(conversation, "{}")
    return joined(encode(small), said)


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


def _evaluation(row: Row) -> dict[str, Any]:
    """Return an evaluation as listed."""
    return {
        **{name: row[name] for name in _AS_RECORDED},
        "at": _time(row["at"]),
        "tests": {**_counts(row), "failures": []},
        "hack_signals": row["signals"],
        "usage": {
            name: row[name]
            for name in (
                "cpu_seconds",
                "wall_seconds",
                "queue_seconds",
                "peak_memory_mb",
                "compile_seconds",
                "control_seconds",
            )
        },
    }


def _counts(row: Mapping[str, Any]) -> dict[str, int]:
    return {"passed": row["passed"], "total": row["total"]}


def _tests(row: Row) -> bytes:
    return joined(encode(_counts(row)), member("failures", _json(row["failures_json"], "[]")))


def _output(row: Row) -> tuple[bytes, ...]:
    """Return objects with the message, the message of the error and the streams.

    Of the first two one is empty; the journal has the other one.
    """
    if row["output_json"] is None:
        return (encode(_NO_OUTPUT),)
    output = _json(row["output_json"], "{}")
    if row["error"] is None:
        return output, member("error_message", b'""')
    return member("message", b'""'), _ERROR_MESSAGE + output.removeprefix(_MESSAGE)


def _json(stored: str | None, missing: str) -> bytes:
    return (missing if stored is None else for_answer(stored)).encode()


def _text(text: str | None) -> bytes:
    return b"null" if text is None else encode_long(text)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
