"""A resources server for NeMo Gym: POST /seed_session and POST /verify.

    # resources_servers/proctor/app.py, in a checkout of NeMo Gym
    from proctor_trainers.nemo_gym import resources_server

    ProctorResourcesServer = resources_server("http://127.0.0.1:8080")

    if __name__ == "__main__":
        ProctorResourcesServer.run_webserver()

`app` is the same server without NeMo Gym's package. The tests of a task are in its
`verifier_metadata`: as `unit_tests` of NeMo Gym's `code_gen` ({"inputs", "outputs", "fn_name"}), or
as `grader`, `tests` or `ground_truth` in a form of proctor_client.tasks.ground_truth. The last assistant
message of the response is judged.

An unjudged response is an HTTP 503: the agent's run fails, and NeMo Gym records
its reward as missing. NeMo Gym's own JudgeError is wrong here: a JudgeError is a row with a reward of 0.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from proctor_client import ProctorError
from proctor_client.tasks.forms import GROUND_TRUTH
from proctor_client.tasks.ground_truth import task_of
from proctor_client.tasks.statements import GRADER
from proctor_client.tasks.task import BadTask, Row, Task
from proctor_trainers.batching import RewardBatcher, batcher_for
from proctor_trainers.extras import require

TAG = "nemo-gym"
EXTRA = "nemo-gym"
METADATA = "verifier_metadata"
UNIT_TESTS = "unit_tests"


class Unprocessable(ValueError):
    """Raised for a request without a response, or without tests: HTTP 422."""


class Unavailable(RuntimeError):
    """Raised for an unjudged response: HTTP 503."""


async def verify(batcher: RewardBatcher, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of /verify: the request's fields, `reward`, `verdict` and `hack_signals`.

    Raises Unprocessable and Unavailable.
    """
    completion = last_message(body.get("response"))
    row = _task(body).fields
    try:
        answer = await batcher.judge_async(completion, row)
    except ProctorError as error:
        raise Unavailable(str(error)) from error
    if answer.reward is None:
        raise Unavailable(answer.error)
    result = {"reward": answer.reward, "verdict": answer.verdict}
    return {**body, **result, "hack_signals": list(answer.hack_signals)}


def last_message(response: Any) -> str:
    """Return the text of a response's last assistant message; "" without one.

    `response` has the form of OpenAI's Responses API. Raises Unprocessable for another form.
    """
    output = response.get("output") if isinstance(response, Mapping) else None
    if not isinstance(output, list):
        raise Unprocessable("response: no list `output`, as the Responses API has")
    for item in reversed(output):
        if isinstance(item, Mapping) and item.get("type", "message") == "message":
            if item.get("role", "assistant") != "assistant":
                continue
            content = item.get("content")
            if isinstance(content, str):
                return content
            parts = (each.get("text") for each in content or () if isinstance(each, Mapping))
            return "".join(part for part in parts if isinstance(part, str))
    return ""


def app(url: str | None = None, *, batcher: RewardBatcher | None = None) -> Any:
    """Return a FastAPI app with the routes of a resources server. Raises MissingExtra."""
    require(EXTRA, "fastapi")
    from fastapi import FastAPI

    batcher = batcher or batcher_for(TAG, url)
    made = FastAPI(title="Proctor for NeMo Gym")

    async def seed_session(body: dict[str, Any]) -> dict[str, Any]:
        """Begin a session without preparation: each response is judged by itself."""
        return {}

    made.post("/seed_session")(seed_session)
    made.post("/verify")(_route(batcher))
    return made


def resources_server(
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    batcher: RewardBatcher | None = None,
) -> Any:
    """Return a class of a resources server, a subclass of NeMo Gym's SimpleResourcesServer."""
    from nemo_gym.base_resources_server import (
        BaseVerifyRequest,
        BaseVerifyResponse,
        SimpleResourcesServer,
    )
    from pydantic import ConfigDict

    rewards = batcher or batcher_for(TAG, url, token=token)
    judge = _route(rewards)

    class Request(BaseVerifyRequest):  # type: ignore[misc]
        model_config = ConfigDict(extra="allow")

    class Answer(BaseVerifyResponse):  # type: ignore[misc]
        model_config = ConfigDict(extra="allow")

    class ProctorResourcesServer(SimpleResourcesServer):  # type: ignore[misc]
        async def verify(self, body: Any) -> Any:
            """Judge the response of a task."""
            return Answer.model_validate(await judge(body.model_dump()))

    # FastAPI reads the types from the annotations, which are texts here.
    ProctorResourcesServer.verify.__annotations__ |= {"body": Request, "return": Answer}
    return ProctorResourcesServer


def _route(batcher: RewardBatcher) -> Any:
    from fastapi import HTTPException

    async def route(body: dict[str, Any]) -> dict[str, Any]:
        """Judge the response of a task."""
        try:
            return await verify(batcher, body)
        except Unprocessable as error:
            raise HTTPException(422, str(error)) from None
        except Unavailable as error:
            raise HTTPException(503, str(error), headers={"Retry-After": "5"}) from None

    return route


def _task(body: Row) -> Task:
    metadata = body.get(METADATA) or {}
    if not isinstance(metadata, Mapping):
        raise Unprocessable(f"{METADATA}: not an object")
    fields = (UNIT_TESTS, GROUND_TRUTH, GRADER)
    truth = next((metadata[name] for name in fields if metadata.get(name)), metadata)
    try:
        return task_of(truth)
    except BadTask as error:
        raise Unprocessable(f"{METADATA}: {error}") from None
