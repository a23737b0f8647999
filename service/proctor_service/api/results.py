"""Domain to wire: an outcome as the line that the client gets, and the batch in one line.

Results are built as plain dicts and encoded once: a model for each of a thousand results would cost
more than judging some of them. A test holds them against the wire's models.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from proctor_client.wire import MAX_FAILURES, Failure
from proctor_service.api.translate import Entry
from proctor_service.errors import Failure as NotJudged
from proctor_service.errors import JudgeFailed
from proctor_service.evaluate import Outcome
from proctor_service.judge.submission import Judgement

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NOTHING = Judgement("failed")  # its fields other than the verdict stand in an item without one


@dataclass(frozen=True, slots=True)
class Line:
    """A finished result: its JSON, and what the summary and a repeated request need of it."""

    json: bytes
    reward: float | None
    verdict: str | None
    retryable: bool = False


def line(entry: Entry, outcome: Outcome, degraded: tuple[str, ...]) -> Line:
    """The result of one submission."""
    failure = outcome.failure
    judgement = outcome.judgement
    if failure is None and (judgement is None or outcome.reward is None):
        failure = JudgeFailed("the judge said nothing")
    if failure is not None or judgement is None:
        return _failed(entry, failure or JudgeFailed("no judgement"), outcome, degraded)
    body = _body(entry, judgement, outcome, degraded)
    body["reward"] = outcome.reward
    body["verdict"] = judgement.verdict
    return Line(encode(body), outcome.reward, judgement.verdict)


def _failed(entry: Entry, failure: NotJudged, outcome: Outcome, degraded: tuple[str, ...]) -> Line:
    body = _body(entry, _NOTHING, outcome, degraded)
    body["error"] = {
        "reason": failure.reason,
        "message": failure.message,
        "retryable": failure.retryable,
    }
    return Line(encode(body), None, None, failure.retryable)


def _body(
    entry: Entry, judgement: Judgement, outcome: Outcome, degraded: tuple[str, ...]
) -> dict[str, Any]:
    usage = judgement.usage
    return {
        "index": entry.index,
        "id": entry.id,
        "group": entry.group,
        "evaluation_id": entry.item.evaluation_id,
        "reward": None,
        "verdict": None,
        "error": None,
        "tests": {
            "passed": judgement.passed,
            "total": judgement.total,
            "failures": [_failure(each) for each in judgement.failures[:MAX_FAILURES]],
        },
        "message": judgement.message,
        "stdout": judgement.stdout,
        "stderr": judgement.stderr,
        "truncated": judgement.truncated,
        "exit_code": judgement.exit_code,
        "integrity": judgement.integrity,
        "level": judgement.level,
        "hack_signals": list(judgement.hack_signals),
        "usage": {
            "cpu_seconds": round(usage.cpu_seconds, 6),
            "wall_seconds": round(usage.wall_seconds, 6),
            "queue_seconds": round(outcome.queue_seconds, 6),
            "peak_memory_mb": round(usage.peak_memory_mb, 3),
        },
        "cache": outcome.cache,
        "sandbox_id": judgement.sandbox_id,
        "degraded": degraded,
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {"index": failure.index, "test": failure.test, "message": failure.message}


def encode(body: dict[str, Any]) -> bytes:
    """JSON in valid UTF-8, whatever a submission printed.

    A lone surrogate cannot be in UTF-8, and most parsers refuse its escape as well: one submission
    could spoil its whole batch. It is shown as the six characters that stand for it in Python.
    """
    try:
        return to_json(body, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeEncodeError):
        text = json.dumps(_finite(body), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return _LONE_SURROGATE.sub(_shown, text).encode()


def _finite(value: Any) -> Any:
    """The value with null for each number that JSON has none for."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(found: re.Match[str]) -> str:
    return f"\\\\u{ord(found[0]):04x}"


def summary(lines: Iterable[Line]) -> bytes:
    """The summary of a batch, as JSON."""
    count = passed = no_code = 0
    rewards: list[float] = []
    for each in lines:
        count += 1
        passed += each.verdict == "passed"
        no_code += each.verdict == "no_code"
        if each.reward is not None:
            rewards.append(each.reward)
    judged = len(rewards)
    return encode(
        {
            "count": count,
            "judged": judged,
            "passed": passed,
            "no_code": no_code,
            "errors": count - judged,
            "mean_reward": sum(rewards) / judged if judged else None,
        }
    )
