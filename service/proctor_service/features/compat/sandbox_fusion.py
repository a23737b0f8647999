"""SandboxFusion's /run_code, /run_jupyter, /submit and /v1/ping, as used by verl and tinker-cookbook.

/run_code and /run_jupyter run a program and return its output; the client judges. An exit with code 0
always gives code 0, even if the program skipped its tests.

verl retries a 504, and treats every other failure as a failure of the program. So a failure of the
service is a 504, sent before verl's deadline of compile + run + 10 s. `SandboxError` means an
impossible request.

/submit takes a completion of CommonOJDataset, and the expected output for each input. The code is
extracted as in /reward. The `stdio` grader judges each case in its own sandbox, and the expected output
stays outside of the sandbox. Outputs are compared as in SandboxFusion: line by line, in any letter case,
and numbers relative to the expected ones; but a wrong integer is wrong here, however large. A request
with its own extraction code is refused, because this code would run in the service.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter
from pydantic import BeforeValidator, Field, field_validator, model_validator
from starlette.requests import Request
from starlette.responses import Response

from proctor_client import wire
from proctor_client.wire.base import few_entries
from proctor_service.errors import Failure, InvalidRequest, InvalidTask, Refusal
from proctor_service.features.compat.cells import MOST_CELLS, Cell, Kernel, reported
from proctor_service.features.compat.handler import (
    MOST_TESTS,
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
from proctor_service.features.compat.program_runner import Program
from proctor_service.http.problems import problem
from proctor_service.judge.extract import read_program
from proctor_service.judge.run import text_of
from proctor_service.judge.submission import Judgement
from proctor_service.sandbox.interface import MAX_FILE_BYTES, Ended

JOB = "sandbox_fusion"
DEFAULT_SECONDS = 10.0
SPARE_SECONDS = 8.0  # part of the 10 s that verl waits beyond both timeouts
OUTPUT_KB = 8192
MOST_FILES = 1000
PYTEST = "pytest"
TEST_FILE = "test_solution.py"
NO_PYTEST = 113  # unused by pytest as an exit code
NOT_HERE = 127  # exit code of a compile command that lacks something
PYTEST_RUNNER = f"""\
import sys
try:
    import pytest
except ImportError:
    sys.exit({NO_PYTEST})
sys.exit(pytest.main(["-p", "no:cacheprovider", {TEST_FILE!r}]))
"""
KILLED = -9
MESSAGES: Mapping[str, str] = {
    "memory_limit": "it used more memory than it may",
    "output_limit": "it wrote more than it may",
}


Files: TypeAlias = Annotated[dict[str, str | None], BeforeValidator(few_entries)]


class RunCode(Form):
    """Body of /run_code. Files are base64 by path; `memory_limit_MB` below 1 is the default."""

    code: str
    language: str = "python"
    stdin: str = ""
    compile_timeout: float = Field(DEFAULT_SECONDS, gt=0)
    run_timeout: float = Field(DEFAULT_SECONDS, gt=0)
    memory_limit_MB: int = -1
    files: Files = Field({}, max_length=MOST_FILES)
    fetch_files: list[str] = Field([], max_length=MOST_FILES)


class RunJupyter(Form):
    """Body of /run_jupyter. `cell_timeout` 0: only `total_timeout` counts."""

    cells: list[str] = Field(max_length=MOST_CELLS)
    cell_timeout: float = Field(0.0, ge=0, allow_inf_nan=False)
    total_timeout: float = Field(45.0, gt=0)
    memory_limit_MB: int = -1
    kernel: str = "python3"
    files: Files = Field({}, max_length=MOST_FILES)
    fetch_files: list[str] = Field([], max_length=MOST_FILES)


async def try_again(request: Request, payload: Any, error: Failure | Refusal) -> Response:
    """Return a 504, the only status that verl retries."""
    message = f"{error.reason}: {error.message}"
    return problem(504, error.reason, message, retryable=True, more={"detail": message})


RUN_CODE: ClientProfile[RunCode] = ClientProfile(
    JOB, lambda payload: payload.compile_timeout + payload.run_timeout + SPARE_SECONDS, try_again
)
RUN_JUPYTER: ClientProfile[RunJupyter] = ClientProfile(
    JOB, lambda payload: payload.total_timeout + SPARE_SECONDS, try_again
)


def answer(
    status: str,
    message: str = "",
    *,
    compiled: dict[str, Any] | None = None,
    ran: dict[str, Any] | None = None,
    sandbox_id: str | None = None,
    files: Mapping[str, bytes] | None = None,
) -> dict[str, Any]:
    """Return SandboxFusion's RunCodeResponse."""
    return {
        "status": status,
        "message": message,
        "compile_result": compiled,
        "run_result": ran,
        "executor_pod_name": sandbox_id,
        "files": _encoded(files or {}),
    }


