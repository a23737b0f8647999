"""The app with scripted sandboxes on a real server, for tests of /sandboxes."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from harness import Service, running_service
from scripted_sandboxes import FakeBackend, ScriptedSandbox

from proctor_client import wire
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes, Traits
from proctor_service.settings import Settings

NDJSON = {"Accept": "application/x-ndjson"}
EXEC_GRADER = {"kind": "exec"}
TOKENS = json.dumps({"a": "token-a", "b": "token-b"})


class Grading:
    """A judge that notes what it is given, and passes it unless it is told otherwise."""

    def __init__(self) -> None:
        self.submissions: list[Submission] = []
        self.failure: Exception | None = None

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        self.submissions.append(submission)
        if self.failure is not None:
            raise self.failure
        return Judgement("passed", passed=1, total=1)


class Held:
    """A judge that never comes to an end by itself."""

    def __init__(self) -> None:
        self.entered = self.cancelled = 0

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        self.entered += 1
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError("nothing lets it go")


class ServerUnderTest:
    """A running service with scripted sandboxes, and a client."""

    def __init__(
        self, service: Service, inn: FakeBackend, client: httpx.Client, judge: Any
    ) -> None:
        self.service = service
        self.inn = inn
        self.client = client
        self.judge = judge

    def create(self, **fields: Any) -> dict[str, Any]:
        """Create a sandbox and return its description."""
        answer = self.client.post("/sandboxes", json=fields)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def exec(self, sandbox_id: str, *command: str, **headers: str) -> httpx.Response:
        """Run a command and return the response."""
        body = {"command": command}
        return self.client.post(f"/sandboxes/{sandbox_id}/exec", json=body, headers=headers)

    def sigterm(self) -> None:
        """Begin the drain, as the signal does."""
        server = self.service.server
        self.service.call(lambda: server.handle_exit(signal.SIGTERM, None))

    @property
    def guest(self) -> ScriptedSandbox:
        """The only sandbox."""
        [guest] = self.inn.guests
        return guest


@contextmanager
def serving(judge: Any = None, **settings: Any) -> Iterator[ServerUnderTest]:
    """Serves with these settings and scripted sandboxes until the block ends."""
    judge = judge or Grading()
    inn = FakeBackend(Traits("scripted", degraded=("cgroups",)))
    with (
        running_service(Settings(**settings), judge=judge, backend=inn) as service,
        service.client() as client,
    ):
        yield ServerUnderTest(service, inn, client, judge)


def problem(answer: httpx.Response, status: int, reason: str) -> wire.Problem:
    """The problem in an answer, held against the contract."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()["error"]) == set(wire.Problem.model_fields)
    found = wire.ProblemBody.model_validate_json(answer.content).error
    assert found.reason == reason
    return found


def grade(hotel: ServerUnderTest, sandbox: str, **body: Any) -> dict[str, Any]:
    """Grade a sandbox and return the result, which has every field of the contract."""
    answer = hotel.client.post(f"/sandboxes/{sandbox}/grade", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert set(found) == set(wire.Result.model_fields)
    return found
