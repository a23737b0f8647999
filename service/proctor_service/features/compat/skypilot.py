"""SkyPilot's reward server: /reward and /batch_reward, assert statements behind a response's code.

Its client can neither skip an item nor retry. A 503 stops the training step, which is better than a
reward of 0.0 for a failure of the service. Broken tests are a 422 with the index of the item.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from proctor_client import wire
from proctor_service.errors import Failure, InvalidRequest, InvalidTask, Refusal
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
from proctor_service.http.problems import problem
from proctor_service.judge.extract import PYTHON_TEXTS, read_program
from proctor_service.scheduling.pacer import Pacer

JOB = "skypilot"
LIMIT_SECONDS = 30.0
WAIT_SECONDS = 290.0  # its client waits for 300
RETRY_AFTER_SECONDS = 5.0
MOST_ITEMS = 4096
MOST_SHOWN_CHARACTERS = 2000


class RewardItem(Form):
    """A response, and the assert statements for its code."""

    prompt: str = ""
    response: str
    tests: list[str] = Field([], max_length=MOST_TESTS)
    setup_code: str = ""


class BatchReward(Form):
    """Body of /batch_reward."""

    items: list[RewardItem] = Field(max_length=MOST_ITEMS)


async def try_later(request: Request, payload: Any, error: Failure | Refusal) -> Response:
    """Return a 503 with a retry time."""
    message = f"{error.reason}: {error.message}"
    after = getattr(error, "retry_after_seconds", None) or RETRY_AFTER_SECONDS
    return problem(
        503,
        error.reason,
        message,
        retryable=True,
        retry_after_seconds=after,
        more={"detail": message},
    )


ONE: ClientProfile[RewardItem] = ClientProfile(JOB, lambda payload: WAIT_SECONDS, try_later)
BATCH: ClientProfile[BatchReward] = ClientProfile(JOB, lambda payload: WAIT_SECONDS, try_later)


async def _reward(
    handler: CompatHandler, payload: RewardItem, context: RequestContext
) -> dict[str, Any]:
    [answer] = await _rewards(handler, [payload], context)
    return answer


async def _batch(
    handler: CompatHandler, payload: BatchReward, context: RequestContext
) -> dict[str, Any]:
    answers = await _rewards(handler, payload.items, context)
    count = max(len(answers), 1)
    return {
        "rewards": answers,
        "mean_reward": sum(answer["reward"] for answer in answers) / count,
        "pass_rate": sum(answer["passed"] for answer in answers) / count,
    }


async def _rewards(
    handler: CompatHandler, items: list[RewardItem], context: RequestContext
) -> list[dict[str, Any]]:
    codes = await _codes(items)
    judgeable = [index for index, item in enumerate(items) if item.tests and codes[index].strip()]
    judged: dict[int, Judged | InvalidTask] = {}
    if judgeable:
        submissions = [_submission(items[index], codes[index]) for index in judgeable]
        bounds = limits(handler.machine.settings, LIMIT_SECONDS)
        request = wire.RewardRequest(submissions=submissions, limits=bounds, extract="none")
        judged = dict(zip(judgeable, await handler.judge(request, context), strict=True))
    answers = []
    for index, (item, code) in enumerate(zip(items, codes, strict=True)):
        each = judged.get(index)
        if isinstance(each, InvalidTask):
            raise InvalidRequest(f"items.{index}.tests: {each.message}")
        answers.append(_nothing(item, code) if each is None else _answer(each, code))
    return answers


async def _codes(items: list[RewardItem]) -> list[str]:
    """Return the code of each response, extracted as in /reward with `auto`."""
    codes, pacer = [], Pacer()
    for item in items:
        codes.append(await read_program(item.response, "auto", PYTHON_TEXTS) or "")
        await pacer.pause()
    return codes


def _submission(item: RewardItem, code: str) -> wire.Submission:
    grader = wire.AssertsGrader(kind="asserts", tests=item.tests, setup=item.setup_code)
    return wire.Submission(completion=code, grader=grader, prompt=item.prompt or None)


def _answer(judged: Judged, code: str) -> dict[str, Any]:
    judgement = judged.judgement
    passed = judgement.verdict == "passed"
    return {
        "reward": judged.reward,
        "passed": passed,
        "exit_code": 0 if passed else judgement.exit_code or 1,
        "extracted_code": _shown(code),
        "stdout": _shown(judgement.stdout),
        "stderr": _shown(judgement.stderr or judgement.message),
        "error": None if passed else f"{judgement.verdict}: {_shown(judgement.message)}",
    }


def _nothing(item: RewardItem, code: str) -> dict[str, Any]:
    """Return the answer for an item without tests or code: 0.0, as in SkyPilot's server."""
    missing = "no tests for this problem" if not item.tests else "no code in the response"
    return {
        "reward": 0.0,
        "passed": False,
        "exit_code": None,
        "extracted_code": _shown(code),
        "stdout": "",
        "stderr": "",
        "error": missing,
    }


def _shown(text: str) -> str:
    return text if len(text) <= MOST_SHOWN_CHARACTERS else text[:MOST_SHOWN_CHARACTERS] + "…"


EXAMPLE = {
    "prompt": "Write double(n).",
    "response": "```python\ndef double(n):\n    return 2 * n\n```",
    "tests": ["assert double(2) == 4"],
    "setup_code": "",
}
ANSWER = {
    "reward": 1.0,
    "passed": True,
    "exit_code": 0,
    "extracted_code": "def double(n):\n    return 2 * n",
    "stdout": "",
    "stderr": "",
    "error": None,
}


def skypilot_routes(handler: CompatHandler) -> APIRouter:
    """Return the routes for a single response and for a batch."""
    routes = APIRouter(prefix=PREFIX)
    batch_answer = {"rewards": [ANSWER], "mean_reward": 1.0, "pass_rate": 1.0}

    @routes.post("/reward", **documented(RewardItem, EXAMPLE, ANSWER, 503))
    async def compat_reward(request: Request) -> Response:
        """SkyPilot: returns the reward of a response."""
        return await handler.serve(request, RewardItem, partial(_reward, handler), ONE)

    @routes.post(
        "/batch_reward", **documented(BatchReward, {"items": [EXAMPLE]}, batch_answer, 503)
    )
    async def batch_reward(request: Request) -> Response:
        """SkyPilot: returns the rewards of many responses."""
        return await handler.serve(request, BatchReward, partial(_batch, handler), BATCH)

    return routes
