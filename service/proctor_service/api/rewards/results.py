"""Conversion of domain results to the wire: an outcome to a line, and a batch to its summary.

Results are plain dicts, encoded once: a pydantic model for each of a thousand results would cost
more than judging some of them. A test checks the dicts against the wire's models.
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
from proctor_service.api.rewards.items import Entry
from proctor_service.errors import Failure as NotJudged
from proctor_service.errors import JudgeFailed
from proctor_service.evaluate import Outcome
from proctor_service.judge.submission import Judgement

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NOTHING = Judgement("failed")  # default fields of an item without a verdict


@dataclass(frozen=True, slots=True)
class Line:
    """An encoded result, with the fields needed by the summary and by a repeated request."""

    json: bytes
    reward: float | None
    verdict: str | None
    retryable: bool = False


def line(entry: Entry, outcome: Outcome, degraded: tuple[str, ...]) -> Line:
    """Return the result of one submission."""
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
    """Encode JSON in valid UTF-8, for any output of a submission.

    UTF-8 cannot encode a lone surrogate, and most parsers reject its JSON escape as well: one
    submission could make the whole batch unreadable. The surrogate becomes its six-character Python
    escape.
    """
    try:
        return to_json(body, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeEncodeError):
        text = json.dumps(_finite(body), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return _LONE_SURROGATE.sub(_shown, text).encode()


def _finite(value: Any) -> Any:
    """Replace each NaN and infinity by null: JSON has no form for them."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(found: re.Match[str]) -> str:
    return f"\\\\u{ord(found[0]):04x}"


def summary(lines: Iterable[Line]) -> bytes:
    """Return the summary of a batch, as JSON."""
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
