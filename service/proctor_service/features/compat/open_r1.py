"""open-r1's routers: /execute_batch, in the formats of E2B's and Morph's code interpreters.

E2B's client takes `float()` of the value of a script's last expression as the reward, and reads
`execution: null` as a missing reward. Morph's client takes `float(text)`; a missing or null `text`
turns the whole batch into 0.0. Morph's format cannot express a missing reward, so a failure of the
service is `nan`, the trainer's number for None. Null stands only for failures of the service. A
script stopped by a limit has the value 0.0: a time limit without a reward would be a way out of a
bad reward.

Both clients never retry. Morph's client waits for its `request_timeout`, then takes 0.0 for the
batch. Shortly before this time, unfinished scripts become failures of the service, and the finished
scripts keep their values.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from proctor_service.errors import Failure, InvalidRequest, Overloaded, Refusal
from proctor_service.features.compat.cells import OUTPUT_KB, Cell, Kernel, reported
from proctor_service.features.compat.handler import (
    PREFIX,
    ClientProfile,
    CompatHandler,
    Form,
    RequestContext,
    all_of,
    answered,
    documented,
    limits,
)
from proctor_service.features.compat.program_runner import Program
from proctor_service.judge.run import text_of
from proctor_service.sandbox.interface import Ended

JOB = "open_r1"
DEFAULT_SECONDS = 300.0
WAIT_SECONDS = 900.0  # E2B's client waits without a limit
SPARE_SECONDS = 1.0  # margin within the wait of Morph's client
LAST_SECONDS = 4.0  # longest part of the wait reserved for ending unfinished scripts
LAST_PART = 0.2
MOST_SCRIPTS = 4096
NO_REWARD = "0.0"
NOT_A_REWARD = "nan"
ENDINGS = {
    "cpu_limit": ("TimeoutError", "it ran for longer than it may"),
    "wall_limit": ("TimeoutError", "it ran for longer than it may"),
    "memory_limit": ("MemoryError", "it used more memory than it may"),
    "output_limit": ("OutputLimit", "it wrote more than it may"),
}
LEFT = ("SystemExit", "it ended before its last expression")


class ExecuteBatch(Form):
    """Body of /execute_batch. `timeout`: seconds for each script.

    `request_timeout`: seconds that Morph's client waits for the whole batch. E2B's client ignores
    its value.
    """

    scripts: list[str] = Field(max_length=MOST_SCRIPTS)
    languages: list[str | None] = Field([], max_length=MOST_SCRIPTS)
    language: str = "python"
    timeout: float = Field(DEFAULT_SECONDS, gt=0)
    request_timeout: float = Field(0.0, ge=0)


def wait_seconds(payload: ExecuteBatch) -> float:
    """Return the client's wait in seconds, minus a margin.

    Only Morph's client sends a `request_timeout` above the `timeout` of the scripts.
    """
    if payload.request_timeout > payload.timeout:
        return max(payload.request_timeout - SPARE_SECONDS, payload.request_timeout / 2)
    return WAIT_SECONDS


async def all_null(request: Request, payload: ExecuteBatch, error: Failure | Refusal) -> Response:
    """Return an answer without a reward for any script."""
    nothing = _nothing(f"{error.reason}: {error.message}")
    return JSONResponse([nothing] * len(payload.scripts))


MANNER: ClientProfile[ExecuteBatch] = ClientProfile(JOB, wait_seconds, all_null)


async def _execute_batch(
    handler: CompatHandler, kernel: Kernel, payload: ExecuteBatch, context: RequestContext
) -> list[dict[str, Any]]:
    languages = payload.languages or [payload.language] * len(payload.scripts)
    if len(languages) != len(payload.scripts):
        raise InvalidRequest(f"languages: {len(languages)} for {len(payload.scripts)} scripts")
    left_seconds = context.answer_by - asyncio.get_running_loop().time()
    until = context.answer_by - min(LAST_SECONDS, LAST_PART * left_seconds)
    return await all_of(
        _execute_until(
            until, handler, kernel, script, language or "python", payload.timeout, context
        )
        for script, language in zip(payload.scripts, languages, strict=True)
    )


async def _execute_until(
    until: float,
    handler: CompatHandler,
    kernel: Kernel,
    script: str,
    language: str,
    seconds: float,
    context: RequestContext,
) -> dict[str, Any]:
    """Return the script's result, or a missing reward after `until` (monotonic clock)."""
    try:
        async with asyncio.timeout_at(until) as limit:
            return await _execute(handler, kernel, script, language, seconds, context)
    except TimeoutError:
        if not limit.expired():
            raise
        return _nothing(f"{Overloaded.reason}: it is not done yet")


