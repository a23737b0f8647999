"""What the fake service answers: whole bodies, lines, and connections that break as ordered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, get_args

import httpx
from pydantic import BaseModel

from proctor_client import wire

Judged: TypeAlias = float | str | wire.ItemError | wire.Result
"""What a judge says: a reward, a verdict, why there is none, or a whole result but its index."""


@dataclass(frozen=True)
class Plain:
    """An answer that may be given several times; an httpx.Response is used up by one."""

    status: int
    headers: dict[str, str]
    content: bytes

    def build(self) -> httpx.Response:
        """The answer, once."""
        return httpx.Response(self.status, headers=self.headers, content=self.content)


@dataclass(frozen=True)
class Lines:
    """An answer of results a line each, and the last words after them."""

    results: list[bytes]
    last: list[bytes]


@dataclass(frozen=True)
class Order:
    """What is to happen to one request: this answer, or a connection that breaks."""

    response: Plain | None = None
    after_results: int | None = None


@dataclass
class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Lines, and a break after them if one was ordered."""

    lines: list[bytes]
    breaks: bool = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self.lines
        if self.breaks:
            raise dropped()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for each in self:
            yield each


def deliver(answer: Plain | Lines, order: Order | None) -> httpx.Response:
    """The answer, or as much of it as was ordered. Raises httpx.ReadError when it is nothing."""
    if isinstance(answer, Plain):
        if order is not None:
            raise dropped()
        return answer.build()
    if order is None:
        body = _Body([*answer.results, *answer.last])
    elif order.after_results is not None:
        body = _Body(answer.results[: order.after_results], breaks=True)
    else:
        raise dropped()
    return httpx.Response(200, headers={"Content-Type": "application/x-ndjson"}, stream=body)


def dropped() -> httpx.ReadError:
    """What a transport raises when the connection breaks."""
    return httpx.ReadError("the connection was dropped, as ordered")


def problem(status: int, reason: str, message: str) -> Plain:
    """A refusal in the contract's form."""
    return as_json(wire.ProblemBody(error=wire.Problem(reason=reason, message=message)), status)


def as_json(model: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Plain:
    """A whole answer."""
    headers = {"Content-Type": "application/json", **(headers or {})}
    return Plain(status, headers, model.model_dump_json().encode())


def as_line(value: BaseModel | dict[str, BaseModel]) -> bytes:
    """A line of NDJSON."""
    if isinstance(value, dict):
        plain: object = {name: each.model_dump(mode="json") for name, each in value.items()}
    else:
        plain = value.model_dump(mode="json")
    return json.dumps(plain, ensure_ascii=False).encode() + b"\n"


def result_of(index: int, submission: wire.Submission, judged: Judged) -> wire.Result:
    """What the judge said, as a result. Raises ValueError for a verdict that is none."""
    if isinstance(judged, wire.Result):
        return judged.model_copy(update={"index": index})
    blank = wire.Result(
        index=index,
        id=submission.id,
        group=submission.group,
        evaluation_id=f"ev_fake_{index}",
        integrity="separated",
        cache="miss",
    )
    return blank.model_copy(update=said_of(judged))


def stands(result: wire.Result) -> bool:
    """Whether asking again would not change it."""
    return result.error is None or not result.error.retryable


def said_of(judged: float | str | wire.ItemError) -> dict[str, object]:
    """The fields of a result, or of a trajectory, that the judge's word decides."""
    if isinstance(judged, wire.ItemError):
        return {"error": judged}
    if isinstance(judged, str):
        if judged not in get_args(wire.Verdict):
            raise ValueError(f"the judge said {judged!r}, which is no verdict")
        return {"verdict": judged, "reward": 1.0 if judged == "passed" else 0.0}
    return {"verdict": "passed" if judged >= 1 else "failed", "reward": float(judged)}


def summary_of(results: Iterable[wire.Result]) -> wire.Summary:
    """The batch in one line."""
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
