"""A scripted policy, judge and sandbox for tests of the agent's loops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from policy_server import completion
from waits import WAIT_SECONDS

from proctor_client.wire import Agent, AssertsGrader, RefineAgent, Tool, ToolsAgent
from proctor_service.errors import FileMissing, FileRefused
from proctor_service.features.rollouts.agent import Player
from proctor_service.features.rollouts.reply import Reply, reply_of
from proctor_service.features.rollouts.tools import Workplace
from proctor_service.judge.extract import NOTHING, Around
from proctor_service.judge.submission import Judgement
from proctor_service.outcomes import (
    Item,
    JsonObject,
    NoCode,
    Outcome,
    Trajectory,
    TrajectoryPlan,
    TrajectoryTask,
)
from proctor_service.sandbox.interface import Command, Ended, Limits, Operation, Usage
from proctor_service.settings.mcp_servers import McpServer

GRADER = AssertsGrader(kind="asserts", tests=["assert f() == 1", "assert f() == 2"])
LIMITS = Limits(1, 1, 64, 64, 8, 8)
HELLO: list[JsonObject] = [{"role": "user", "content": "Write f."}]
CODE = "def f(): return 1"
ALL_TOOLS: list[Tool] = ["execute_code", "bash", "read_file", "write_file", "submit_solution"]


def says(text: str | None, reason: str = "stop") -> Reply:
    return reply_of(completion({"content": text}, reason))


def calls(*wanted: tuple[str, Any], reason: str = "tool_calls") -> Reply:
    listed = [
        {
            "id": f"c{number}",
            "function": {"name": name, "arguments": a if isinstance(a, str) else json.dumps(a)},
        }
        for number, (name, a) in enumerate(wanted)
    ]
    message = {"content": None, "tool_calls": listed}
    return reply_of(completion(message, reason))


def submits(code: str = CODE) -> Reply:
    return calls(("submit_solution", {"code": code}))


def runs(code: str = "1") -> Reply:
    return calls(("execute_code", {"code": code}))


@dataclass
class World:
    """All that an agent meets, noting what it does."""

    replies: list[Reply | BaseException | Callable[[], Any]]
    outcomes: list[Outcome] = field(default_factory=list)
    execs: list[Ended | BaseException] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    opening: BaseException | None = None
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict)
    heard: list[list[JsonObject]] = field(default_factory=list)
    offered: list[Sequence[JsonObject]] = field(default_factory=list)
    judged: list[Item] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    opened: int = 0
    stopped: int = 0
    events: dict[str, asyncio.Event] = field(default_factory=dict)

    async def ask(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], seed: int | None = None
    ) -> Reply:
        self.heard.append(list(messages))
        self.offered.append(tools)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, BaseException):
            raise reply
        return reply if isinstance(reply, Reply) else await reply()

    async def evaluate(self, item: Item) -> Outcome:
        self.judged.append(item)
        if isinstance(item.submission, NoCode):
            return Outcome(Judgement("no_code", total=item.submission.tests), 0.0)
        if self.outcomes:
            return self.outcomes.pop(0)
        return Outcome(Judgement("passed", passed=2, total=2, sandbox_id="sb_judge"), 1.0)

    async def open_workplace(self, plan: TrajectoryPlan) -> Workplace:
        if self.opening is not None:
            raise self.opening
        self.opened += 1
        self.files.update({path: text.encode() for path, text in plan.task.files.items()})
        return Place(self, f"sb_{self.opened}")

    def play(
        self,
        agent: Agent,
        seconds: float = WAIT_SECONDS,
        files: Mapping[str, str] = {},
        grader: Any = GRADER,
        around: Around = NOTHING,
    ) -> Trajectory:
        return asyncio.run(self.played(agent, seconds, files, grader, around))

    async def played(
        self,
        agent: Agent,
        seconds: float,
        files: Mapping[str, str] = {},
        grader: Any = GRADER,
        around: Around = NOTHING,
    ) -> Trajectory:
        task = TrajectoryTask("t", HELLO, grader, files, test_count=2, around=around)
        plan = TrajectoryPlan(
            "ro_1",
            task,
            agent,
            LIMITS,
            "all",
            "auto",
            "me",
            "job",
            time.monotonic() + seconds,
            ("x",),
        )
        player = Player(
            self.evaluate,
            self.open_workplace,
            lambda plan: contextlib.nullcontext(),
            self.mcp_servers,
        )
        return await player.play(plan, self.ask)

    @property
    def told(self) -> str:
        """The last thing that the policy heard."""
        return str(self.heard[-1][-1]["content"])


@dataclass
class Place:
    """A sandbox that does what the world says."""

    world: World
    id: str

    async def exec(self, command: Command) -> Ended:
        self.world.commands.append(command)
        how = self.world.execs.pop(0) if self.world.execs else well()
        if isinstance(how, BaseException):
            raise how
        return how

    async def read_file(self, path: str, max_bytes: int | None = None) -> bytes:
        if path not in self.world.files:
            raise FileMissing(f"no such file: {path}")
        return self.world.files[path]

    async def write_file(self, path: str, data: bytes) -> None:
        if path == "/":
            raise FileRefused("it is a directory")
        self.world.files[path] = data

    async def snapshot(self) -> bytes:
        return b"a tar archive"

    async def operate(self, operation: Operation) -> None:
        raise FileRefused("no code of the service")

    async def stop(self) -> None:
        self.world.stopped += 1


def well(stdout: bytes = b"fine\n", code: int = 0) -> Ended:
    return Ended("exited", code, None, stdout, b"", False, Usage())


def tools(*names: Tool, **fields: Any) -> ToolsAgent:
    return ToolsAgent(kind="tools", tools=list(names) or ALL_TOOLS, **fields)


REFINE = RefineAgent(kind="refine")


def failed(**fields: Any) -> Outcome:
    return Outcome(Judgement("failed", total=2, message="f() gave 3", **fields), 0.0)


def said(played: Trajectory) -> list[Any]:
    """The messages and choices of a trajectory."""
    return [json.loads(each) for each in played.messages_and_choices]
