"""Evaluations judged again from what the journal has of them: which can be, and by which request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor_service.errors import NotReplayable

REPLAY_JOB = "replay"
"""Job of all replays: they take turns with the tenant's training, and count in no job's figures."""


def why_not(row: Mapping[str, Any]) -> str | None:
    """Return why an evaluation (`Reader.evaluation`) cannot be judged again; None if it can."""
    if row["graded_sandbox_id"] is not None or (row["conditions"] or {}).get("with_state"):
        return "the files of a stateful sandbox were judged, and these are not recorded"
    if not row["with_texts"]:
        return "its texts were not recorded (PROCTOR_JOURNAL_TEXTS=false)"
    if row["verdict"] == "no_code":
        return "the completion had no code"
    if row["source"] is None or row["grader"] is None or row["conditions"] is None:
        return "its texts are not in the journal any more"
    return None


def submission_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the submission, in the form of the wire, that was judged in an evaluation."""
    conditions = row["conditions"]
    return {
        "completion": row["source"],
        "grader": row["grader"],
        "limits": conditions["limits"],
        "scoring": conditions["scoring"],
        "language": conditions["language"],
        "files": conditions["files"],
    }


def request_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of POST /reward that judges the same code again, under the same conditions.

    Raises NotReplayable.
    """
    reason = why_not(row)
    if reason is not None:
        raise NotReplayable(f"evaluation {row['id']} cannot be judged again: {reason}")
    return {
        "submissions": [submission_of(row)],
        "extract": "none",
        "job": REPLAY_JOB,
        "cache": False,
    }
