"""Answers for the completions of a call, and summaries of the call as text and as metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from proctor_client import ProctorError, wire
from proctor_client.stats import Counts, Outcome


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer for a completion: a reward and a verdict, or `error` with the reason."""

    reward: float | None = None
    verdict: str = ""
    error: str = ""
    hack_signals: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: wire.Result) -> Self:
        """Convert a result of the service to an answer."""
        if result.error is not None:
            return cls.unjudged(result.error.reason, result.error.message)
        if result.reward is None or not math.isfinite(result.reward):
            return cls.unjudged("protocol", "a result with neither a reward nor an error")
        return cls(result.reward, str(result.verdict), hack_signals=tuple(result.hack_signals))

    @classmethod
    def failed(cls, error: ProctorError) -> Self:
        """Return the answer for each completion of a failed request."""
        return cls.unjudged(error.reason, error.message)

    @classmethod
    def unjudged(cls, reason: str, message: str) -> Self:
        """Return an answer without a reward, with the reason."""
        return cls(error=f"{reason}: {message}")

    @property
    def verdict_text(self) -> str:
        """The verdict, or `error: …` with its reason."""
        return f"error: {self.error.partition(':')[0]}" if self.error else self.verdict


def line_of(number: int, answers: Sequence[Answer], seconds: float) -> str:
    """Return the summary of a call as a line."""
    verdicts = Counter(each.verdict for each in answers if not each.error)
    judged = verdicts.total()
    return (
        f"[proctor] reward call {number}: {judged} judged, {verdicts['passed']} passed, "
        f"{verdicts['no_code']} skipped (no code), {len(answers) - judged} unavailable, "
        f"{seconds:.2f} s"
    )


def metrics_of(answers: Sequence[Answer], seconds: float) -> dict[str, float]:
    """Return the metrics of a call: shares of the judged completions, `unavailable_rate` of all.

    The names are always the same, because trainers on several devices gather metrics by name. A
    share of zero completions is NaN.
    """
    judged = [each for each in answers if not each.error]

    def share(count: int, of: int) -> float:
        return count / of if of else math.nan

    verdicts = Counter(each.verdict for each in judged)
    return {
        "pass_rate": share(verdicts["passed"], len(judged)),
        "no_code_rate": share(verdicts["no_code"], len(judged)),
        "hack_signal_rate": share(sum(bool(each.hack_signals) for each in judged), len(judged)),
        "unavailable_rate": share(len(answers) - len(judged), len(answers)),
        "latency_seconds": seconds,
    }


def count_executions(counts: Counts, call: int, answers: Sequence[Answer]) -> None:
    """Count the sandboxes and executions of a call as a session counts its own.

    Each completion with code is an execution in a sandbox of its own: a success if all tests passed, an
    error at a limit of time or without a verdict, and otherwise a failure.
    """
    for place, each in enumerate(answers):
        if each.verdict != "no_code":
            sandbox = f"{call}:{place}"
            counts.created(sandbox)
            counts.executed(sandbox, _outcome_of(each))


def _outcome_of(answer: Answer) -> Outcome:
    if answer.error or answer.verdict == "timeout":
        return "error"
    return "success" if answer.verdict == "passed" else "failure"
