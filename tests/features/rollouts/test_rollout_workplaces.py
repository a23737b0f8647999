"""What a refusal of the sandboxes' registry means to a trajectory."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from proctor_client.wire import ExecGrader, ToolsAgent
from proctor_service.errors import (
    Busy,
    Cancelled,
    Draining,
    FileMissing,
    FileRefused,
    InvalidTask,
    ProctorServiceError,
    QuotaExceeded,
    SandboxEnded,
    SandboxLost,
    SandboxNotFound,
    SandboxUnavailable,
)
from proctor_service.features.rollouts import workplaces as module
from proctor_service.features.rollouts.tools import Workplace
from proctor_service.features.rollouts.workplaces import workplaces
from proctor_service.outcomes import TrajectoryPlan, TrajectoryTask
from proctor_service.sandbox.interface import Command, Ended, Limits, Usage
from proctor_service.sandboxes.registry import CommandEnd, Order, Registry

LIMITS = Limits(1, 1, 64, 64, 8, 8)
ENDED = Ended("exited", 0, None, b"", b"", False, Usage())


@dataclass
class Session:
    """A sandbox of the registry, by its name and how it ended."""

    id: str = "sb_1"
    tenant: str = "me"
    by_own_act: bool = False


@dataclass
class IdempotencyStore:
    """A registry that fails as it is told, and then gives in."""

    fails: list[ProctorServiceError] = field(default_factory=list)
    kept: Session = field(default_factory=Session)
    orders: list[Order] = field(default_factory=list)
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    async def create(self, order: Order) -> Session:
        self.orders.append(order)
        self._fail()
        return self.kept

    async def execute(self, *asked: Any) -> CommandEnd:
        self._do("execute", *asked)
        return CommandEnd(ENDED, 0.0)

    async def read_file(self, *asked: Any) -> str:
        return self._do("read_file", *asked)

    async def write_file(self, *asked: Any) -> str:
        return self._do("write_file", *asked)

    async def snapshot(self, *asked: Any) -> str:
        return self._do("snapshot", *asked)

    async def stop(self, *asked: Any) -> str:
        return self._do("stop", *asked)

    def _do(self, *asked: Any) -> str:
        self.asked.append(asked)
        self._fail()
        return "done"

    def _fail(self) -> None:
        if self.fails:
            raise self.fails.pop(0)


def plan(seconds: float = 100.0) -> TrajectoryPlan:
    task = TrajectoryTask("t", [], ExecGrader(kind="exec"), {"a": "1"})
    agent = ToolsAgent(kind="tools")
    deadline = time.monotonic() + seconds
    return TrajectoryPlan("ro_1", task, agent, LIMITS, "all", "auto", "me", "run", deadline, ("x",))


async def opened(ledger: IdempotencyStore) -> Workplace:
    return await workplaces(cast(Registry, ledger))(plan())


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASK_AGAIN_SECONDS", 0.0)


def test_a_sandbox_is_ordered_for_the_trajectory_and_outlives_its_deadline() -> None:
    ledger = IdempotencyStore()
    place = asyncio.run(opened(ledger))
    [order] = ledger.orders
    assert place.id == "sb_1"
    assert (order.tenant, order.job, order.limits, order.files) == ("me", "run", LIMITS, {"a": "1"})
    assert order.tags == ("x", "rollout:ro_1")
    assert order.ttl_seconds > 100


async def test_what_is_asked_of_it_reaches_the_registry() -> None:
    ledger = IdempotencyStore()
    place = await opened(ledger)
    await place.exec(Command(("true",)))
    await place.read_file("a", 9)
    await place.write_file("a", b"1")
    await place.snapshot()
    await place.stop()
    assert ledger.asked == [
        ("execute", "me", "sb_1", Command(("true",))),
        ("read_file", "me", "sb_1", "a", 9),
        ("write_file", "me", "sb_1", "a", b"1"),
        ("snapshot", "me", "sb_1"),
        ("stop", "me", "sb_1"),
    ]


async def test_where_there_is_no_room_it_waits() -> None:
    ledger = IdempotencyStore([QuotaExceeded("full"), Busy("full")])
    place = await opened(ledger)
    ledger.fails = [Busy("full"), Busy("full")]
    await place.exec(Command(("true",)))
    assert len(ledger.orders) == 3
    assert len(ledger.asked) == 3


@pytest.mark.parametrize(
    ("refusal", "failure"),
    [
        (Draining("stopping"), Cancelled),
        (FileRefused("no room"), InvalidTask),
        (SandboxEnded("it was stopped by its tags"), Cancelled),
        (SandboxUnavailable("none"), SandboxUnavailable),
    ],
)
def test_a_sandbox_that_cannot_be_had(
    refusal: ProctorServiceError, failure: type[Exception]
) -> None:
    with pytest.raises(failure):
        asyncio.run(opened(IdempotencyStore([refusal])))


@pytest.mark.parametrize(
    ("by_own_act", "refusal", "failure"),
    [
        (False, SandboxEnded("x"), Cancelled),
        (True, SandboxEnded("x"), SandboxEnded),
        (False, SandboxNotFound("x"), Cancelled),
        (False, Draining("x"), Cancelled),
        (False, SandboxLost("x"), SandboxLost),
        (False, FileMissing("x"), FileMissing),
    ],
)
def test_only_what_a_sandbox_did_to_itself_is_the_policys_doing(
    by_own_act: bool, refusal: ProctorServiceError, failure: type[Exception]
) -> None:
    async def use() -> None:
        ledger = IdempotencyStore(kept=Session(by_own_act=by_own_act))
        place = await opened(ledger)
        ledger.fails = [refusal]
        await place.exec(Command(("true",)))

    with pytest.raises(failure) as caught:
        asyncio.run(use())
    assert type(caught.value) is failure