def command_result(
    seconds: float | None, return_code: int | None, stdout: str, stderr: str
) -> dict[str, Any]:
    """Return SandboxFusion's CommandRunResult; `return_code` None means a timeout."""
    return {
        "status": "TimeLimitExceeded" if return_code is None else "Finished",
        "execution_time": seconds,
        "return_code": return_code,
        "stdout": stdout,
        "stderr": stderr,
    }


async def _run_code(
    handler: CompatHandler, payload: RunCode, context: RequestContext
) -> dict[str, Any]:
    settings = handler.machine.settings
    by_pytest = payload.language == PYTEST
    try:
        language = handler.language(
            "python" if by_pytest else payload.language, context.environment
        )
    except InvalidRequest as refused:
        return answer("SandboxError", refused.message)
    memory_mb = _memory_mb(payload.memory_limit_MB)
    wanted = limits(settings, payload.run_timeout, memory_mb=memory_mb, output_kb=OUTPUT_KB)
    files = _decoded(payload.files)
    if by_pytest:
        files[TEST_FILE] = payload.code.encode("utf-8", "surrogatepass")
    program = Program(
        source=PYTEST_RUNNER if by_pytest else payload.code,
        language=language,
        limits=handler.machine.limits(wanted, "limits"),
        compile_seconds=min(payload.compile_timeout, settings.max_wall_seconds),
        run_seconds=min(payload.run_timeout, settings.max_wall_seconds),
        stdin=payload.stdin.encode("utf-8", "surrogatepass"),
        files=files,
        fetch=tuple(payload.fetch_files),
        fetch_bytes=MAX_FILE_BYTES,
    )
    came = await handler.run(program, context)
    last = came.ran or came.compiled
    if by_pytest and last is not None and last.exit_code == NO_PYTEST:
        return answer("SandboxError", "the sandbox has no pytest", sandbox_id=came.sandbox_id)
    if came.ran is None and last is not None and last.exit_code == NOT_HERE:
        return answer(
            "SandboxError", f"the sandbox has no {payload.language}", sandbox_id=came.sandbox_id
        )
    good = last is not None and last.ending == "exited" and last.exit_code == 0
    return answer(
        "Success" if good else "Failed",
        "" if last is None else MESSAGES.get(last.ending, ""),
        compiled=_result(came.compiled),
        ran=_result(came.ran),
        sandbox_id=came.sandbox_id,
        files=came.files,
    )


async def _run_jupyter(
    handler: CompatHandler, kernel: Kernel, payload: RunJupyter, context: RequestContext
) -> dict[str, Any]:
    if payload.kernel != "python3":
        message = f"kernel: no {payload.kernel[:100]!r} here, only: python3"
        return _notebook("SandboxError", message, None, [], None, {})
    program = kernel.program(
        handler.machine,
        payload.cells,
        payload.total_timeout,
        cell_seconds=payload.cell_timeout,
        memory_mb=_memory_mb(payload.memory_limit_MB),
        files=_decoded(payload.files),
        fetch=payload.fetch_files,
    )
    came = await handler.run(program, context)
    cells = reported(came, len(payload.cells))
    driver = _result(came.ran)
    if driver is not None:
        driver["stdout"] = ""  # the cells already contain these reports
    good = driver is not None and driver["return_code"] == 0 and len(cells) == len(payload.cells)
    message = "" if came.ran is None else MESSAGES.get(came.ran.ending, "")
    return _notebook(
        "Success" if good else "Failed", message, driver, cells, came.sandbox_id, came.files
    )


def _notebook(
    status: str,
    message: str,
    driver: dict[str, Any] | None,
    cells: list[Cell],
    sandbox_id: str | None,
    files: Mapping[str, bytes],
) -> dict[str, Any]:
    return {
        "status": status,
        "message": message,
        "driver": driver,
        "cells": [cell.model_dump(exclude={"value"}) for cell in cells],
        "executor_pod_name": sandbox_id,
        "files": _encoded(files),
    }


def _result(ended: Ended | None) -> dict[str, Any] | None:
    if ended is None:
        return None
    usage = ended.usage
    seconds = min(usage.wall_seconds, usage.cpu_seconds + usage.idle_seconds)
    out, err = text_of(ended.stdout), text_of(ended.stderr)
    return command_result(round(seconds, 6), _return_code(ended), out, err)


def _return_code(ended: Ended) -> int | None:
    """Return the return code as Python's subprocess does: minus the signal.

    None for a timeout; after any other limit a code other than 0.
    """
    if ended.ending in ("cpu_limit", "wall_limit"):
        return None
    if ended.signal is not None:
        return -ended.signal
    return ended.exit_code if ended.ending == "exited" else ended.exit_code or KILLED


