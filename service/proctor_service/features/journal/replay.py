"""Evaluations judged again from what the journal has of them: which can be, and by which request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from proctor_service.errors import NotReplayable
from proctor_service.http.json import encode_long, joined, member

REPLAY_JOB = "replay"
"""Job of all replays: they take turns with the tenant's training, and count in no job's figures."""
_CONDITIONS = ("limits", "scoring", "language", "environment", "negative_control", "compiler")


def why_not(row: Mapping[str, Any]) -> str | None:
    """Return why an evaluation (`Reader.evaluation`) cannot be judged again; None if it can."""
    conditions = row["conditions"]
    is_of_sandbox = row["graded_sandbox_id"] is not None or row["grader_kind"] == "harbor"
    if is_of_sandbox or (conditions or {}).get("with_state"):
        return "the files of a stateful sandbox were judged, and these are not recorded"
    if not row["with_texts"]:
        return "its texts were not recorded (PROCTOR_JOURNAL_TEXTS=false)"
    if row["verdict"] == "no_code":
        return "the completion had no code"
    if None in (row["source"], row["grader_json"], row["files_json"], conditions):
        return "its texts are not in the journal any more"
    return None


def submission_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the submission, in the form of the wire, that was judged in an evaluation (`parsed`)."""
    return {
        "completion": row["source"],
        "grader": row["grader"],
        **_conditions(row),
        "files": row["files"],
    }


def request_json(row: Mapping[str, Any]) -> bytes:
    """Return the body of POST /reward that judges the same code again, under the same conditions.

    Nothing in it is parsed. Raises NotReplayable.
    """
    reason = why_not(row)
    if reason is not None:
        raise NotReplayable(f"evaluation {row['id']} cannot be judged again: {reason}")
    submission = joined(
        _dumped(_conditions(row)),
        member("completion", encode_long(row["source"], _dumped)),
        member("grader", row["grader_json"].encode()),
        member("files", row["files_json"].encode()),
    )
    how = {"extract": "none", "job": REPLAY_JOB, "cache": False}
    return joined(_dumped(how), member("submissions", b"[" + submission + b"]"))


def _conditions(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions of a submission; a record from before a version lacks the later ones."""
    return {name: row["conditions"][name] for name in _CONDITIONS if name in row["conditions"]}


def _dumped(value: object) -> bytes:
    return json.dumps(value).encode()
