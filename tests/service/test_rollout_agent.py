"""The agent's loops, with a scripted policy, judge and sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness import WAIT_SECONDS
from policy_server import completion

from proctor_client.wire import Agent, AssertsGrader, RefineAgent, Tool, ToolsAgent
from proctor_service.errors import (
    DeadlinePassed,
    Failure,
    FileMissing,
    FileRefused,
    InvalidTask,
    JudgeFailed,
    PolicyUnavailable,
    SandboxEnded,
    SandboxLost,
    SandboxUnavailable,
)
from proctor_service.evaluate import Item, NoCode, Outcome
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.rollout.agent import Player
from proctor_service.rollout.policy import ContextExceeded
from proctor_service.rollout.reply import Reply, read_reply
from proctor_service.rollout.tools import Workplace
from proctor_service.rollout.trajectory import JsonObject, Plan, Task, Trajectory
from proctor_service.sandbox.interface import Command, Ended, Limits, Usage

GRADER = AssertsGrader(kind="asserts", tests=["assert f() == 1", "assert f() == 2"])
LIMITS = Limits(1, 1, 64, 64, 8, 8)
HELLO: list[JsonObject] = [{"role": "user", "content": "Write f."}]
CODE = "def f(): return 1"
ALL_TOOLS: list[Tool] = ["execute_code", "bash", "read_file", "write_file", "submit_solution"]


def says(text: str | None, reason: str = "stop") -> Reply:
    return read_reply(json.dumps(completion({"content": text}, reason)).encode(), "")


def calls(*wanted: tuple[str, Any], reason: str = "tool_calls") -> Reply:
    listed = [
        {
            "id": f"c{number}",
            "function": {"name": name, "arguments": a if isinstance(a, str) else json.dumps(a)},
        }
        for number, (name, a) in enumerate(wanted)
    ]
    message = {"content": None, "tool_calls": listed}
    return read_reply(json.dumps(completion(message, reason)).encode(), "")


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
    heard: list[list[JsonObject]] = field(default_factory=list)
    offered: list[Sequence[JsonObject]] = field(default_factory=list)
    judged: list[Item] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    opened: int = 0
    stopped: int = 0
    events: dict[str, asyncio.Event] = field(default_factory=dict)

    async def ask(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject]) -> Reply:
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

    async def open_workplace(self, plan: Plan) -> Workplace:
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
    ) -> Trajectory:
        return asyncio.run(self.played(agent, seconds, files, grader))

    async def played(
        self, agent: Agent, seconds: float, files: Mapping[str, str] = {}, grader: Any = GRADER
    ) -> Trajectory:
        task = Task("t", HELLO, grader, files, test_count=2)
        plan = Plan(
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
        player = Player(self.evaluate, self.open_workplace, lambda plan: contextlib.nullcontext())
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

    async def stop(self) -> None:
        self.world.stopped += 1


def well(stdout: bytes = b"fine\n", code: int = 0) -> Ended:
    return Ended("exited", code, None, stdout, b"", False, Usage())


def tools(*names: Tool, **fields: Any) -> ToolsAgent:
    return ToolsAgent(kind="tools", tools=list(names) or ALL_TOOLS, **fields)


REFINE = RefineAgent(kind="refine")


def failed(**fields: Any) -> Outcome:
    return Outcome(Judgement("failed", total=2, message="f() gave 3", **fields), 0.0)


# ---------------------------------------------------------------- submit_solution


def test_a_submission_ends_the_episode_and_is_judged_apart() -> None:
    world = World([runs(), submits(), runs()])
    found = world.play(tools(), files={"data.txt": "1"})
    assert (found.verdict, found.reward, found.failure) == ("passed", 1.0, None)
    [item] = world.judged
    assert item.submission == Submission(CODE, GRADER, LIMITS, "all", files={"data.txt": "1"})
    assert (item.tenant, item.job, item.tags) == ("me", "job", ("x", "rollout:ro_1"))
    assert found.sandbox_id == "sb_1"
    assert (world.opened, world.stopped) == (1, 1)
    roles = [each.get("role", "choice") for each in found.messages_and_choices]
    assert roles == ["user", "choice", "tool", "choice"]
    assert (
        found.metrics.items()
        >= {
            "turns": 2,
            "tool_calls": 2,
            "exec_errors": 0,
            "bad_tool_calls": 0,
            "hit_max_turns": 0,
            "context_exceeded": 0,
            "prompt_tokens": 20,
            "completion_tokens": 6,
        }.items()
    )
    assert found.metrics["duration_seconds"] > 0


def test_no_sandbox_is_made_where_no_tool_needs_one() -> None:
    world = World([says("Hm."), submits()])
    found = world.play(tools())
    assert (world.opened, world.stopped) == (0, 0)
    assert found.sandbox_id == "sb_judge"


def test_the_tools_are_offered_in_openais_form() -> None:
    world = World([submits()])
    found = world.play(tools("bash", "submit_solution", "bash"))
    assert found.tools == world.offered[0]
    assert found.tools is not None
    assert [each["type"] for each in found.tools] == ["function", "function"]
    bash: Any = found.tools[0]["function"]
    assert bash["name"] == "bash"
    assert bash["description"]
    assert bash["parameters"]["required"] == ["command"]
    assert bash["parameters"]["additionalProperties"] is False


def test_talk_without_a_tool_is_answered_until_the_turns_are_over() -> None:
    world = World([says("I think."), says("cut", "length"), says("")])
    found = world.play(tools(max_turns=3))
    assert (found.verdict, found.reward) == ("no_code", 0.0)
    assert found.metrics["hit_max_turns"] == 1
    assert found.metrics["turns"] == 3
    assert "submit_solution" in str(world.heard[1][-1]["content"])
    assert "cut off" in world.told
    assert world.judged[0].submission == NoCode(2)
    # The last reply has nobody left to answer it.
    assert "message" in found.messages_and_choices[-1]


def test_tools_without_an_end_are_no_code() -> None:
    world = World([runs()])
    found = world.play(tools(max_turns=4))
    assert (found.verdict, found.reward, world.stopped) == ("no_code", 0.0, 1)
    assert (found.metrics["turns"], found.metrics["tool_calls"]) == (4, 4)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("execute_code", "{", "not JSON"),
        ("execute_code", "", "not JSON"),
        ("execute_code", "[" * 100_000, "not JSON"),
        ("execute_code", "[1]", "not a JSON object"),
        ("execute_code", {}, "needs the argument 'code'"),
        ("execute_code", {"code": 7}, "'code' of execute_code must be a string"),
        ("execute_code", {"code": None}, "must be a string"),
        ("execute_code", {"code": "1", "language": "py"}, "takes no argument 'language'"),
        ("submit_solution", {"solution": CODE}, "needs the argument 'code'"),
        ("write_file", {"path": "a"}, "needs the argument 'content'"),
        ("python", {"code": "1"}, "no tool 'python', only: execute_code, bash"),
        ("", {}, "no tool ''"),
    ],
)
def test_a_bad_call_is_told_and_costs_no_sandbox(name: str, arguments: Any, said: str) -> None:
    world = World([calls((name, arguments)), submits()])
    found = world.play(tools())
    assert world.told.startswith("Error: ")
    assert said in world.told
    assert found.reward == 1.0
    assert (found.metrics["bad_tool_calls"], found.metrics["exec_errors"]) == (1, 0)
    assert world.opened == 0


def test_a_call_that_was_cut_off_is_told_so() -> None:
    world = World([calls(("execute_code", '{"code": "x'), reason="length"), submits()])
    world.play(tools())
    assert "cut off" in world.told


def test_several_calls_in_one_reply_run_in_their_order_up_to_a_submission() -> None:
    reply = calls(
        ("write_file", {"path": "a", "content": "1"}),
        ("python", {}),
        ("read_file", {"path": "a"}),
        ("submit_solution", {"code": CODE}),
        ("bash", {"command": "never"}),
    )
    world = World([reply])
    found = world.play(tools())
    observed = [
        each["content"] for each in found.messages_and_choices if each.get("role") == "tool"
    ]
    assert [str(each)[:6] for each in observed] == ["Wrote ", "Error:", "1"]
    assert [each.get("tool_call_id") for each in found.messages_and_choices[2:]] == [
        "c0",
        "c1",
        "c2",
    ]
    assert world.commands == []
    assert found.metrics["tool_calls"] == 4


def test_what_a_tool_says_of_a_failure() -> None:
    world = World(
        [
            calls(
                ("read_file", {"path": "nowhere"}),
                ("write_file", {"path": "/", "content": ""}),
                ("bash", {"command": "a\0b"}),
                ("write_file", {"path": "a", "content": "\ud800"}),
                ("write_file", {"path": "b", "content": "a\0b"}),
                ("read_file", {"path": "b"}),
            ),
            submits(),
        ]
    )
    found = world.play(tools())
    said = [
        str(each["content"]) for each in found.messages_and_choices if each.get("role") == "tool"
    ]
    assert said[0] == "Error: no such file: nowhere"
    assert said[1] == "Error: it is a directory"
    assert said[2].startswith("Error: command holds")
    assert said[3].startswith("Error: content holds")
    assert said[4:] == ["Wrote 3 bytes.", "a\0b"]
    assert found.metrics["exec_errors"] == 4


def test_commands_are_run_with_the_agents_timeout_and_the_shell_there_is() -> None:
    world = World([calls(("bash", {"command": "ls"}), ("execute_code", {"code": "1"})), submits()])
    world.play(tools(exec_timeout_seconds=7))
    assert world.commands == [
        Command(("bash", "-c", "ls"), timeout_seconds=7),
        Command(code="1", timeout_seconds=7),
    ]


def test_a_sandbox_that_ended_by_its_own_act_is_replaced() -> None:
    ended = SandboxEnded("it used up its memory")
    world = World([runs(), runs(), submits()], execs=[ended, well()])
    found = world.play(tools(), files={"a": "1"})
    first = str(found.messages_and_choices[2]["content"])
    assert "it used up its memory" in first
    assert "task's files" in first
    assert found.messages_and_choices[4]["content"] == "fine\n"
    assert (world.opened, world.stopped) == (2, 2)
    assert found.sandbox_id == "sb_2"
    assert (found.reward, found.metrics["exec_errors"]) == (1.0, 1)


@pytest.mark.parametrize("failure", [SandboxLost("gone"), SandboxUnavailable("none")])
def test_a_sandbox_that_was_lost_is_an_error_without_a_reward(failure: Failure) -> None:
    world = World([runs(), submits()], execs=[failure])
    found = world.play(tools())
    assert (found.failure, found.reward, found.verdict) == (failure, None, None)
    assert world.judged == []
    assert world.stopped == 1
    assert found.metrics["turns"] == 1
    assert "message" in found.messages_and_choices[1]


@pytest.mark.parametrize("failure", [SandboxUnavailable("none"), InvalidTask("files: too large")])
def test_a_sandbox_that_cannot_be_had_is_an_error(failure: Failure) -> None:
    found = World([runs()], opening=failure).play(tools())
    assert (found.failure, found.reward, found.sandbox_id) == (failure, None, None)


# ---------------------------------------------------------------- the final state


def test_the_final_state_is_judged_where_nothing_is_submitted() -> None:
    world = World([runs(), says("Done.")], files={"solution.py": b"x = 1"})
    found = world.play(tools("execute_code"), files={"data.txt": "1"})
    assert world.judged[0].submission == Submission(
        "x = 1", GRADER, LIMITS, "all", state=b"a tar archive"
    )
    assert (found.reward, world.stopped) == (1.0, 1)
    assert found.metrics["hit_max_turns"] == 0


def test_the_final_state_is_judged_at_the_last_turn_too() -> None:
    world = World([runs()], files={"solution.py": b"x = 1"})
    found = world.play(tools("execute_code", max_turns=2))
    assert (found.reward, found.metrics["hit_max_turns"]) == (1.0, 1)


def test_a_final_state_whose_sandbox_died_is_that_of_a_fresh_one() -> None:
    world = World([runs(), says("Done.")], execs=[SandboxEnded("it used up its memory")])
    assert world.play(tools("execute_code")).verdict == "no_code"
    world = World([runs(), says("Done.")], execs=[SandboxEnded("it used up its memory")])
    world.play(tools("execute_code"), files={"solution.py": "given"})
    submission = world.judged[0].submission
    assert isinstance(submission, Submission)
    assert (submission.source, submission.state) == ("given", None)


# ---------------------------------------------------------------- refine


def test_an_attempt_that_fails_is_told_why_and_the_last_one_counts() -> None:
    world = World(
        [says("```\none\n```"), says("prose"), says("```\nthree\n```")],
        outcomes=[failed(stderr="Traceback: oh"), failed(sandbox_id="sb_9")],
    )
    found = world.play(REFINE)
    assert (found.verdict, found.reward, found.sandbox_id) == ("failed", 0.0, "sb_9")
    assert [type(item.submission) for item in world.judged] == [Submission, NoCode, Submission]
    assert "f() gave 3" in str(world.heard[1][-1]["content"])
    assert "Traceback: oh" in str(world.heard[1][-1]["content"])
    assert "no code" in str(world.heard[2][-1]["content"])
    assert found.metrics["attempts"] == 3
    assert found.metrics["hit_max_turns"] == 1
    assert found.tools is None
    assert world.offered == [(), (), ()]


def test_the_first_attempt_that_passes_is_the_last() -> None:
    world = World([says("```\none\n```")], outcomes=[failed()])
    found = world.play(RefineAgent(kind="refine", max_attempts=9))
    assert (found.reward, found.metrics["attempts"], found.metrics["hit_max_turns"]) == (1.0, 2, 0)
    assert found.sandbox_id == "sb_judge"


def test_a_judge_that_fails_is_an_error_though_an_earlier_attempt_had_a_verdict() -> None:
    lost = SandboxLost("gone")
    world = World([says("```\none\n```")], outcomes=[failed(), Outcome(failure=lost)])
    found = world.play(REFINE)
    assert (found.failure, found.reward, found.verdict) == (lost, None, None)


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("agent", [REFINE, tools()])
def test_a_policy_that_fails_is_an_error_without_a_reward(agent: Agent) -> None:
    down = PolicyUnavailable("policy: down")
    first = says("```\none\n```") if agent is REFINE else runs()
    world = World([first, down], outcomes=[failed()])
    found = world.play(agent)
    assert (found.failure, found.reward, found.verdict) == (down, None, None)
    assert found.metrics["turns"] == 1
    assert world.opened == world.stopped


def test_a_conversation_that_outgrew_the_context_is_the_policys_own_doing() -> None:
    too_long = ContextExceeded("HTTP 400: context length")
    found = World([runs(), too_long]).play(tools())
    assert (found.verdict, found.reward, found.failure) == ("no_code", 0.0, None)
    assert (found.metrics["context_exceeded"], found.metrics["hit_max_turns"]) == (1, 0)
    found = World([says("```\none\n```"), too_long], outcomes=[failed()]).play(REFINE)
    assert (found.verdict, found.reward) == ("failed", 0.0)
    assert found.metrics["context_exceeded"] == 1
    state = World([runs(), too_long], files={"solution.py": b"x = 1"})
    assert state.play(tools("execute_code")).reward == 1.0


@pytest.mark.parametrize("agent", [REFINE, tools()])
def test_a_task_that_never_fitted_the_context_says_nothing_of_the_policy(agent: Agent) -> None:
    found = World([ContextExceeded("HTTP 400: context length")]).play(agent)
    assert isinstance(found.failure, PolicyUnavailable)
    assert "context length" in found.failure.message
    assert found.reward is None


async def never() -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("agent", [REFINE, tools()])
def test_the_deadline_ends_it_without_a_reward(agent: Agent) -> None:
    first = says("```\none\n```") if agent is REFINE else runs()
    world = World([first, never], outcomes=[failed()])
    found = world.play(agent, seconds=0.05)
    assert isinstance(found.failure, DeadlinePassed)
    assert found.reward is None
    assert world.opened == world.stopped


@pytest.mark.parametrize("error", [KeyError("x"), TimeoutError("not ours")])
def test_a_fault_of_ours_is_an_error_and_is_logged(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        found = World([runs(), submits()], execs=[error]).play(tools())
    assert isinstance(found.failure, JudgeFailed)
    assert "ro_1" in found.failure.message
    assert found.reward is None
    assert caplog.records


def test_cancelling_it_stops_its_sandbox() -> None:
    async def cancelled() -> World:
        asked = asyncio.Event()

        async def hang() -> Any:
            asked.set()
            await never()

        world = World([runs(), hang])
        playing = asyncio.create_task(world.played(tools(), WAIT_SECONDS))
        await asked.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return world

    world = asyncio.run(cancelled())
    assert (world.opened, world.stopped) == (1, 1)


def test_a_stop_goes_on_though_it_is_cancelled() -> None:
    async def run() -> int:
        stopping, go_on, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

        class Slow(Place):
            async def stop(self) -> None:
                stopping.set()
                await go_on.wait()
                await super().stop()
                stopped.set()

        world = World([runs(), submits()])

        async def open_slow(plan: Plan) -> Workplace:
            world.opened += 1
            return Slow(world, "sb_slow")

        world.open_workplace = open_slow  # type: ignore[method-assign]
        playing = asyncio.create_task(world.played(tools(), WAIT_SECONDS))
        await stopping.wait()
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        assert world.stopped == 0
        go_on.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await stopped.wait()
        return world.stopped

    assert asyncio.run(run()) == 1


def test_a_sandbox_that_will_not_stop_costs_no_reward(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(Place):
        async def stop(self) -> None:
            raise KeyError("no")

    world = World([runs(), submits()])

    async def open_stubborn(plan: Plan) -> Workplace:
        return Stubborn(world, "sb_1")

    world.open_workplace = open_stubborn  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR):
        assert world.play(tools()).reward == 1.0
    assert "not stopped" in caplog.text