def _memory_mb(megabytes: int) -> int | None:
    return megabytes if megabytes > 0 else None


def _decoded(files: Mapping[str, str | None]) -> dict[str, bytes]:
    found = {}
    for path, data in files.items():
        if data is None:
            continue
        try:
            found[path] = binascii.a2b_base64(data)
        except ValueError:  # binascii.Error, or characters beyond ASCII
            raise InvalidRequest(f"files: {ascii(path)[:200]} is not base64") from None
    return found


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: binascii.b2a_base64(data, newline=False).decode() for path, data in files.items()}


RUN_CODE_EXAMPLE = {"code": "print(int(input()) * 2)", "language": "python", "stdin": "21\n"}
RUN_CODE_ANSWER = answer("Success", ran=command_result(0.004, 0, "42\n", ""), sandbox_id="sb_17")
CELL_ANSWER = {"stdout": "", "stderr": "", "display": [{"text/plain": "42"}], "error": []}


def sandbox_fusion_routes(handler: CompatHandler) -> APIRouter:
    """Return the routes for running code, and the ping."""
    routes = APIRouter(prefix=PREFIX)
    kernel = Kernel()

    @routes.post("/run_code", **documented(RunCode, RUN_CODE_EXAMPLE, RUN_CODE_ANSWER, 504))
    async def run_code(request: Request) -> Response:
        """SandboxFusion: runs a program, and returns its output."""
        return await handler.serve(request, RunCode, partial(_run_code, handler), RUN_CODE)

    driver = command_result(0.004, 0, "", "")
    jupyter_answer = _notebook("Success", "", driver, [], "sb_17", {}) | {"cells": [CELL_ANSWER]}

    @routes.post(
        "/run_jupyter", **documented(RunJupyter, {"cells": ["6 * 7"]}, jupyter_answer, 504)
    )
    async def run_jupyter(request: Request) -> Response:
        """SandboxFusion: runs the cells of a notebook in order."""
        do = partial(_run_jupyter, handler, kernel)
        return await handler.serve(request, RunJupyter, do, RUN_JUPYTER)

    @routes.get("/v1/ping", responses=answered("pong"))
    async def ping() -> str:
        """SandboxFusion: answers while the service runs."""
        return "pong"

    return routes


DATASET_TYPE = "CommonOJDataset"
TOLERANCE = wire.Tolerance(absolute=1e-15, relative=1e-5)
WAIT_SECONDS = 600.0  # the clients wait without a limit
MOST_SHOWN_CHARACTERS = 1000


class Streams(Form):
    """Input or output of a case."""

    stdin: str = ""
    stdout: str = ""


class Case(Form):
    """Input of a program and its expected output."""

    input: Streams = Streams()
    output: Streams


