"""Custom tools of an agent: what the policy is offered, and what a call of it runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import Service
from rollout_requests import request
from rollout_world import World, calls, submits, tools, well

from proctor_client.wire import CustomTool, ToolsAgent
from proctor_service.sandbox.interface import Ended

FUNCTION = {
    "name": "find",
    "description": "Find a word.",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
}
FIND = {"type": "function", "function": FUNCTION, "command": ["python3", "find.py", "$HOME"]}
AGENT = {"kind": "tools", "tools": ["submit_solution"], "custom_tools": [FIND]}


def agent(**fields: Any) -> ToolsAgent:
    return tools("submit_solution", custom_tools=[CustomTool.model_validate(FIND)], **fields)


def test_a_call_runs_the_command_with_its_arguments_on_stdin() -> None:
    hostile = "'; rm -rf / #$(id)\n\0\ud800"
    world = World([calls(("find", {"word": hostile})), submits()], execs=[well(b"line 3\n")])
    found = world.play(agent(exec_timeout_seconds=7))
    [command] = world.commands
    assert command.argv == ("python3", "find.py", "$HOME")
    assert json.loads(command.stdin) == {"word": hostile}
    assert command.timeout_seconds == 7
    assert world.told == "line 3\n"
    assert found.reward == 1.0
    assert [each["function"] for each in world.offered[0]][1] == FUNCTION


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("find", {}, "find: arguments needs 'word'"),
        ("find", "", "find: arguments needs 'word'"),
        ("find", {"word": 3}, "find: arguments.word must be of type string"),
        ("find", {"word": "x", "n": 1}, "find: arguments.n is not allowed"),
        ("find", "[]", "find: arguments must be of type object"),
        ("find", '{"word"', "the arguments of find are not JSON"),
        ("find", '{"word": NaN}', "the arguments of find are not JSON"),
        ("find", "[" * 100_000, "the arguments of find are not JSON"),
        ("find", {"word": "x" * (1 << 18)}, "the arguments of find are longer than 256 KB"),
        ("grep", {}, "there is no tool 'grep', only: submit_solution, find"),
    ],
)
def test_arguments_that_break_the_schema_are_told_and_run_nothing(
    name: str, arguments: Any, said: str
) -> None:
    world = World([calls((name, arguments)), submits()])
    found = world.play(agent())
    assert world.told.startswith(f"Error: {said}")
    assert world.opened == 0
    assert found.metrics["bad_tool_calls"] == 1


def test_a_command_that_fails_is_told_and_its_output_is_cut_to_the_end() -> None:
    execs: list[Ended | BaseException] = [well(b"x" * 9000 + b"the end", code=2)]
    world = World([calls(("find", {"word": "a"})), submits()], execs=execs)
    found = world.play(agent(observation_characters=256))
    assert world.told.startswith("Exit code: 2\n")
    assert world.told.endswith("the end")
    assert len(world.told) <= 256
    assert found.metrics["exec_errors"] == 1


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tools": [], "custom_tools": []}, "agent.tools: an agent has at least one"),
        (
            {"custom_tools": [FIND, FIND]},
            "agent.custom_tools: Value error, there are two tools 'find'",
        ),
        (
            {"custom_tools": [{**FIND, "function": {**FUNCTION, "name": "bash"}}]},
            "agent.custom_tools: Value error, there are two tools 'bash'",
        ),
        (
            {"custom_tools": [{**FIND, "function": {**FUNCTION, "name": "a b"}}]},
            "agent.custom_tools.0.function.name: ",
        ),
        ({"custom_tools": [{**FIND, "command": []}]}, "agent.custom_tools.0.command: "),
        ({"custom_tools": [{**FIND, "command": [""]}]}, "agent.custom_tools.0.command: "),
        ({"custom_tools": [{**FIND, "command": ["a\0"]}]}, "agent.custom_tools.0.command: "),
        ({"custom_tools": [{**FIND, "command": "ls"}]}, "agent.custom_tools.0.command: "),
        (
            {"custom_tools": [{**FIND, "function": {"name": "a", "parameters": {}}}]},
            "agent.custom_tools.0.function.parameters.type: must be 'object'",
        ),
        (
            {
                "custom_tools": [
                    {
                        **FIND,
                        "function": {"name": "a", "parameters": {"type": "object", "$ref": ""}},
                    }
                ]
            },
            "agent.custom_tools.0.function.parameters.$ref: this keyword is not supported",
        ),
        (
            {
                "custom_tools": [
                    {
                        **FIND,
                        "function": {
                            "name": "a",
                            "parameters": {"type": "object", "title": "x" * (1 << 16)},
                        },
                    }
                ]
            },
            "agent.custom_tools.0.function.parameters: longer than 32 KB",
        ),
    ],
)
def test_a_tool_that_cannot_be_is_a_422_that_names_the_field(
    service: Service, fields: dict[str, Any], named: str
) -> None:
    with service.client() as client:
        body = request("http://127.0.0.1:9/v1", agent={**AGENT, **fields})
        answer = client.post("/rollout", json=body)
    assert answer.status_code == 422, answer.text
    assert named in answer.json()["error"]["message"]
