"""The agent's loops, with a scripted policy, judge and sandbox."""

from __future__ import annotations

from typing import Any

import pytest
from rollout_world import (
    CODE,
    GRADER,
    LIMITS,
    REFINE,
    World,
    calls,
    failed,
    runs,
    said,
    says,
    submits,
    tools,
    well,
)

from proctor_client.wire import RefineAgent
from proctor_service.errors import (
    Failure,
    InvalidTask,
    SandboxEnded,
    SandboxLost,
    SandboxUnavailable,
)
from proctor_service.judge.extract import Around
from proctor_service.judge.submission import Submission
from proctor_service.outcomes import NoCode, Outcome
from proctor_service.sandbox.interface import Command

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
    roles = [each.get("role", "choice") for each in said(found)]
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


def test_an_answer_is_judged_behind_its_prelude_and_its_prompt() -> None:
    around = Around("import math", "def f():\n", entry_point="f")
    program = "import math\ndef f():\n    return math.pi"
    answers = {
        "    return math.pi": program,
        "```python\nreturn math.pi\n```": program,
        "def f():\n    return 4": "import math\ndef f():\n    return 4",
    }
    for text, source in answers.items():
        for reply, agent in ((says(text), REFINE), (submits(text), tools())):
            world = World([reply])
            world.play(agent, around=around)
            [item] = world.judged
            assert isinstance(item.submission, Submission)
            assert item.submission.source.rstrip() == source


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
    assert "message" in said(found)[-1]


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
        ("execute_code", {"code": "#" * (1 << 20)}, "longer than 1 MB"),
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
    observed = [each["content"] for each in said(found) if each.get("role") == "tool"]
    assert [str(each)[:6] for each in observed] == ["Wrote ", "Error:", "1"]
    assert [each.get("tool_call_id") for each in said(found)[2:]] == [
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
    texts = [str(each["content"]) for each in said(found) if each.get("role") == "tool"]
    assert texts[0] == "Error: no such file: nowhere"
    assert texts[1] == "Error: it is a directory"
    assert texts[2].startswith("Error: command holds")
    assert texts[3].startswith("Error: content holds")
    assert texts[4:] == ["Wrote 3 bytes.", "a\0b"]
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
    first = str(said(found)[2]["content"])
    assert "it used up its memory" in first
    assert "task's files" in first
    assert said(found)[4]["content"] == "fine\n"
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
    assert "message" in said(found)[1]


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


def test_feedback_holds_nothing_that_no_request_can() -> None:
    world = World([says("```\none\n```")], outcomes=[failed(stderr="ValueError: \ud800")])
    assert world.play(REFINE).verdict == "passed"
    told = str(world.heard[1][-1]["content"])
    assert "ValueError: \ufffd" in told
    assert told.encode()


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
