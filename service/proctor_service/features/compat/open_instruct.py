"""open-instruct's code API: /test_program and /test_program_stdio, a verdict for each test.

Its client treats every answer except a 200, and every broken connection, as a reward of 0.0. The
client asks again in a single case: it follows redirects. So the service holds a request for as long
as the client waits, then redirects to the same address. Each redirect starts a new wait, and
`requests` follows 30 redirects. The work continues meanwhile.

Programs with input and output are judged as by LiveCodeBench, whose harness open-instruct uses: behind its
imports, and with its comparison of outputs.

Tests are a list, a list as JSON, or base64(zlib(pickle(list))). A pickle is a program. The unpickler
written in Python reads the pickle, with only the instructions for lists, tuples, dicts, texts, numbers
and None. So a pickle can neither name a class nor call a function. The C unpickler is unsuitable: a few
bytes can make it allocate any amount of memory.
"""

from __future__ import annotations

import asyncio
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from proctor_client import wire
from proctor_client.tasks.preludes import PRELUDES
from proctor_service.errors import Failure, InvalidRequest, InvalidTask, Overloaded, Refusal
from proctor_service.features.compat.handler import (
    MOST_TESTS,
    PREFIX,
    ClientProfile,
    CompatHandler,
    Form,
    Judged,
    RequestContext,
    documented,
    limits,
)

MOST_UNPACKED_BYTES = 128 << 20
MOST_CHARACTERS = 256 << 20
MOST_PIECES = 2_000_000
_PLAIN = """
    PROTO STOP MARK POP POP_MARK DUP PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET
    NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8
    EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS
    EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
"""


def _ignore_frame(unpickler: Any) -> None:
    """Skip the length of a frame, a mere hint for reading ahead."""
    unpickler.read(8)


class _PlainUnpickler(pickle._Unpickler):
    """Unpickler with only the instructions in `_PLAIN`; any other instruction is a KeyError."""

    dispatch = {
        code: pickle._Unpickler.dispatch[code]
        for code in (getattr(pickle, name)[0] for name in _PLAIN.split())
    } | {pickle.FRAME[0]: _ignore_frame}


