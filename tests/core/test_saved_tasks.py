"""POST /tasks: a task travels once, and submissions name it by its hash."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping

import pytest
from constants import constants
from harness import Service, running_service
from pydantic import SecretStr

from proctor_client import Client, InvalidRequestError, NotFoundError, wire
from proctor_service.errors import BatchTooLarge, NotFound
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.rewards.saved_tasks import SavedTasks
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings import Settings

TOKENS = SecretStr(json.dumps({"one": "t1", "two": "t2"}))
TESTS = {"kind": "asserts", "tests": ["assert f() == 1"]}
OTHER = {"kind": "asserts", "tests": ["assert f() == 2"]}


async def scripted(submission: Submission, backend: Sandboxes) -> Judgement:
    """The message says by which test and in which way a submission is judged."""
    grader = submission.grader
    assert isinstance(grader, wire.AssertsGrader)
    said = json.dumps([grader.tests, submission.scoring, dict(submission.files)])
    return Judgement("passed", passed=1, total=1, message=said)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running_service(Settings(tokens=TOKENS), judge=scripted) as running:
        yield running


def judged_by(client: Client, *submissions: Mapping[str, object]) -> list[object]:
    results = client.reward(list(submissions), extract="none", cache=False).results
    return [json.loads(each.message) for each in results]


def test_a_submission_has_the_fields_of_its_task_and_its_own(service: Service) -> None:
    with Client(service.url, token="t1") as client:
        one, other = client.save_tasks(
            [
                {"grader": TESTS, "scoring": "fraction", "files": {"a.txt": "1"}},
                {"files": {"a.txt": "1"}, "grader": OTHER},
            ]
        )
        assert one.startswith("sha256:")
        assert one != other
        # The same content in another order has the same name.
        again = {"files": {"a.txt": "1"}, "scoring": "fraction", "grader": TESTS}
        assert client.save_tasks([again]) == [one]
        assert judged_by(
            client,
            {"completion": "x", "task": one},
            {"completion": "x", "task": other, "files": {}},
            {"completion": "x", "task": one, "grader": OTHER, "scoring": "all"},
            {"completion": "x", "grader": TESTS},
        ) == [
            [["assert f() == 1"], "fraction", {"a.txt": "1"}],
            [["assert f() == 2"], "all", {}],
            [["assert f() == 2"], "all", {"a.txt": "1"}],
            [["assert f() == 1"], "all", {}],
        ]


def test_a_task_of_another_tenant_or_that_is_gone_is_not_found(service: Service) -> None:
    with Client(service.url, token="t1") as client, Client(service.url, token="t2") as other:
        (name,) = client.save_tasks([{"grader": TESTS, "prelude": "import math"}])
        with pytest.raises(NotFoundError, match=r"submissions\.1\.task"):
            other.reward([{"completion": "x", "grader": TESTS}, {"completion": "x", "task": name}])
        with pytest.raises(InvalidRequestError, match="a task needs one"):
            client.save_tasks([{"grader": TESTS}, {"prelude": "x"}])
        with pytest.raises(InvalidRequestError, match="completion"):
            client.save_tasks([{"grader": TESTS, "completion": "x"}])
        with pytest.raises(InvalidRequestError, match="task"):
            client.reward([{"completion": "x", "task": "sha256:0"}])


class Shared:
    """A store of the fleet."""

    def __init__(self) -> None:
        self.tasks: dict[bytes, bytes] = {}

    async def load(self, name: bytes) -> bytes | None:
        return self.tasks.get(name)

    async def save(self, name: bytes, task: bytes) -> None:
        self.tasks[name] = task


def request_of(*names: str) -> wire.RewardRequest:
    return wire.RewardRequest(
        submissions=[wire.Submission(completion="x", task=name) for name in names]
    )


def fields(text: str) -> wire.TaskFields:
    return wire.TaskFields.model_validate({"grader": TESTS, "prelude": text})


async def test_tasks_are_bounded_and_the_ones_unused_for_longest_go_first() -> None:
    draw = random.Random(1)
    long = ["".join(draw.choices("abcdefghijklmnop", k=20_000)) for _ in range(4)]
    here = SavedTasks(most_bytes=45_000)  # three of them
    names = await here.save("t", [fields(each) for each in long[:3]])
    await here.completed("t", request_of(names[0]))
    names += await here.save("t", [fields(long[3])])
    for number in (0, 2, 3):
        found = await here.completed("t", request_of(names[number], names[number]))
        assert [each.prelude for each in found.submissions] == [long[number]] * 2
    with pytest.raises(NotFound, match="there is no task"):
        await here.completed("t", request_of(names[1]))


async def test_a_tenant_with_many_tasks_displaces_its_own() -> None:
    draw = random.Random(2)
    long = ["".join(draw.choices("abcdefghijklmnop", k=20_000)) for _ in range(6)]
    here = SavedTasks(most_bytes=45_000)  # three of them
    [lone] = await here.save("other", [fields(long[0])])
    await here.save("t", [fields(each) for each in long[1:]])
    found = await here.completed("other", request_of(lone))
    assert found.submissions[0].prelude == long[0]


async def test_the_tasks_of_one_request_are_bounded() -> None:
    here = SavedTasks()
    with constants(saved_task_bytes=50_000):
        names = await here.save("t", [fields(str(n) * 20_000) for n in range(3)])
        await here.completed("t", request_of(names[0], names[0], names[1]))
        with pytest.raises(BatchTooLarge, match="too large together"):
            await here.completed("t", request_of(*names))


async def test_replicas_share_tasks_and_a_lone_surrogate_survives() -> None:
    shared = Shared()
    one, other = SavedTasks(shared), SavedTasks(shared)
    (name,) = await one.save("t", [fields("x = '\ud800'")])
    found = await other.completed("t", request_of(name))
    assert found.submissions[0].prelude == "x = '\ud800'"
    shared.tasks.clear()
    assert (await other.completed("t", request_of(name))).submissions[0].grader is not None
