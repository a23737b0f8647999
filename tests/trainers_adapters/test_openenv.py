"""The server for OpenEnv, with OpenEnv's own client, over WebSockets and HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from adapter_calls import DOWN, Case, cases
from environment_server import (
    environment_server,
    solution,
    wait_for_no_sandbox,
    write_rows,
)
from openenv.core.generic_client import GenericEnvClient
from waits import WAIT_SECONDS

from proctor_client import Client
from proctor_client.tasks.forms import task_from_row
from proctor_trainers.episodes import Episodes, NotBegun
from proctor_trainers.openenv import NoReward, ProctorEnvironment, ToolAction, create_app
from proctor_trainers.trl.environment import Rules
from proctor_trainers.trl.workplaces import Order, Workplaces

SESSIONS = 16


@pytest.fixture(scope="module")
def told() -> list[Case]:
    return cases()


@pytest.fixture(scope="module")
def episodes(url: str, told: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    rows = write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", told)
    with environment_server("openenv", url, rows, "--sessions", str(SESSIONS)) as running:
        yield running


def submission(case: Case) -> dict[str, Any]:
    return {"tool": "submit_solution", "arguments": solution(case)}


def test_right_and_wrong_submissions(episodes: str, told: list[Case], url: str) -> None:
    def play(numbers: range) -> list[float]:
        found = []
        with GenericEnvClient(base_url=episodes).sync() as env:
            for number in numbers:
                begun = env.reset(index=number)
                assert begun.observation["prompt"] == told[number].prompt
                ended = env.step(submission(told[number]))
                assert ended.done
                found.append(ended.reward)
        return found

    each = len(told) // 8
    with ThreadPoolExecutor(8) as threads:
        parts = threads.map(play, [range(n, n + each) for n in range(0, len(told), each)])
    assert [reward for part in parts for reward in part] == [case.reward for case in told]
    with Client(url) as client:
        assert client.count_active(tags=["openenv"]).total == 0


def test_an_episode_of_several_calls(episodes: str, told: list[Case]) -> None:
    with GenericEnvClient(base_url=episodes).sync() as env:
        env.reset(index=0)
        first = env.step({"tool": "bash", "arguments": {"command": "echo hello > f; cat f"}})
        assert "hello" in first.observation["output"]
        assert (first.reward, first.done) == (None, False)
        assert (
            "hello"
            in env.step({"tool": "read_file", "arguments": {"path": "f"}}).observation["output"]
        )
        wrong = env.step({"tool": "shell", "arguments": {}})
        assert "no tool" in wrong.observation["output"]
        wrong = env.step({"tool": "bash", "arguments": {"line": "ls"}})
        assert wrong.observation["output"].startswith("Error")
        assert env.step(submission(told[0])).reward == 1.0


def test_a_session_that_ends_stops_its_sandbox(episodes: str, url: str) -> None:
    with GenericEnvClient(base_url=episodes).sync() as env, Client(url) as client:
        env.reset(index=0)
        env.step({"tool": "bash", "arguments": {"command": "true"}})
        assert client.count_active(tags=["openenv"]).total == 1
    wait_for_no_sandbox(url, "openenv")


def test_it_speaks_http(episodes: str) -> None:
    begun = httpx.post(f"{episodes}/reset", json={"index": 1}, timeout=WAIT_SECONDS)
    assert begun.status_code == 200
    assert httpx.get(f"{episodes}/schema", timeout=WAIT_SECONDS).status_code == 200


def test_a_service_that_goes_down_gives_no_reward(told: list[Case]) -> None:
    down = Client(DOWN, max_attempts=1)
    env = ProctorEnvironment(
        [{"tests": told[0].tests}], Episodes(Workplaces(down, down, Order()), Rules())
    )
    for action in ({"tool": "bash", "arguments": {"command": "ls"}}, submission(told[0])):
        env.reset()
        with pytest.raises(NoReward, match="Connect"):
            env.step(ToolAction(**action))
        with pytest.raises(NotBegun):
            env.step(ToolAction(**action))


def test_a_row_that_cannot_be_judged_begins_no_episode() -> None:
    down = Client(DOWN)
    env = ProctorEnvironment(
        [], Episodes(Workplaces(down, down, Order()), Rules(task=task_from_row))
    )
    with pytest.raises(NoReward):
        env.reset(ground_truth="forty-two")
    with pytest.raises(NotBegun):
        env.step(ToolAction(tool="bash"))


def test_an_index_comes_before_a_seed(told: list[Case]) -> None:
    down = Client(DOWN)
    rows = [{"prompt": name, "tests": told[0].tests} for name in ("first", "second")]
    env = ProctorEnvironment(rows, Episodes(Workplaces(down, down, Order()), Rules()))
    assert env.reset().prompt == env.reset(index=0, seed=1).prompt == "first"
    assert env.reset(seed=1).prompt == env.reset(index=1, seed=0).prompt == "second"


def test_the_last_call_of_an_episode_ends_it(url: str, told: list[Case]) -> None:
    client = Client(url)
    workplaces = Workplaces(client, client, Order())
    env = ProctorEnvironment([], Episodes(workplaces, Rules(), most_calls=2))
    env.reset(tests=told[0].tests)
    path = {"path": "solution.py", "content": solution(told[0])["code"]}
    assert env.step(ToolAction(tool="write_file", arguments=path)).reward is None
    assert env.step(ToolAction(tool="bash", arguments={"command": "ls"})).reward == 1.0


def test_steps_without_an_episode_are_refused(url: str, told: list[Case]) -> None:
    client = Client(url)
    env = ProctorEnvironment([], Episodes(Workplaces(client, client, Order()), Rules()))
    with pytest.raises(NotBegun):
        env.step(ToolAction(tool="bash"))
    with pytest.raises(ValueError, match="no data set"):
        env.reset()
    env.reset(tests=told[0].tests)
    assert env.step(ToolAction(**submission(told[0]))).reward == 1.0
    with pytest.raises(NotBegun):
        env.step(ToolAction(**submission(told[0])))


def test_an_application_of_ones_own(url: str) -> None:
    paths = {getattr(each, "path", "") for each in create_app([], url).routes}
    assert {"/reset", "/step", "/state", "/ws"} <= paths


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "proctor_trainers.openenv", "--dataset", str(tmp_path / "no")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS
    )
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
