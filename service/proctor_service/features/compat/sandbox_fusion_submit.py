"""SandboxFusion's /submit for CommonOJDataset: a completion, and expected output for each input.

The code is extracted as in /reward. The `stdio` grader judges each case in its own sandbox, and the
expected output stays outside of the sandbox. Outputs are compared as in SandboxFusion: line by line,
in any letter case, and numbers relative to the expected ones; but a wrong integer is wrong here,
however large. The service refuses a request with its own extraction code, because this code would run
in the service.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import Field, field_validator, model_validator
from starlette.requests import Request
from starlette.responses import Response

from proctor_client import wire
from proctor_service.errors import InvalidRequest, InvalidTask
from proctor_service.features.compat.form import MOST_TESTS, PREFIX, Form, documented, limits
from proctor_service.features.compat.handler import (
    ClientProfile,
    CompatHandler,
    Judged,
    RequestContext,
)
from proctor_service.features.compat.sandbox_fusion import (
    DEFAULT_SECONDS,
    JOB,
    KILLED,
    OUTPUT_KB,
    answer,
    command_result,
    try_again,
)
from proctor_service.judge.extract import read_program
from proctor_service.judge.submission import Judgement

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


SUBMIT: ClientProfile[Submit] = ClientProfile(JOB, lambda asked: WAIT_SECONDS, try_again)


async def _submit(handler: CompatHandler, asked: Submit, context: RequestContext) -> dict[str, Any]:
    config = asked.config
    if config.custom_extract_logic is not None:
        raise InvalidRequest("config.custom_extract_logic: code of a request never runs in here")
    language = handler.language(config.language)
    code = await read_program(asked.completion, "auto", handler.machine.texts(language)) or ""
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
        "id": asked.id,
        "accepted": len(tests) == len(cases) and all(test["passed"] for test in tests),
        "extracted_code": code,
        "full_code": None,
        "test_code": None,
        "tests": tests,
        "extracted_type": _how(code, asked.completion),
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
