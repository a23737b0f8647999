"""OpenRLHF's remote reward: queries, prompts and labels in, rewards out.

A query is the decoded text of a prompt and its response, with special tokens. Only the response is
judged. A label holds the tests, as in `slime.py`. The client waits for 180 s and retries
five times after any failure, at intervals of a second; then OpenRLHF goes on without this reward.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from proctor_client import wire
from proctor_client.queries import response_of
from proctor_service.errors import InvalidRequest, InvalidTask
from proctor_service.features.compat.handler import (
    PREFIX,
    ClientProfile,
    CompatHandler,
    Form,
    RequestContext,
    documented,
)
from proctor_service.features.compat.skypilot import try_later
from proctor_service.features.compat.slime import submission_of_label
from proctor_service.scheduling.pacer import Pacer

JOB = "openrlhf"
WAIT_SECONDS = 170.0  # its client waits for 180
MOST_QUERIES = 4096


class GetReward(Form):
    """Body of /get_reward: three lists of the same length."""

    query: list[str] = Field(min_length=1, max_length=MOST_QUERIES)
    prompts: list[str] = Field(max_length=MOST_QUERIES)
    labels: list[Any] = Field(max_length=MOST_QUERIES)


MANNER: ClientProfile[GetReward] = ClientProfile(JOB, lambda payload: WAIT_SECONDS, try_later)


async def _get_reward(
    handler: CompatHandler, payload: GetReward, context: RequestContext
) -> dict[str, Any]:
    count = len(payload.query)
    if len(payload.prompts) != count or len(payload.labels) != count:
        raise InvalidRequest("query, prompts, labels: they must have the same length")
    submissions, pacer = [], Pacer()
    for index in range(count):
        submissions.append(_submission(payload, index))
        await pacer.pause()
    rewards = []
    judged = await handler.judge(wire.RewardRequest(submissions=submissions), context)
    for index, each in enumerate(judged):
        if isinstance(each, InvalidTask):
            raise InvalidRequest(f"labels.{index}: {each.message}")
        rewards.append(each.reward)
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"pass_rate": rewards}}


def _submission(payload: GetReward, index: int) -> wire.Submission:
    try:
        response = response_of(payload.query[index], payload.prompts[index])
    except ValueError as error:
        raise InvalidRequest(f"query.{index}: {error}") from None
    try:
        return submission_of_label(payload.labels[index], response, payload.prompts[index])
    except InvalidRequest as error:
        raise InvalidRequest(f"labels.{index}: {error.message}") from None


EXAMPLE = {
    "query": [
        "Write double(n).\n```python\ndef double(n):\n    return 2 * n\n```<|im_end|>",
        "Write double(n).\n```python\ndef double(n):\n    return n\n```<|im_end|>",
    ],
    "prompts": ["Write double(n).\n", "Write double(n).\n"],
    "labels": ['["assert double(2) == 4"]', '["assert double(2) == 4"]'],
}
ANSWER = {"rewards": [1.0, 0.0], "scores": [1.0, 0.0], "extra_logs": {"pass_rate": [1.0, 0.0]}}


def openrlhf_routes(handler: CompatHandler) -> APIRouter:
    """Return the route."""
    routes = APIRouter(prefix=PREFIX)

    @routes.post("/get_reward", **documented(GetReward, EXAMPLE, ANSWER, 503))
    async def get_reward(request: Request) -> Response:
        """OpenRLHF: returns the rewards of queries."""
        return await handler.serve(request, GetReward, partial(_get_reward, handler), MANNER)

    return routes