class _Counted(io.BytesIO):
    """Bytes with a limited number of reads, at least a read for each instruction."""

    left = MOST_PIECES

    def read(self, size: int | None = -1, /) -> bytes:
        self._count()
        return super().read(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        self._count()
        return super().readline(size)

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise InvalidRequest("tests: a pickle of too many instructions")


def unpacked(tests: Any) -> list[Any]:
    """Return the list of tests. Raises InvalidRequest.

    Large tests may take seconds: call this function in a thread.
    """
    if isinstance(tests, str):
        tests = _from_text(tests)
    if isinstance(tests, list):
        return tests
    raise InvalidRequest("tests: not a list, nor one as JSON or base64(zlib(pickle))")


def check_size(texts: Iterable[str]) -> None:
    """Raise InvalidRequest for too many characters.

    A pickle of a few bytes can contain a long text a million times.
    """
    if sum(map(len, texts)) > MOST_CHARACTERS:
        raise InvalidRequest(f"tests: more than {MOST_CHARACTERS} characters")


def _from_text(text: str) -> Any:
    if not text.strip():
        return []
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        data = _inflated(binascii.a2b_base64(text))
        return _PlainUnpickler(_Counted(data)).load()
    except InvalidRequest:
        raise
    except Exception as error:  # a forged pickle breaks the unpickler in any way
        raise InvalidRequest(f"tests: not to be unpacked: {type(error).__name__}") from None


def _inflated(data: bytes) -> bytes:
    inflating = zlib.decompressobj()
    found = inflating.decompress(data, MOST_UNPACKED_BYTES)
    if not inflating.eof:
        raise InvalidRequest(f"tests: cut off, or more than {MOST_UNPACKED_BYTES} bytes")
    return found


JOB = "open_instruct"
SPARE_SECONDS = 4.0
TOLERANCE = 1e-15  # open-instruct compares decimals: 1.0 is 1.00
BETWEEN_TRIES_SECONDS = 1.0
"""Delay of a redirect after a failure: 30 redirects then last longer than a restart."""


class TestProgram(Form):
    """Body of both routes. `max_execution_time`: seconds for each test."""

    __test__ = False  # for pytest, which collects classes by the prefix Test

    program: str
    tests: Any = Field([])
    max_execution_time: float = Field(1.0, gt=0, allow_inf_nan=False)


class StdioTest(Form):
    """Input of a program and its expected output; a list of texts is joined as lines."""

    input: str | Annotated[list[str], Field(fail_fast=True)]
    output: str | Annotated[list[str], Field(fail_fast=True)]


_ASSERTS = TypeAdapter(Annotated[list[str], Field(fail_fast=True)])
_STDIO = TypeAdapter(Annotated[list[StdioTest], Field(fail_fast=True)])


def wait_seconds(payload: TestProgram) -> float:
    """Return the client's wait in seconds, minus a margin."""
    return max(30.0, min(300.0, 10 * payload.max_execution_time)) - SPARE_SECONDS


async def come_again(request: Request, payload: Any, error: Failure | Refusal) -> Response:
    """Return a redirect to the same address; its relative Location contains no token."""
    if not isinstance(error, Overloaded):
        await asyncio.sleep(BETWEEN_TRIES_SECONDS)
    query = f"?{request.url.query}" if request.url.query else ""
    where = request.url.path.rpartition("/")[2] + query
    return Response(status_code=307, headers={"Location": where, "X-Reason": error.reason})


MANNER: ClientProfile[TestProgram] = ClientProfile(
    JOB, wait_seconds, come_again, insist_seconds=60.0
)


async def _asserts(
    handler: CompatHandler, payload: TestProgram, context: RequestContext
) -> dict[str, Any]:
    found = await asyncio.to_thread(_checked, _ASSERTS, payload.tests)
    graders = [wire.AssertsGrader(kind="asserts", tests=[test]) for test in found]
    return await _judged(handler, payload, graders, None, context)


async def _stdio(
    handler: CompatHandler, payload: TestProgram, context: RequestContext
) -> dict[str, Any]:
    found = await asyncio.to_thread(_checked, _STDIO, payload.tests)
    graders = [
        wire.StdioGrader(
            kind="stdio",
            cases=[wire.StdioCase(stdin=_text(test.input), stdout=_text(test.output))],
            compare="trimmed",
            tolerance=TOLERANCE,
        )
        for test in found
    ]
    return await _judged(handler, payload, graders, PRELUDES["livecodebench"], context)


async def _judged(
    handler: CompatHandler,
    payload: TestProgram,
    graders: Sequence[wire.Grader],
    prelude: str | None,
    context: RequestContext,
) -> dict[str, Any]:
    if not graders:
        return {"results": [], "runtimes": []}
    request = wire.RewardRequest(
        submissions=[
            wire.Submission(completion=payload.program, grader=grader) for grader in graders
        ],
        prelude=prelude,
        limits=limits(handler.machine.settings, payload.max_execution_time),
        extract="none",
    )
    seconds = [_passed_in(each) for each in await handler.judge(request, context)]
    return {
        "results": [int(each is not None) for each in seconds],
        "runtimes": [-1.0 if each is None else each for each in seconds],
    }


def _passed_in(judged: Judged | InvalidTask) -> float | None:
    """Return the seconds of a passed test; None for a failed or broken test."""
    if isinstance(judged, InvalidTask) or judged.judgement.verdict != "passed":
        return None
    usage = judged.judgement.usage
    return round(min(usage.wall_seconds, usage.cpu_seconds + usage.idle_seconds), 6)


def _checked(adapter: TypeAdapter[Any], tests: Any) -> Any:
    found = unpacked(tests)
    if len(found) > MOST_TESTS:
        raise InvalidRequest(f"tests: {len(found)}, and at most {MOST_TESTS} are taken")
    try:
        valid = adapter.validate_python(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest(f"tests.{place}: {first['msg']}") from None
    check_size(text for test in valid for text in _texts(test))
    return valid


def _texts(test: str | StdioTest) -> list[str]:
    return [test] if isinstance(test, str) else [_text(test.input), _text(test.output)]


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "\n".join(value)


ASSERTS_EXAMPLE = {
    "program": "def double(n):\n    return 2 * n",
    "tests": ["assert double(2) == 4", "assert double(0) == 1"],
    "max_execution_time": 1.0,
}
STDIO_EXAMPLE = {
    "program": "print(int(input()) * 2)",
    "tests": [{"input": "21\n", "output": "42\n"}, {"input": "0\n", "output": "1\n"}],
    "max_execution_time": 1.0,
}
ANSWER = {"results": [1, 0], "runtimes": [0.004, -1.0]}


def open_instruct_routes(handler: CompatHandler) -> APIRouter:
    """Return the routes for both kinds of tests."""
    routes = APIRouter(prefix=PREFIX)
    redirect = {307: {"description": "not done yet: to the same address, once more"}}

    def docs(example: dict[str, Any]) -> dict[str, Any]:
        found = documented(TestProgram, example, ANSWER)
        found["responses"] |= redirect
        return found

    @routes.post("/test_program", **docs(ASSERTS_EXAMPLE))
    async def test_program(request: Request) -> Response:
        """open-instruct: tells which assert statements hold for a program."""
        return await handler.serve(request, TestProgram, partial(_asserts, handler), MANNER)

    @routes.post("/test_program_stdio", **docs(STDIO_EXAMPLE))
    async def test_program_stdio(request: Request) -> Response:
        """open-instruct: tells for which inputs a program prints the expected output."""
        return await handler.serve(request, TestProgram, partial(_stdio, handler), MANNER)

    return routes
