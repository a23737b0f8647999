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
from harness import Service, running_service
from policy_server import calls, policy_server
from pydantic import SecretStr
from waits import WAIT_SECONDS

from proctor_service.settings import Settings

CALCULATOR = Path(__file__).resolve().parents[3] / "support" / "mcp_calculator.py"
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


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A service that lists servers which answer as `json` and `sse`, a `closed` and an `away` one."""
    with calculator("json") as json_url, calculator("sse") as sse_url:
        wrong = {"Authorization": f"Bearer wrong-{TOKEN}"}
        right = {"Authorization": f"Bearer {TOKEN}"}
        listed = {
            "json": {"url": json_url, "headers": right},
            "sse": {"url": sse_url, "headers": right},
            "closed": {"url": json_url, "headers": wrong},
            "away": {"url": "http://127.0.0.1:9/mcp"},
        }
        settings = Settings(mcp_servers=SecretStr(json.dumps(listed)))
        with running_service(settings, judge=None) as running:
            yield running


def play(service: Service, acts: list[Any], tools: list[str], name: str) -> dict[str, Any]:
    """The trajectory of a policy that acts so, turn by turn."""
    agent = {"kind": "tools", "tools": tools, "mcp_servers": [name]}
    with policy_server(lambda asked: acts[asked.turn]) as server, service.client() as client:
        policy = {"base_url": server.url, "model": "policy"}
        body = {"tasks": [TASK], "policy": policy, "agent": agent}
        answer = client.post("/rollout", json=body, timeout=WAIT_SECONDS)
    assert answer.status_code == 200, answer.text
    assert TOKEN not in answer.text
    [trajectory] = answer.json()["trajectories"]
    found: dict[str, Any] = trajectory
    return found


@pytest.mark.parametrize("name", ["json", "sse"])
def test_tools_of_a_real_server_answer_and_keep_their_state(service: Service, name: str) -> None:
    add, divide = f"{name}__add", f"{name}__divide"
    acts = [
        calls((add, {"numbers": [1, 2]}), (add, {"numbers": [4]})),
        calls((divide, {"a": 1, "b": 0}), (add, {"numbers": ["x"]})),
        calls(("bash", {"command": "echo 7"}), (f"{name}__multiply", {})),
        calls(("submit_solution", {"code": RIGHT})),
    ]
    trajectory = play(service, acts, ["bash", "submit_solution"], name)
    assert trajectory["reward"] == 1.0, trajectory
    told = [each["content"] for each in trajectory["messages_and_choices"] if "content" in each]
    assert told[2:4] == ["3", "7"]
    assert told[4].startswith("Error: the tool failed\n")
    assert told[5] == f"Error: {add}: arguments.numbers[0] must be of type integer"
    assert told[6] == "7\n"
    assert told[7].startswith(f"Error: there is no tool '{name}__multiply', only: ")
    names = [tool["function"]["name"] for tool in trajectory["tools"]]
    assert names == ["bash", "submit_solution", add, divide]
    assert trajectory["metrics"]["exec_errors"] == 1
    assert trajectory["metrics"]["bad_tool_calls"] == 2


@pytest.mark.parametrize(("name", "why"), [("closed", "HTTP 401"), ("away", "ConnectError")])
def test_a_server_that_refuses_or_is_away_is_no_reward(
    service: Service, name: str, why: str
) -> None:
    acts = [calls(("submit_solution", {"code": RIGHT}))]
    found = play(service, acts, ["submit_solution"], name)
    assert found["error"]["message"] == f"mcp server {name}: initialize: {why}"
    assert (found["reward"], found["verdict"]) == (None, None)
    assert found["error"]["retryable"] is True
