"""slime's and miles' `remote_rm`: a prompt, a response and a label in, a bare number out.

Their clients raise an exception for every status except 200. slime's client first tries ten times.
miles' client posts once, so a 503 ends the rollout; even so, a 503 is better than a made-up reward.
The reward service defines the meaning of a label. Here a label holds the tests, as JSON or as JSON
in a string, in the forms of `proctor_client.tasks.ground_truth`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from proctor_client import wire
from proctor_client.tasks.ground_truth import task_of
from proctor_client.tasks.task import BadTask, submission_of
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
from proctor_service.http.body import refused

JOB = "slime"
WAIT_SECONDS = 100.0  # some clients wait for only 120


class RemoteRm(Form):
    """Body of /remote_rm."""

    prompt: Any = None
    response: str
    label: Any


MANNER: ClientProfile[RemoteRm] = ClientProfile(JOB, lambda payload: WAIT_SECONDS, try_later)


async def _remote_rm(handler: CompatHandler, payload: RemoteRm, context: RequestContext) -> float:
    prompt = payload.prompt if isinstance(payload.prompt, str) else None
    submission = submission_of_label(payload.label, payload.response, prompt)
    [judged] = await handler.judge(wire.RewardRequest(submissions=[submission]), context)
    if isinstance(judged, InvalidTask):
        raise InvalidRequest(f"label: {judged.message}")
    return judged.reward


def submission_of_label(label: Any, completion: str, prompt: str | None) -> wire.Submission:
    """Return the submission of a completion for the task that a label describes.

    `prompt`: for the journal, where the label has none. Raises InvalidRequest.
    """
    try:
        task = task_of(label)
        if task.prompt is None:
            task = task.with_fields({"prompt": prompt})
        return submission_of(task, completion)
    except BadTask as error:
        raise InvalidRequest(f"label: {error}") from None
    except ValidationError as error:
        raise InvalidRequest(f"label: {refused(error).message}") from None


EXAMPLE = {
    "prompt": "Write double(n).",
    "response": "```python\ndef double(n):\n    return 2 * n\n```",
    "label": '["assert double(2) == 4"]',
}


def slime_routes(handler: CompatHandler) -> APIRouter:
    """Return the route."""
    routes = APIRouter(prefix=PREFIX)

    @routes.post("/remote_rm", **documented(RemoteRm, EXAMPLE, 1.0, 503))
    async def remote_rm(request: Request) -> Response:
        """slime, miles: returns the reward of a response."""
        return await handler.serve(request, RemoteRm, partial(_remote_rm, handler), MANNER)

    return routes
