"""Records of evaluations and rollouts: plain values, made in the listening process.

A record costs a few microseconds here. Encoding, hashing and compressing happen in the writer process
(`process.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from proctor_service.judge.submission import Judgement
from proctor_service.outcomes import Item, NoCode, Origin, Outcome, Trajectory, TrajectoryPlan
from proctor_service.processes.values import (
    Graders,
    compiler_values,
    judgement_values,
    limits_values,
)

Record = tuple[Any, ...]
"""Kind, and values for `marshal`; the same content costs the same bytes everywhere."""

EVALUATION, ROLLOUT = "evaluation", "rollout"
_NOTHING = Judgement("failed")
_NOWHERE = Origin()


def time_of(record: Record) -> float:
    """Return when a record was made, in seconds since the epoch."""
    at: float = record[1][1]
    return at


class Entries:
    """Maker of records. `with_texts`: False leaves out all texts of submissions."""

    def __init__(self, with_texts: bool) -> None:
        self._with_texts = with_texts
        self._graders = Graders()

    def evaluation(self, item: Item, outcome: Outcome, seconds: float) -> Record:
        """Return the record of an evaluation; `seconds`: from its admission to its end."""
        judgement, failure, origin = outcome.judgement, outcome.failure, item.origin or _NOWHERE
        submission = None if isinstance(item.submission, NoCode) else item.submission
        shown = judgement or _NOTHING
        head = (
            item.evaluation_id,
            time.time(),
            item.tenant,
            item.job,
            origin.step,
            origin.task,
            origin.submission_id,
            item.rollout_id,
            item.tags,
            None if judgement is None else judgement.verdict,
            outcome.reward,
            None if failure is None else failure.reason,
            outcome.cache,
            outcome.queue_seconds,
            seconds,
            item.graded_sandbox_id,
            item.traceparent,
            len(origin.completion) if submission is None else len(submission.source),
            None if submission is None else submission.grader.kind,
        )
        if not self._with_texts:
            return EVALUATION, head, judgement_values(shown), None, None
        texts = None
        if submission is not None:
            texts = (
                submission.source,
                self._graders.encode(submission.grader),
                limits_values(submission.limits),
                submission.scoring,
                submission.language,
                dict(submission.files),
                submission.state is not None or submission.tree_file is not None,
                submission.environment,
                submission.negative_control,
                compiler_values(submission.compiler),
            )
        rule = origin.extract if isinstance(origin.extract, str) else origin.extract.model_dump()
        why = "" if failure is None else failure.message
        completion, prompt = origin.completion, origin.prompt
        if submission is not None and submission.grader.judges == "completion":
            completion = completion or submission.completion
            prompt = prompt or ("" if submission.prompt is None else json.dumps(submission.prompt))
        answer_texts = (completion, rule, why, prompt)
        return EVALUATION, head, judgement_values(shown), answer_texts, texts

    def rollout(self, plan: TrajectoryPlan, trajectory: Trajectory) -> Record:
        """Return the record of a rollout."""
        failure = trajectory.failure
        head = (
            plan.rollout_id,
            time.time(),
            plan.tenant,
            plan.job,
            plan.step,
            plan.task.id,
            plan.tags,
            trajectory.verdict,
            trajectory.reward,
            None if failure is None else failure.reason,
            dict(trajectory.metrics),
            trajectory.sandbox_id,
        )
        if not self._with_texts:
            return ROLLOUT, head, None
        conversation: Mapping[str, Any] = {
            "messages_and_choices": list(trajectory.messages_and_choices),
            "tools": [dict(each) for each in trajectory.tools or ()],
            "error_message": "" if failure is None else failure.message,
        }
        return ROLLOUT, head, conversation
