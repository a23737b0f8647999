"""The server for OpenEnv, with OpenEnv's own client, over WebSockets and HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from adapter_calls import DOWN, Case, cases
from openenv.core.generic_client import GenericEnvClient

from proctor_client import Client
from proctor_trainers.openenv import NoReward, ProctorEnvironment, ToolAction, create_app
from proctor_trainers.trl.environment import Rules
from proctor_trainers.trl.workplaces import Order, Workplaces

WAIT_SECONDS = 60.0
SESSIONS = 16


@contextmanager
def server(service: str, rows: Path, *options: str) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "proctor_trainers.openenv", "--dataset", str(rows)]
    with subprocess.Popen([*command, "--url", service, "--port", str(port), *options]) as child:
        try:
            for _ in range(int(WAIT_SECONDS / 0.1)):
                assert child.poll() is None, "the server ended"
                try:
                    if httpx.get(f"{url}/health").status_code == 200:
                        break
                except httpx.TransportError:
                    threading.Event().wait(0.1)
            yield url
        finally:
            child.terminate()


def write(rows: Path, told: Sequence[Case]) -> Path:
    lines = [json.dumps({"prompt": each.prompt, "ground_truth": each.tests}) for each in told]
    rows.write_text("\n".join(lines))
    return rows


@pytest.fixture(scope="module")
def told() -> list[Case]:
    return cases()


@pytest.fixture(scope="module")
def episodes(url: str, told: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    rows = write(tmp_path_factory.mktemp("rows") / "rows.jsonl", told)
    with server(url, rows, "--sessions", str(SESSIONS)) as running:
        yield running


def submission(case: Case) -> dict[str, Any]:
    code = case.completion.partition("```python\n")[2].partition("```")[0]
    return {"tool": "submit_solution", "arguments": {"code": code}}


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
    with Client(url) as client:
        for _ in range(int(WAIT_SECONDS / 0.1)):
            if client.count_active(tags=["openenv"]).total == 0:
                return
            threading.Event().wait(0.1)
    pytest.fail("the sandbox is left")


def test_it_speaks_http(episodes: str) -> None:
    begun = httpx.post(f"{episodes}/reset", json={"index": 1}, timeout=WAIT_SECONDS)
    assert begun.status_code == 200
    assert httpx.get(f"{episodes}/schema").status_code == 200


def test_a_service_that_goes_down_gives_no_reward(told: list[Case]) -> None:
    down = Client(DOWN, max_attempts=1)
    env = ProctorEnvironment(
        [{"tests": told[0].tests}], Workplaces(down, down, Order()), Rules(), most_steps=5
    )
    env.reset()
    assert env.step(ToolAction(tool="bash", arguments={"command": "ls"})).reward is None
    last = ToolAction(**submission(told[0]))
    for _ in range(3):
        assert env.step(last).reward is None
    with pytest.raises(NoReward):
        env.step(last)


def test_steps_without_an_episode_are_refused(url: str, told: list[Case]) -> None:
    client = Client(url)
    env = ProctorEnvironment([], Workplaces(client, client, Order()), Rules(), most_steps=5)
    with pytest.raises(ValueError, match="call reset"):
        env.step(ToolAction(tool="bash"))
    with pytest.raises(ValueError, match="no data set"):
        env.reset()
    env.reset(tests=told[0].tests)
    assert env.step(ToolAction(**submission(told[0]))).reward == 1.0
    with pytest.raises(ValueError, match="call reset"):
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
