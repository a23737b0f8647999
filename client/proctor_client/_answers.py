"""Parsing of the service's answers. Any answer outside the contract raises ProtocolError.

JSON strings may contain an unescaped U+2028 or similar characters, which `str.splitlines` and
httpx's `iter_lines` treat as line ends. In NDJSON only b"\\n" ends a line, so this module splits
the lines.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pydantic import ValidationError

from proctor_client import wire
from proctor_client.errors import ProtocolError
from proctor_client.wire import long_integers

M = TypeVar("M", bound=wire.Response)


class NotJson(ProtocolError):
    """Raised for a body that breaks off, or is text in another format than JSON."""


class Lines:
    """Splitter of a byte stream into lines. An unterminated last line counts if it is JSON."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes | None) -> Iterator[bytes]:
        """Yield the non-blank lines completed by `chunk`; None marks the end of the stream."""
        if chunk is None:
            rest = b"".join(self._parts)
            self._parts = []
            if _is_json(rest):
                yield rest
            return
        *whole, tail = chunk.split(b"\n")
        for line in whole:
            full = b"".join([*self._parts, line])
            self._parts = []
            if full.strip():
                yield full
        if tail:
            self._parts.append(tail)


def parse_line(line: bytes) -> wire.Result | wire.Summary | wire.Problem:
    """Parse a line of the stream: a result, the summary, or a problem of the service.

    Raises ProtocolError for any other line.
    """
    try:
        value = json.loads(line)
        if isinstance(value, dict) and "summary" in value:
            return wire.SummaryLine.model_validate(value).summary
        if isinstance(value, dict) and "error" in value and "index" not in value:
            return wire.ProblemBody.model_validate(value).error
        return wire.Result.model_validate(value)
    except ValidationError as error:
        raise ProtocolError(f"a line of the stream is no result: {_first(error)}") from None
    except ValueError:
        raise ProtocolError("a line of the stream is not JSON") from None


def parse_reward_response(body: bytes, count: int) -> wire.RewardResponse:
    """Parse the answer of POST /reward, and check for `count` results in order.

    Raises ProtocolError otherwise: a trainer pairs rewards with completions by position.
    """
    response = parse_model(wire.RewardResponse, body)
    if [result.index for result in response.results] != list(range(count)):
        raise ProtocolError(f"the answer does not hold {count} results in the request's order")
    return response


def parse_exec_line(line: bytes) -> wire.ExecLine | wire.Problem:
    """Parse a line of an execution's stream, or a problem.

    Raises ProtocolError for any other line.
    """
    value = _object(line)
    try:
        if value.get("error") is not None:
            return wire.ProblemBody.model_validate(value).error
        return wire.ExecLine.model_validate(value)
    except ValidationError as error:
        raise ProtocolError(f"a line of the stream is no output: {_first(error)}") from None


class TrajectoryLines:
    """Parser of a rollout's stream, which counts the trajectories of each task."""

    def __init__(self, request: wire.RolloutRequest) -> None:
        self._missing = Counter(_task_ids(request))

    def parse(self, line: bytes) -> wire.Trajectory | wire.RolloutSummary | wire.Problem:
        """Parse a line. Raises ProtocolError for a surplus or a missing trajectory."""
        value = _object(line)
        try:
            if "summary" in value:
                if self._missing.total():
                    raise ProtocolError(f"{self._missing.total()} trajectories are missing")
                return wire.RolloutSummary.model_validate(value["summary"])
            if "error" in value and "task_id" not in value:
                return wire.ProblemBody.model_validate(value).error
            trajectory = wire.Trajectory.model_validate(value)
        except ValidationError as error:
            raise ProtocolError(f"a line is no trajectory: {_first(error)}") from None
        if not self._missing[trajectory.task_id]:
            raise ProtocolError(f"a trajectory too many, of task {trajectory.task_id!r}")
        self._missing[trajectory.task_id] -= 1
        return trajectory


def parse_rollout_response(body: bytes, request: wire.RolloutRequest) -> wire.RolloutResponse:
    """Parse the answer of POST /rollout, and check for every trajectory in the order of the tasks.

    Raises ProtocolError otherwise.
    """
    response = parse_model(wire.RolloutResponse, body)
    if [each.task_id for each in response.trajectories] != _task_ids(request):
        raise ProtocolError("the answer does not hold the trajectories in the request's order")
    return response


def parse_model(model: type[M], body: bytes) -> M:
    """Parse `body` as a `model`. Raises ProtocolError for an invalid body, and NotJson."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        is_json = error.errors(include_input=False)[0]["type"] != "json_invalid"
        if not is_json:  # or has an integer with more digits than pydantic takes
            with contextlib.suppress(ValueError):
                return model.model_validate(long_integers.loads(body))
        kind = ProtocolError if is_json else NotJson
        raise kind(f"the answer is no {model.__name__}: {_first(error)}") from None


def completed(earlier: wire.RewardResponse, later: wire.RewardResponse) -> wire.RewardResponse:
    """Return the response with the later results of items that the service had handed back.

    A restarted service may judge earlier items again, or hand them back.
    """
    results = [
        after if is_back(before) else before
        for before, after in zip(earlier.results, later.results, strict=True)
    ]
    return later.model_copy(update={"results": results, "summary": summary_of(results)})


def summary_of(results: Iterable[wire.Result]) -> wire.Summary:
    """Return the summary of the batch."""
    results = list(results)
    rewards = [each.reward for each in results if each.reward is not None]
    return wire.Summary(
        count=len(results),
        judged=len(rewards),
        passed=sum(each.verdict == "passed" for each in results),
        no_code=sum(each.verdict == "no_code" for each in results),
        errors=sum(each.error is not None for each in results),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
    )


def is_back(result: wire.Result) -> bool:
    """Return True for a submission left unjudged by a stopping service."""
    return result.error is not None and result.error.reason == "cancelled"


def check_index(result: wire.Result, count: int) -> None:
    """Raise ProtocolError for a result beyond the `count` submissions."""
    if not 0 <= result.index < count:
        raise ProtocolError(f"result {result.index} of a request with {count} submissions")


def check_complete(seen: set[int], count: int) -> None:
    """Raise ProtocolError unless each of `count` results was seen before the summary."""
    if len(seen) != count:
        raise ProtocolError(f"the stream ended with {len(seen)} of {count} results")


def _task_ids(request: wire.RolloutRequest) -> list[str]:
    return [task.id for task in request.tasks for _ in range(request.trajectories_per_task)]


def _object(line: bytes) -> dict[str, object]:
    try:
        value = json.loads(line)
    except ValueError:
        raise ProtocolError("a line of the stream is not JSON") from None
    if not isinstance(value, dict):
        raise ProtocolError("a line of the stream is not a JSON object")
    return value


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'body'}: {first['msg']}"
