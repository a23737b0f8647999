"""open-r1's routers: /execute_batch, in the forms of E2B's code interpreter and of Morph's.

E2B's client takes `float()` of the value of a script's last expression for the reward, and
`execution: null` for none at all. Morph's takes `float(text)`, and a `text` that is missing or null makes
0.0 of the whole batch. It has no word for no reward: a failure of ours is `nan`, which is what the trainer
makes of None. So null is kept for failures of ours. What a limit ends is the script's own doing, and
has the value 0.0: a time limit that is worth nothing would be a way out of a bad reward.

Neither client asks again. Morph's waits for its `request_timeout`, and makes 0.0 of the batch then. Scripts
that are not done shortly before that are failures of ours, and the other scripts keep their values.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from proctor_service.api.compat.cells import OUTPUT_KB, Cell, Kernel, reported
from proctor_service.api.compat.form import PREFIX, Form, answered, documented, limits
from proctor_service.api.compat.handler import ClientProfile, CompatHandler, RequestContext, all_of
from proctor_service.api.compat.sandbox_fusion import language_of
from proctor_service.errors import Failure, InvalidRequest, Overloaded, Refusal
from proctor_service.judge.verdict import text_of
from proctor_service.sandbox.interface import Ended
from proctor_service.scheduling.program_runner import Program

JOB = "open_r1"
DEFAULT_SECONDS = 300.0
WAIT_SECONDS = 900.0  # E2B's client sets no limit of its own
SPARE_SECONDS = 1.0  # of what Morph's client waits
LAST_SECONDS = 4.0  # of the wait, at most: to end the scripts that are not done
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
    """The body of /execute_batch. `timeout` is in seconds, for each script.

    `request_timeout`: Morph's client waits for so long for the whole batch, E2B's does not heed it.
    """

    scripts: list[str] = Field(max_length=MOST_SCRIPTS)
    languages: list[str | None] = Field([])
    language: str = "python"
    timeout: float = Field(DEFAULT_SECONDS, gt=0)
    request_timeout: float = Field(0.0, ge=0)


def wait_seconds(asked: ExecuteBatch) -> float:
    """Return a little less than the client waits.

    Only Morph's has a `request_timeout` that exceeds the scripts' own.
    """
    if asked.request_timeout > asked.timeout:
        return max(asked.request_timeout - SPARE_SECONDS, asked.request_timeout / 2)
    return WAIT_SECONDS


async def all_null(request: Request, asked: ExecuteBatch, error: Failure | Refusal) -> Response:
    """No reward for any of the scripts."""
    nothing = _nothing(f"{error.reason}: {error.message}")
    return JSONResponse([nothing] * len(asked.scripts))


MANNER: ClientProfile[ExecuteBatch] = ClientProfile(JOB, wait_seconds, all_null)


async def _execute_batch(
    handler: CompatHandler, kernel: Kernel, asked: ExecuteBatch, context: RequestContext
) -> list[dict[str, Any]]:
    languages = asked.languages or [asked.language] * len(asked.scripts)
    if len(languages) != len(asked.scripts):
        raise InvalidRequest(f"languages: {len(languages)} for {len(asked.scripts)} scripts")
    left_seconds = context.answer_by - asyncio.get_running_loop().time()
    until = context.answer_by - min(LAST_SECONDS, LAST_PART * left_seconds)
    return await all_of(
        _execute_until(until, handler, kernel, script, language or "python", asked.timeout, context)
        for script, language in zip(asked.scripts, languages, strict=True)
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
    """The script's execution, or no reward where it is not done by then (monotonic clock)."""
    try:
        async with asyncio.timeout_at(until) as limit:
            return await _execute(handler, kernel, script, language_of(language), seconds, context)
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
        handler.check_language(language)
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
    """A program in another language has no value, and its output is all that it says."""
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
    error = None
    if cell.error:
        first = cell.error[0]
        text = "".join(first.traceback)
        error = {"name": first.ename, "value": first.evalue, "traceback": text}
    return _form(cell.value, cell.stdout, cell.stderr, error)


def _cut_short(ended: Ended) -> dict[str, Any]:
    """A script that a limit ended, or that left, before it had a value."""
    name, value = ENDINGS.get(ended.ending, LEFT)
    error = {"name": name, "value": value, "traceback": ""}
    return _form(NO_REWARD, "", text_of(ended.stderr), error)


def _nothing(why: str) -> dict[str, Any]:
    """What stands for a reward of None."""
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
    """Without the first line's indentation, on each line that has it: as a notebook takes it."""
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
    """Scripts, and health."""
    routes = APIRouter(prefix=PREFIX)
    kernel = Kernel()

    @routes.post("/execute_batch", **documented(ExecuteBatch, EXAMPLE, ANSWER))
    async def execute_batch(request: Request) -> Response:
        """open-r1: runs scripts, and tells the value of each one's last expression."""
        do = partial(_execute_batch, handler, kernel)
        return await handler.serve(request, ExecuteBatch, do, MANNER)

    @routes.get("/health", responses=answered({"status": "ok"}))
    async def health() -> dict[str, str]:
        """open-r1, open-instruct, SkyPilot: it is there."""
        return {"status": "ok"}

    return routes
