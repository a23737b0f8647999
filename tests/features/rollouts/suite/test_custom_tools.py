"""Custom tools of a rollout in real sandboxes."""

from __future__ import annotations

from typing import Any

from harness import Service
from policy_server import calls, policy_server
from waits import WAIT_SECONDS

RIGHT = "def double(n):\n    return 2 * n\n"
TOOL = """\
import json, sys
arguments = json.load(sys.stdin)
open("calls.txt", "a").write(arguments["word"] + "\\n")
print(arguments["word"], sum(1 for _ in open("calls.txt")), sys.argv[1])
"""
FUNCTION = {
    "name": "count",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
    },
}


def test_a_custom_tool_runs_in_the_trajectorys_sandbox_and_its_failures_are_told(
    service: Service,
) -> None:
    acts: list[Any] = [
        calls(("count", {"word": "$(id)"})),
        calls(("count", {"word": "'; é"}), ("count", {"words": 1})),
        calls(("bash", {"command": "cat calls.txt; rm count.py"})),
        calls(("count", {"word": "x"})),
        calls(("lost", {})),
        calls(("submit_solution", {"code": RIGHT})),
    ]
    lost = {"function": {"name": "lost"}, "command": ["no-such-program"]}
    agent = {
        "kind": "tools",
        "tools": ["bash", "submit_solution"],
        "custom_tools": [{"function": FUNCTION, "command": ["python3", "count.py", "$HOME"]}, lost],
    }
    task = {
        "id": "t",
        "prompt": "Write double(n).",
        "files": {"count.py": TOOL},
        "grader": {"kind": "asserts", "tests": ["assert double(2) == 4"]},
    }
    with (
        policy_server(lambda asked: acts[asked.turn]) as server,
        service.client() as client,
    ):
        policy = {"base_url": server.url, "model": "policy"}
        body = {"tasks": [task], "policy": policy, "agent": agent}
        [trajectory] = client.post("/rollout", json=body, timeout=WAIT_SECONDS).json()[
            "trajectories"
        ]
    told = [
        each["content"] for each in trajectory["messages_and_choices"] if each.get("role") == "tool"
    ]
    assert told[:2] == ["$(id) 1 $HOME\n", "'; é 2 $HOME\n"]
    assert told[2] == "Error: count: arguments needs 'word'"
    assert told[3] == "$(id)\n'; é\n"
    assert told[4].startswith("Exit code: 2\n")
    assert told[5].startswith("Exit code: 127")
    assert trajectory["reward"] == 1.0
    assert trajectory["metrics"]["bad_tool_calls"] == 1
    assert trajectory["metrics"]["exec_errors"] == 2
    assert [tool["function"]["name"] for tool in trajectory["tools"]][2:] == ["count", "lost"]
