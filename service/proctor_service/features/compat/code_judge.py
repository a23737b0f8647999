"""code-judge's /run and /judge, for one program and for batches, as used by rStar2 and RLinf.

`success` means exit code 0 and, with an expected output, the same output. /judge leaves out the
program's output.

Its clients read an item with `success: false` as a failure of the program. They ask again in two
cases: after an HTTP error, and (rStar2, code-judge's own client) for items with the reason
`queue_timeout`. RLinf sends batches of one program and reads no reason, so for one program a failure
of the service is a 503. For several it is `queue_timeout` for every item, also for those that are
done: rStar2's client mixes the items up when it asks again for a part of them a second time. The
work goes on meanwhile, and the repeated request gets its results.

Of a batch only the bytes of the body stay in memory. One pass finds where each item begins and ends, and
validates it; an item is decoded again when its turn comes. The values of 45,000 items at once would take
several times the memory of the body.
"""

from __future__ import annotations

import asyncio
import json
import re
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar
from uuid import uuid4

from fastapi import APIRouter
from pydantic import BaseModel, Field, ValidationError, field_validator
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from proctor_client import wire
from proctor_service.errors import Failure, InvalidRequest, Refusal, TooLarge
from proctor_service.features.compat.handler import (
    PREFIX,
    ClientProfile,
    CompatHandler,
    Form,
    Judged,
    RequestContext,
    answered,
    documented,
    limits,
)
from proctor_service.features.compat.skypilot import try_later
from proctor_service.http.body import parse_body, refused
from proctor_service.http.json import encode
from proctor_service.judge.submission import Judgement
from proctor_service.scheduling.pacer import Pacer

H = TypeVar("H", bound=BaseModel)
P = TypeVar("P", bound=BaseModel)

MOST_ITEMS = 1 << 16
TOKENS_AT_ONCE = 1024
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[\[\]{}]', re.DOTALL)
r"""A string, or a bracket. In `{"a\"[": [1]}`: `{`, `"a\"["`, `[`, `]` and `}`."""
_QUOTE, _OPENING = ord('"'), b"[{"
_BLANKS = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Batch(Generic[H, P]):
    """Items in the list of a body's field, and the body's other fields (`head`)."""

    field: str
    head: H
    model: type[P]
    body: bytearray
    bounds: array[int]

    def __len__(self) -> int:
        return len(self.bounds) // 2

    def __iter__(self) -> Iterator[P]:
        for index in range(len(self)):
            yield self.item(index)

    def item(self, index: int) -> P:
        """Decode an item. Raises InvalidRequest."""
        begin, end = self.bounds[2 * index], self.bounds[2 * index + 1]
        try:
            return self.model.model_validate(json.loads(self.body[begin:end].decode()))
        except ValidationError as error:
            raise refused(error, self.model, (self.field, index)) from None
        except (ValueError, RecursionError) as error:
            where = f"{self.field}.{index}"
            raise InvalidRequest(f"{where}: not JSON that is taken here: {error}") from None


async def parse_batch(field: str, head: type[H], item: type[P], body: bytearray) -> Batch[H, P]:
    """Return the batch of a body with a list of objects in `field`.

    Raises InvalidRequest, and TooLarge for more than MOST_ITEMS.
    """
    begin, end, bounds = await _list_in(field, body)
    rest = await parse_body(head, body[:begin] + body[end:])
    pacer = Pacer()
    batch = Batch(field, rest, item, body, bounds)
    at = begin
    for index in range(len(batch)):
        between = bytes(body[at : bounds[2 * index]]).strip(_BLANKS)
        if between != (b"," if index else b""):
            raise InvalidRequest(f"{field}.{index}: not an object")
        batch.item(index)
        at = bounds[2 * index + 1]
        await pacer.pause()
    if body[at:end].strip(_BLANKS):
        raise InvalidRequest(f"{field}.{len(batch)}: not an object")
    if not len(batch):
        raise InvalidRequest(f"{field}: there is none")
    return batch