async def _execute(
    handler: CompatHandler,
    kernel: Kernel,
    script: str,
    language: str,
    seconds: float,
    context: RequestContext,
) -> dict[str, Any]:
    try:
        language = handler.language(language, context.environment)
        if language != "python":
            return await _execute_other(handler, script, language, seconds, context)
        program = kernel.program(handler.machine, [unindented(script)], seconds)
        came = await handler.run(program, context)
    except (Failure, Refusal) as error:
        return _nothing(f"{error.reason}: {error.message}")
    cells = reported(came, 1)
    if cells:
        return _execution(cells[0])
    assert came.ran is not None, "Python is not compiled"
    return _cut_short(came.ran)


async def _execute_other(
    handler: CompatHandler, script: str, language: str, seconds: float, context: RequestContext
) -> dict[str, Any]:
    """Run a program in another language; the result has output, but no value."""
    settings = handler.machine.settings
    bounds = handler.machine.limits(limits(settings, seconds, output_kb=OUTPUT_KB), "limits")
    most = min(seconds, settings.max_wall_seconds)
    came = await handler.run(Program(script, bounds, most, most, language), context)
    ended = came.ran or came.compiled
    assert ended is not None, "one of them ended"
    if ended.ending != "exited":
        return _cut_short(ended)
    out, err = text_of(ended.stdout), text_of(ended.stderr)
    failed = {"name": "ExitCode", "value": str(ended.exit_code), "traceback": err}
    return _form(None, out, err, failed if ended.exit_code else None)


def _execution(cell: Cell) -> dict[str, Any]:
    error, value = None, cell.value
    if cell.error:
        first = cell.error[0]
        text = "".join(first.traceback)
        error = {"name": first.ename, "value": first.evalue, "traceback": text}
        value = NO_REWARD if first.ename == LEFT[0] else value
    return _form(value, cell.stdout, cell.stderr, error)


def _cut_short(ended: Ended) -> dict[str, Any]:
    """Return the result of a script stopped by a limit, or with an exit before its value."""
    name, value = ENDINGS.get(ended.ending, LEFT)
    error = {"name": name, "value": value, "traceback": ""}
    return _form(NO_REWARD, "", text_of(ended.stderr), error)


def _nothing(why: str) -> dict[str, Any]:
    """Return the result for a missing reward."""
    return {"execution": None, "text": NOT_A_REWARD, "exception_str": why}


def _form(value: str | None, out: str, err: str, error: dict[str, str] | None) -> dict[str, Any]:
    results = [] if value is None else [{"text": value, "is_main_result": True}]
    execution = {
        "results": results,
        "logs": {"stdout": [out] if out else [], "stderr": [err] if err else []},
        "error": error,
        "execution_count": 1,
    }
    text = value if value is not None else "" if error else out
    return {"execution": execution, "text": text, "exception_str": None}


def unindented(script: str) -> str:
    """Remove the first line's indentation from all lines with this indentation, like a notebook."""
    lines = script.splitlines(keepends=True)
    first = next((line for line in lines if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip())]
    return "".join(line.removeprefix(indent) for line in lines)


EXAMPLE = {
    "scripts": ["    passed = 3\n    passed / 4\n"],
    "languages": ["python"],
    "timeout": 30,
    "request_timeout": 28,
}
ANSWER = [_form("0.75", "", "", None)]


def open_r1_routes(handler: CompatHandler) -> APIRouter:
    """Return the routes for scripts and for health."""
    routes = APIRouter(prefix=PREFIX)
    kernel = Kernel()

    @routes.post("/execute_batch", **documented(ExecuteBatch, EXAMPLE, ANSWER))
    async def execute_batch(request: Request) -> Response:
        """open-r1: runs scripts, and returns the value of each script's last expression."""
        do = partial(_execute_batch, handler, kernel)
        return await handler.serve(request, ExecuteBatch, do, MANNER)

    @routes.get("/health", responses=answered({"status": "ok"}))
    async def health() -> dict[str, str]:
        """open-r1, open-instruct, SkyPilot: answers while the service runs."""
        return {"status": "ok"}

    return routes
