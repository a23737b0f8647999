"""The thin client of Proctor, the service that judges model-written code.

    from proctor_client import Client

    with Client.from_env() as proctor:
        answer = proctor.reward(completions, grader={"kind": "asserts", "tests": tests})
        rewards = [result.reward for result in answer.results]  # None where `error` is set

The models of the wire are in `proctor_client.wire`, a fake service for tests of one's own in
`proctor_client.testing`. Needs httpx and pydantic, and imports nothing else.
"""

from proctor_client import wire
from proctor_client._calls import AnySubmission, RewardOptions
from proctor_client.client import AsyncClient, Client
from proctor_client.errors import (
    BusyError,
    DrainingError,
    ForbiddenError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    ProctorConnectionError,
    ProctorError,
    ProctorTimeoutError,
    ProtocolError,
    QuotaExceededError,
    SandboxError,
    SandboxFileError,
    SandboxNotFoundError,
    SandboxStoppedError,
    UnauthorizedError,
)
from proctor_client.streams import AsyncRewardStream, RewardStream

__all__ = [
    "AnySubmission",
    "AsyncClient",
    "AsyncRewardStream",
    "BusyError",
    "Client",
    "DrainingError",
    "ForbiddenError",
    "InternalError",
    "InvalidRequestError",
    "NotFoundError",
    "ProctorConnectionError",
    "ProctorError",
    "ProctorTimeoutError",
    "ProtocolError",
    "QuotaExceededError",
    "RewardOptions",
    "RewardStream",
    "SandboxError",
    "SandboxFileError",
    "SandboxNotFoundError",
    "SandboxStoppedError",
    "UnauthorizedError",
    "wire",
]
