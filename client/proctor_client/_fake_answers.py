"""Answers of the fake service: whole bodies, lines, and ordered breaks of connections."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TypeAlias, get_args

import httpx
from pydantic import BaseModel

from proctor_client import wire

Judged: TypeAlias = float | str | wire.ItemError | wire.Result
"""Answer of a test's judge: a reward, a verdict, an error, or a whole result without its index."""


@dataclass(frozen=True)
class Plain:
    """A reusable answer; an httpx.Response can be sent only once."""

    status: int
    headers: dict[str, str]
    content: bytes

    def build(self) -> httpx.Response:
        """Return a new httpx.Response of this answer."""
        return httpx.Response(self.status, headers=self.headers, content=self.content)


@dataclass(frozen=True)
class Lines:
    """An answer with a line per result, and final lines after them."""

    results: list[bytes]
    last: list[bytes]


@dataclass(frozen=True)
class Order:
    """Planned outcome of a request: this answer, or a broken connection."""

    response: Plain | None = None
    after_results: int | None = None


@dataclass
class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Lines, followed by a broken connection if `breaks`."""

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
    """Build the answer, cut as the order says. Raises httpx.ReadError for a dropped answer."""
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
    """Return the error of a transport for a broken connection."""
    return httpx.ReadError("the connection was dropped, as ordered")


def problem(status: int, reason: str, message: str) -> Plain:
    """Return an error response in the contract's form."""
    return as_json(wire.ProblemBody(error=wire.Problem(reason=reason, message=message)), status)


def as_json(model: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Plain:
    """Return a whole JSON answer."""
    headers = {"Content-Type": "application/json", **(headers or {})}
    return Plain(status, headers, model.model_dump_json().encode())


def as_line(value: BaseModel | dict[str, BaseModel]) -> bytes:
    """Return a line of NDJSON."""
    if isinstance(value, dict):
        plain: object = {name: each.model_dump(mode="json") for name, each in value.items()}
    else:
        plain = value.model_dump(mode="json")
    return json.dumps(plain, ensure_ascii=False).encode() + b"\n"


def result_of(
    index: int, submission: wire.Submission, judged: Judged, evaluation_id: str
) -> wire.Result:
    """Return the judge's answer as a result. Raises ValueError for an unknown verdict.

    A whole result of the judge has an id of its own.
    """
    if isinstance(judged, wire.Result):
        return judged.model_copy(update={"index": index})
    blank = wire.Result(
        index=index,
        id=submission.id,
        group=submission.group,
        evaluation_id=evaluation_id,
        integrity="separated",
        cache="miss",
    )
    return blank.model_copy(update=judged_fields(judged))


def stands(result: wire.Result) -> bool:
    """Return True if the result is final: a repeated request would return the same result."""
    return result.error is None or not result.error.retryable


def judged_fields(judged: float | str | wire.ItemError) -> dict[str, object]:
    """Return the fields of a result or a trajectory defined by the judge's answer."""
    if isinstance(judged, wire.ItemError):
        return {"error": judged}
    if isinstance(judged, str):
        if judged not in get_args(wire.Verdict):
            raise ValueError(f"the judge said {judged!r}, which is no verdict")
        return {"verdict": judged, "reward": 1.0 if judged == "passed" else 0.0}
    return {"verdict": "passed" if judged >= 1 else "failed", "reward": float(judged)}