async def _list_in(field: str, body: bytearray) -> tuple[int, int, array[int]]:
    """Return the places of the field's list, between its brackets, and those of its objects.

    The list of places has the begin and the end of each object.
    """
    pacer = Pacer()
    name = json.dumps(field).encode()
    bounds = array("Q")
    begin = end = depth = item = key_end = 0
    for number, token in enumerate(_TOKEN.finditer(body)):
        if number % TOKENS_AT_ONCE == 0:
            await pacer.pause()
        at = token.start()
        in_list = begin and not end
        if body[at] == _QUOTE:
            if depth == 1:
                key_end = token.end() if body[at : at + len(name)] == name else 0
        elif body[at] in _OPENING:
            depth += 1
            if depth == 3 and in_list:
                item = at
            elif depth == 2 and key_end:
                if bytes(body[key_end : at + 1]).translate(None, _BLANKS) == b":[":
                    if begin:
                        raise InvalidRequest(f"{field}: the body has it twice")
                    begin = at + 1
                key_end = 0
        else:
            depth -= 1
            if depth == 2 and in_list:
                if len(bounds) == 2 * MOST_ITEMS:
                    raise TooLarge(f"{field}: more than {MOST_ITEMS} items")
                bounds.extend((item, at + 1))
            elif depth == 1 and in_list:
                end = at
    if not end:
        raise InvalidRequest(f"{field}: the body has no such list")
    return begin, end, bounds


JOB = "code_judge"
LIMIT_SECONDS = 10.0
MEMORY_MB = 256
WAIT_SECONDS = 55.0  # the clients of rStar2 and RLinf wait for 60
INSIST_SECONDS = 45.0
PATIENCE_SECONDS = 3600.0  # as long as code-judge keeps a long batch
ITEMS_AT_ONCE = 256
BATCH_BODIES = 2
"""A batch may have twice the bytes of any other body: 45,000 small programs are 50 MB."""
SENT_BYTES = 1 << 16
MOST_SHOWN_CHARACTERS = 1000
SUBMISSIONS = "submissions"
QUEUE_TIMEOUT = "queue_timeout"
WORKER_TIMEOUT = "worker_timeout"

Result: TypeAlias = dict[str, Any]


class Program(Form):
    """A program, its input and, for a comparison, the expected output."""

    type: Literal["python", "cpp", "math"]
    solution: str
    input: str = ""
    expected_output: str | None = None
    sub_id: str | None = None

    @field_validator("type")
    @classmethod
    def _runs(cls, value: str) -> str:
        if value == "math":
            raise ValueError("math is not judged here yet, only python and cpp")
        return value


class BatchHead(Form):
    """Fields of a batch beside its programs."""

    type: Literal["batch"] = "batch"
    sub_id: str | None = None


class ProgramBatch(BatchHead):
    """Body of the routes for batches."""

    submissions: list[Program] = Field(min_length=1)


Programs: TypeAlias = Batch[BatchHead, Program]


async def _later(
    shows_output: bool, request: Request, payload: Program | Programs, error: Failure | Refusal
) -> Response:
    """Return the answer after which the client asks again: a 503, or `queue_timeout` for all."""
    if isinstance(payload, Program) or len(payload) == 1:
        return await try_later(request, payload, error)
    nothing = (_result(each, QUEUE_TIMEOUT, shows_output) for each in payload)
    return _batch_answer(payload.head.sub_id, map(encode, nothing))


async def _run(
    handler: CompatHandler, shows_output: bool, payload: Program, context: RequestContext
) -> Result:
    """Run a program, and compare its output if the request has the expected one."""
    case = wire.StdioCase(stdin=payload.input, stdout=payload.expected_output or "")
    submission = wire.Submission(
        completion=payload.solution,
        language=handler.language(payload.type, context.environment),
        grader=wire.StdioGrader(kind="stdio", cases=[case], compare="trimmed"),
    )
    bounds = limits(handler.machine.settings, LIMIT_SECONDS, memory_mb=MEMORY_MB)
    request = wire.RewardRequest(
        submissions=[submission], limits=bounds, extract="none", cache=not shows_output
    )
    [judged] = await handler.judge(request, context)
    assert isinstance(judged, Judged), "an expected output is no code"
    return _result(payload, "", shows_output, judged.judgement)


async def _run_batch(
    handler: CompatHandler, shows_output: bool, payload: Programs, context: RequestContext
) -> Response:
    """Run the programs of a batch, a window of them at a time.

    The first failure of the service ends the batch: its client asks for all of them again.
    """
    left = enumerate(payload)
    results: list[bytes] = [b""] * len(payload)

    async def take() -> None:
        for index, program in left:
            results[index] = encode(await _run(handler, shows_output, program, context))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(payload), ITEMS_AT_ONCE)):
                group.create_task(take())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return _batch_answer(payload.head.sub_id, iter(results))


