"""Rollouts with the tools of a real MCP server, in real sandboxes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import WAIT_SECONDS, running_service
from policy_server import calls, policy_server
from pydantic import SecretStr

from proctor_service.settings import Settings

CALCULATOR = Path(__file__).resolve().parents[1] / "support" / "mcp_calculator.py"
TOKEN = "mcp-5f0c6f2b8d2e4a0c9a5b1f3d7e6c8a90"
RIGHT = "def double(n):\n    return 2 * n\n"
TASK = {
    "id": "t",
    "prompt": "Write double(n).",
    "grader": {"kind": "asserts", "tests": ["assert double(2) == 4"]},
}


@contextmanager
def calculator(form: str) -> Iterator[str]:
    """The URL of a server that answers in this form."""
    command = [sys.executable, str(CALCULATOR), form, TOKEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)


def settings(url: str, token: str = TOKEN) -> Settings:
    server = {"url": url, "headers": {"Authorization": f"Bearer {token}"}}
    return Settings(mcp_servers=SecretStr(json.dumps({"calc": server})))


def play(configured: Settings, acts: list[Any], tools: list[str]) -> dict[str, Any]:
    """The trajectory of a policy that acts so, turn by turn."""
    agent = {"kind": "tools", "tools": tools, "mcp_servers": ["calc"]}
    with (
        policy_server(lambda asked: acts[asked.turn]) as server,
        running_service(configured, judge=None) as service,
        service.client() as client,
    ):
        policy = {"base_url": server.url, "model": "policy"}
        body = {"tasks": [TASK], "policy": policy, "agent": agent}
        answer = client.post("/rollout", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    assert TOKEN not in answer.text
    [trajectory] = answer.json()["trajectories"]
    found: dict[str, Any] = trajectory
    return found


@pytest.mark.parametrize("form", ["json", "sse"])
def test_tools_of_a_real_server_answer_and_keep_their_state(form: str) -> None:
    acts = [
        calls(("calc__add", {"numbers": [1, 2]}), ("calc__add", {"numbers": [4]})),
        calls(("calc__divide", {"a": 1, "b": 0}), ("calc__add", {"numbers": ["x"]})),
        calls(("bash", {"command": "echo 7"}), ("calc__multiply", {})),
        calls(("submit_solution", {"code": RIGHT})),
    ]
    with calculator(form) as url:
        trajectory = play(settings(url), acts, ["bash", "submit_solution"])
    assert trajectory["reward"] == 1.0, trajectory
    told = [each["content"] for each in trajectory["messages_and_choices"] if "content" in each]
    assert told[2:4] == ["3", "7"]
    assert told[4].startswith("Error: the tool failed\n")
    assert told[5] == "Error: calc__add: arguments.numbers[0] must be of type integer"
    assert told[6] == "7\n"
    assert told[7].startswith("Error: there is no tool 'calc__multiply', only: ")
    names = [tool["function"]["name"] for tool in trajectory["tools"]]
    assert names == ["bash", "submit_solution", "calc__add", "calc__divide"]
    assert trajectory["metrics"]["exec_errors"] == 1
    assert trajectory["metrics"]["bad_tool_calls"] == 2


def test_a_server_that_refuses_the_credentials_or_is_away_is_no_reward() -> None:
    acts = [calls(("submit_solution", {"code": RIGHT}))]
    with calculator("json") as url:
        refused = play(settings(url, "wrong-" + TOKEN), acts, ["submit_solution"])
    away = play(settings(url), acts, ["submit_solution"])
    assert refused["error"]["message"] == "mcp server calc: initialize: HTTP 401"
    assert away["error"]["message"] == "mcp server calc: initialize: ConnectError"
    for each in (refused, away):
        assert (each["reward"], each["verdict"]) == (None, None)
        assert each["error"]["retryable"] is True
