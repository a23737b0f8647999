"""Replays in real sandboxes: the same verdicts again, and none where a sandbox's state was judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from harness import Service, running_service
from policy_server import calls, policy_server, says
from pydantic import SecretStr

from proctor_service.settings import Settings

ASSERTS = {"kind": "asserts", "tests": ["assert double(2) == 4", "assert double(0) == 0"]}
CASES = [{"args": [2], "expected": 4}, {"args": [0], "expected": 0}]
SEES_ALL = """
def verify(completion, submission, prompt):
    is_whole = completion.startswith("```") and prompt == "Double it."
    return float(is_whole and submission.run("2").stdout == "4\\n")
"""
GRADERS: list[dict[str, Any]] = [
    ASSERTS,
    {"kind": "calls", "entry_point": "double", "cases": CASES, "tolerance": 1e-9},
    {"kind": "stdio", "cases": [{"stdin": "2", "stdout": "4"}], "reveal": True},
    {"kind": "exec"},
    {"kind": "command", "argv": ["python3", "solution.py"], "expect_exit_code": 3},
    {
        "kind": "pytest",
        "files": {
            "test_it.py": "from solution import double\ndef test_it(): assert double(2) == 4\n"
        },
    },
    {"kind": "verifier", "name": "regex", "params": {"pattern": "```python(?s:.*return 2.*)```"}},
    {"kind": "verifier", "source": SEES_ALL},
]
SOURCES = [
    "def double(n): return 2 * n",
    "def double(n): return n",
    "print(2 * int(input()))",
    "print(open('data.txt').read()); raise SystemExit(3)",
    "def double(n:",
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    with running_service(Settings(journal=SecretStr(f"sqlite:///{path}")), judge=None) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        yield opened


def written(service: Service) -> None:
    journal = service.parts.feature("journal").recorder
    assert journal is not None
    service.until(lambda: journal.unwritten == 0)


def replay(client: httpx.Client, id_: str) -> httpx.Response:
    return client.post(f"/evaluations/{id_}/replay")


@pytest.mark.parametrize(
    "grader", GRADERS, ids=lambda grader: str(grader.get("name", grader["kind"]))
)
def test_every_grader_says_the_same_again(
    service: Service, client: httpx.Client, grader: dict[str, Any]
) -> None:
    submissions = [
        {"completion": f"```python\n{each}\n```", "files": {"data.txt": "7\n"}} for each in SOURCES
    ]
    body = {"submissions": submissions, "grader": grader, "scoring": "fraction"}
    body["prompt"] = "Double it."
    results = client.post("/reward", json=body).json()["results"]
    written(service)
    for result in results:
        found = replay(client, result["evaluation_id"]).json()
        assert found["same"], found
        assert found["recorded"]["reward"] == found["replayed"]["reward"] == result["reward"]
        assert found["recorded"]["tests"] == found["replayed"]["tests"] == result["tests"]
        assert found["replayed"]["stdout"] == result["stdout"]
    assert 1.0 in {result["reward"] for result in results}
    assert len({result["reward"] for result in results}) > 1


def test_a_judged_sandbox_is_not_judged_again(service: Service, client: httpx.Client) -> None:
    files = {"solution.py": "def double(n): return 2 * n"}
    sandbox = client.post("/sandboxes", json={"files": files}).json()["id"]
    result = client.post(f"/sandboxes/{sandbox}/grade", json={"grader": ASSERTS}).json()
    assert result["verdict"] == "passed"
    written(service)
    refused = replay(client, result["evaluation_id"])
    assert (refused.status_code, refused.json()["error"]["reason"]) == (409, "not_replayable")
    client.delete(f"/sandboxes/{sandbox}")


def test_nor_are_the_files_that_an_agent_left(service: Service, client: httpx.Client) -> None:
    write = ("bash", {"command": "echo 'from other import double' > solution.py"})
    other = ("bash", {"command": "echo 'def double(n): return 2 * n' > other.py"})
    replies = [calls(write, other), says("Done.")]
    agent = {"kind": "tools", "tools": ["bash"]}
    with policy_server(lambda asked: replies.pop(0)) as server:
        policy = {"base_url": server.url, "model": "policy"}
        task = {"id": "t", "prompt": "Write double(n).", "grader": ASSERTS}
        answer = client.post("/rollout", json={"tasks": [task], "policy": policy, "agent": agent})
    [played] = answer.json()["trajectories"]
    assert played["verdict"] == "passed", played
    written(service)
    [judged] = client.get(f"/rollouts/{played['rollout_id']}").json()["evaluations"]
    assert client.get(f"/evaluations/{judged['id']}").json()["replayable"] is False
    refused = replay(client, judged["id"])
    assert (refused.status_code, refused.json()["error"]["reason"]) == (409, "not_replayable")