def _result(
    payload: Program, reason: str, shows_output: bool, judgement: Judgement | None = None
) -> Result:
    """Return code-judge's result. Without a judgement the program has not run."""
    result: Result = {
        "sub_id": payload.sub_id or str(uuid4()),
        "success": False,
        "run_success": False,
        "cost": 0.0,
    }
    out = err = None
    if judgement is not None:
        usage = judgement.usage
        seconds = usage.cpu_seconds - usage.compile_seconds + usage.idle_seconds
        ran = judgement.verdict in ("passed", "failed")  # `failed`: another output than expected
        result["run_success"] = ran
        result["success"] = ran and (
            payload.expected_output is None or judgement.verdict == "passed"
        )
        result["cost"] = round(min(usage.wall_seconds, seconds), 6)
        reason = WORKER_TIMEOUT if judgement.verdict == "timeout" else ""
        out = judgement.stdout[:MOST_SHOWN_CHARACTERS]
        err = (judgement.stderr or ("" if ran else judgement.message))[:MOST_SHOWN_CHARACTERS]
    if shows_output:
        result |= {"stdout": out, "stderr": err}
    return result | {"reason": reason}


def _batch_answer(sub_id: str | None, results: Iterator[bytes]) -> Response:
    head = b'{"sub_id":%s,"results":[' % encode(sub_id or str(uuid4()))
    return StreamingResponse(_parts(head, results), media_type="application/json")


async def _parts(head: bytes, results: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the answer's bytes in parts that are worth sending."""
    part = bytearray(head)
    for index, result in enumerate(results):
        part += b"," + result if index else result
        if len(part) >= SENT_BYTES:
            yield bytes(part)
            part.clear()
    yield bytes(part + b"]}")


EXAMPLE = {
    "type": "python",
    "solution": "print(2 * int(input()))",
    "input": "21",
    "expected_output": "42",
    "sub_id": "a",
}
BATCH_EXAMPLE = {"type": "batch", SUBMISSIONS: [EXAMPLE], "sub_id": "b"}
JUDGED = {"sub_id": "a", "success": True, "run_success": True, "cost": 0.004, "reason": ""}
RAN = {**JUDGED, "stdout": "42\n", "stderr": ""}


def code_judge_routes(handler: CompatHandler) -> APIRouter:
    """Return the routes for programs and for batches, the ping and the status."""
    routes = APIRouter(prefix=PREFIX)
    _add_routes(routes, handler, "/run", True)
    _add_routes(routes, handler, "/judge", False)

    @routes.get("/ping", responses=answered("pong"))
    async def code_judge_ping() -> str:
        """code-judge: answers while the service runs."""
        return "pong"

    @routes.get("/status", responses=answered({"queue": 0, "num_workers": 4}))
    async def code_judge_status() -> dict[str, int]:
        """code-judge: programs that wait, and programs that may run at once."""
        return {"queue": handler.queued, "num_workers": handler.slots}

    return routes


def _add_routes(routes: APIRouter, handler: CompatHandler, path: str, shows_output: bool) -> None:
    later: Callable[..., Any] = partial(_later, shows_output)
    one: ClientProfile[Program] = ClientProfile(
        JOB, lambda payload: WAIT_SECONDS, later, INSIST_SECONDS
    )
    many: ClientProfile[Programs] = ClientProfile(
        JOB, lambda payload: WAIT_SECONDS, later, INSIST_SECONDS, PATIENCE_SECONDS
    )
    parse = partial(parse_batch, SUBMISSIONS, BatchHead, Program)
    result = RAN if shows_output else JUDGED

    async def run(request: Request) -> Response:
        do = partial(_run, handler, shows_output)
        return await handler.serve(request, Program, do, one)

    async def run_batch(request: Request) -> Response:
        do = partial(_run_batch, handler, shows_output)
        return await handler.serve_parsed(request, parse, do, many, BATCH_BODIES)

    does = "runs" if shows_output else "judges"
    routes.post(
        path,
        name=f"code_judge{path}",
        description=f"code-judge: {does} a program.",
        **documented(Program, EXAMPLE, result, 503),
    )(run)
    for kind in ("batch", "long-batch"):
        answer = {"sub_id": "b", "results": [result]}
        routes.post(
            f"{path}/{kind}",
            name=f"code_judge{path}/{kind}",
            description=f"code-judge: {does} a batch of programs.",
            **documented(ProgramBatch, BATCH_EXAMPLE, answer, 503),
        )(run_batch)