class ProvidedData(Form):
    """A row of the data set; `test` may be JSON in a string."""

    test: list[Case] = Field(min_length=1, max_length=MOST_TESTS)

    @field_validator("test", mode="before")
    @classmethod
    def _decoded(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value


class Extra(Form):
    """Options. By default the answer ends at the first failed case."""

    run_all_cases: bool = False


class Config(Form):
    """Rules for judging a completion."""

    dataset_type: str
    provided_data: ProvidedData
    language: str = "python"
    run_timeout: float = Field(2 * DEFAULT_SECONDS, gt=0)
    custom_extract_logic: str | None = None
    extra: Extra = Extra()


class Submit(Form):
    """Body of /submit. Fields of `config` may also stand at the top level."""

    id: int | str = 0
    completion: str
    config: Config

    @model_validator(mode="before")
    @classmethod
    def _gathered(cls, value: Any) -> Any:
        config = (value.get("config") or {}) if isinstance(value, dict) else None
        if not isinstance(config, dict):
            return value
        config = {**value, **{name: each for name, each in config.items() if each is not None}}
        _check_dataset(config.get("dataset_type"), value.get("dataset"))
        return {**value, "config": config}


def _check_dataset(kind: Any, name: Any) -> None:
    """Raise ValueError for an unsupported data set; the message contains its name."""
    if kind == DATASET_TYPE:
        return
    wrong = f"dataset_type {kind!r:.100}" if kind is not None else f"the data set {name!r:.100}"
    raise ValueError(
        f"config.dataset_type: {wrong} is not served here, "
        f"only {DATASET_TYPE} with its provided_data"
    )


SUBMIT: ClientProfile[Submit] = ClientProfile(JOB, lambda payload: WAIT_SECONDS, try_again)


async def _submit(
    handler: CompatHandler, payload: Submit, context: RequestContext
) -> dict[str, Any]:
    config = payload.config
    if config.custom_extract_logic is not None:
        raise InvalidRequest("config.custom_extract_logic: code of a request never runs in here")
    language = handler.language(config.language, context.environment)
    code = await read_program(payload.completion, "auto", handler.machine.texts(language)) or ""
    cases = config.provided_data.test
    tests = []
    if code:
        request = _request(handler, config, code, language)
        judged = await handler.judge(
            request, context, None if config.extra.run_all_cases else _failed
        )
        compiled = language != "python"
        tests = [_test(case, each, compiled) for case, each in zip(cases, judged, strict=False)]
    return {
        "id": payload.id,
        "accepted": len(tests) == len(cases) and all(test["passed"] for test in tests),
        "extracted_code": code,
        "full_code": None,
        "test_code": None,
        "tests": tests,
        "extracted_type": _how(code, payload.completion),
        "extra": None,
    }


def _how(code: str, completion: str) -> str:
    """Return SandboxFusion's name for the place of the code in the completion."""
    if not code:
        return "empty"
    return "heuristic" if code.strip() == completion.strip() else "fenced"


def _request(
    handler: CompatHandler, config: Config, code: str, language: str
) -> wire.RewardRequest:
    submissions = [
        wire.Submission(
            completion=code,
            language=language,
            grader=wire.StdioGrader(
                kind="stdio",
                cases=[wire.StdioCase(stdin=case.input.stdin, stdout=case.output.stdout)],
                compare="trimmed",
                ignore_case=True,
                tolerance=TOLERANCE,
            ),
        )
        for case in config.provided_data.test
    ]
    bounds = limits(handler.machine.settings, config.run_timeout, output_kb=OUTPUT_KB)
    return wire.RewardRequest(submissions=submissions, limits=bounds, extract="none")


def _failed(judged: Judged | InvalidTask) -> bool:
    return isinstance(judged, InvalidTask) or judged.judgement.verdict != "passed"


def _test(case: Case, judged: Judged | InvalidTask, compiled: bool) -> dict[str, Any]:
    assert not isinstance(judged, InvalidTask), "these tests are no code"
    return {
        "passed": not _failed(judged),
        "exec_info": _exec_info(judged.judgement, compiled),
        "test_info": {
            "input": {"stdin": case.input.stdin[:MOST_SHOWN_CHARACTERS]},
            "output": {"stdout": case.output.stdout[:MOST_SHOWN_CHARACTERS]},
        },
    }


def _exec_info(judgement: Judgement, compiled: bool) -> dict[str, Any]:
    """Return the result in the format of /run_code: wrong output still counts as a success."""
    usage = judgement.usage
    seconds = round(min(usage.wall_seconds, usage.cpu_seconds + usage.idle_seconds), 6)
    out, err = judgement.stdout, judgement.stderr
    where = judgement.sandbox_id
    match judgement.verdict:
        case "passed" | "failed":
            return answer("Success", ran=command_result(seconds, 0, out, err), sandbox_id=where)
        case "timeout":
            late = command_result(seconds, None, out, err)
            return answer("Failed", judgement.message, ran=late, sandbox_id=where)
        case verdict:
            code = judgement.exit_code or KILLED
            failed = command_result(seconds, code, out, err or judgement.message)
            if compiled and verdict == "syntax_error":
                return answer("Failed", judgement.message, compiled=failed, sandbox_id=where)
            return answer("Failed", judgement.message, ran=failed, sandbox_id=where)


EXAMPLE = {
    "dataset": "any",
    "id": 17,
    "completion": "```python\nprint(int(input()) * 2)\n```",
    "config": {
        "language": "python",
        "dataset_type": DATASET_TYPE,
        "provided_data": {
            "id": 17,
            "content": "Double it.",
            "labels": {},
            "test": [{"input": {"stdin": "21\n"}, "output": {"stdout": "42\n"}}],
        },
    },
}
ANSWER = {
    "id": 17,
    "accepted": True,
    "extracted_code": "print(int(input()) * 2)",
    "full_code": None,
    "test_code": None,
    "tests": [
        {
            "passed": True,
            "exec_info": answer(
                "Success", ran=command_result(0.004, 0, "42\n", ""), sandbox_id="sb_17"
            ),
            "test_info": {"input": {"stdin": "21\n"}, "output": {"stdout": "42\n"}},
        }
    ],
    "extracted_type": "fenced",
    "extra": None,
}


def submit_routes(handler: CompatHandler) -> APIRouter:
    """Return the route of the online judge."""
    routes = APIRouter(prefix=PREFIX)

    @routes.post("/submit", **documented(Submit, EXAMPLE, ANSWER, 504))
    async def submit(request: Request) -> Response:
        """SandboxFusion: judges a completion of a CommonOJDataset problem, case by case."""
        return await handler.serve(request, Submit, partial(_submit, handler), SUBMIT)

    return routes
