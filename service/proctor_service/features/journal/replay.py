"""Replays of recorded evaluations: which are possible, and by which request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor_client.wire import long_integers
from proctor_client.wire.graders import GRADERS

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
    if row["verdict"] == "no_code" and not _judges_completion(row):
        return "the completion had no code"
    if None in (row["source"], row["grader_json"], row["files_json"], conditions):
        return "its texts are not in the journal any more"
    if _judges_completion(row):
        if row["completion_text"] is None:
            return "its completion is not in the journal any more"
        if row["source"] not in row["completion_text"]:
            return "its program has code of its task around, which is not recorded"
    return None


def submission_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the submission of an evaluation (`parsed`), in the form of the wire.

    A record from before a version lacks the later conditions. A grader of completions gets the whole
    completion, whose program is found again.
    """
    conditions = row["conditions"]
    submission = {
        "completion": row["source"],
        "grader": row["grader"],
        **{name: conditions[name] for name in _CONDITIONS if name in conditions},
        "files": row["files"],
    }
    if _judges_completion(row):
        is_program = row["source"] == row["completion_text"]
        submission["completion"] = row["completion_text"]
        submission["extract"] = "none" if is_program else conditions.get("extract", "auto")
        if row["prompt"] is not None:
            submission["prompt"] = row["prompt"]
    return submission


def request_json(row: Mapping[str, Any]) -> bytes:
    """Return the body of POST /reward for an evaluation (`parsed`) under the same conditions."""
    submissions = [submission_of(row)]
    request = {
        "extract": "none", "job": REPLAY_JOB, "cache": False, "submissions": submissions,
    }  # fmt: skip
    return long_integers.dumps(request).encode()


def _judges_completion(row: Mapping[str, Any]) -> bool:
    """Tell whether the grader sees the whole completion, and not only its code."""
    grader = GRADERS.get(row["grader_kind"])
    return grader is not None and grader.judges == "completion"
