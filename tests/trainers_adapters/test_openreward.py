"""The server for the Open Reward Standard, with openreward's own client, over HTTP and its streams."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adapter_calls import DOWN, Case, cases
from environment_server import (
    environment_server,
    solution,
    wait_for_a_sandbox,
    wait_for_no_sandbox,
    write_rows,
)
from service_process import ServiceProcess
from waits import WAIT_SECONDS

from proctor_client import Client

os.environ["OPENREWARD_DISABLE_UPDATE_CHECK"] = "1"

from openreward import AsyncOpenReward, OpenReward
from openreward.api.errors import ToolCallError, ToolFailed

from proctor_trainers.openreward import create_server, messages_of

SANDBOX, ANSWER = "proctorsandbox", "proctoranswer"
BROKEN = Case("Add.", "```python\nx = 1\n```", ["assert f( =="], 0.0)


@pytest.fixture(scope="module")
def told() -> list[Case]:
    return cases()


@pytest.fixture(scope="module")
def episodes(url: str, told: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    rows = write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", [*told, BROKEN])
    with environment_server("openreward", url, rows, "--sessions", "16") as running:
        yield running


@contextmanager
def session(at: str, index: int = 0, variant: str = SANDBOX) -> Iterator[Any]:
    with OpenReward(api_key="none") as client:
        env = client.environments.get("proctor", variant=variant, base_url=at)
        with env.session(split="train", index=index) as made:
            yield made


async def play(env: Any, index: int, case: Case, most: asyncio.Semaphore) -> Any:
    async with most, env.session(split="train", index=index) as made:
        if env.variant == ANSWER:
            return await made.call_terminal_tool(case.completion)
        return await made.call_tool("submit_solution", solution(case))


def outputs(at: str, variant: str, told: Sequence[Case]) -> list[Any]:
    """What each session's last call gives: an output, or an exception."""

    async def run() -> list[Any]:
        most = asyncio.Semaphore(16)
        async with AsyncOpenReward(api_key="none").environments as environments:
            env = environments.get("proctor", variant=variant, base_url=at)
            calls = (play(env, index, case, most) for index, case in enumerate(told))
            return await asyncio.gather(*calls, return_exceptions=True)

    return asyncio.run(run())


@pytest.mark.parametrize("variant", [SANDBOX, ANSWER])
def test_right_and_wrong_solutions(variant: str, episodes: str, told: list[Case], url: str) -> None:
    found = outputs(episodes, variant, told)
    assert [each.reward for each in found] == [case.reward for case in told]
    assert all(each.finished for each in found)
    wait_for_no_sandbox(url, "openreward")


def test_a_service_that_goes_down_is_openrewards_error(told: list[Case], tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", told[:4])
    options = ("--retry-seconds", "0")
    with (
        ServiceProcess() as service,
        environment_server("openreward", service.url, rows, *options) as running,
    ):
        for variant in (SANDBOX, ANSWER):
            [before] = outputs(running, variant, told[:1])
            assert before.reward == 1.0
        service.kill()
        found = [each for name in (SANDBOX, ANSWER) for each in outputs(running, name, told[:4])]
    assert [type(each) for each in found] == [ToolFailed] * 8
    assert all("Connect" in str(each) for each in found)


def test_an_episode_of_several_calls(episodes: str, told: list[Case]) -> None:
    with session(episodes, 2) as env:
        assert [block.text for block in env.get_prompt()] == [told[2].prompt]
        first = env.call_tool("bash", {"command": "echo hello > f; cat f"})
        assert "hello" in first.blocks[0].text
        assert (first.reward, first.finished) == (None, False)
        assert "hello" in env.call_tool("read_file", {"path": "f"}).blocks[0].text
        for tool, given in (("shell", {}), ("bash", {"line": "ls"}), ("bash", {"command": 1})):
            with pytest.raises(ToolCallError):
                env.call_tool(tool, given)
        assert env.call_tool("submit_solution", solution(told[2])).reward == 1.0
        with pytest.raises(ToolCallError, match="finished"):
            env.call_tool("submit_solution", solution(told[2]))


def test_what_a_policy_and_a_trainer_are_told(episodes: str, told: list[Case]) -> None:
    with OpenReward(api_key="none") as client:
        env = client.environments.get("proctor", base_url=episodes)
        assert env.num_tasks("train") == len(told) + 1
        assert env.get_task("train", 3).task_spec == {"index": 3}
        tools = {each.name: each for each in env.list_tools()}
        assert set(tools) == {"execute_code", "bash", "read_file", "write_file", "submit_solution"}
        assert list(tools["write_file"].input_schema["properties"]) == ["path", "content"]
        assert "whole text of the file" in tools["write_file"].description
        assert not env.is_assistant_message_final()
        answers = client.environments.get("proctor", variant=ANSWER, base_url=episodes)
        assert answers.is_assistant_message_final()
        assert answers.list_tools() == []


def test_a_session_that_ends_stops_its_sandbox(episodes: str, url: str) -> None:
    with session(episodes) as env, Client(url) as client:
        env.call_tool("bash", {"command": "true"})
        assert client.count_active(tags=["openreward"]).total == 1
    wait_for_no_sandbox(url, "openreward")


def test_parallel_calls_of_a_session_share_one_sandbox(episodes: str, url: str) -> None:
    async def run() -> int:
        async with AsyncOpenReward(api_key="none").environments as environments:
            env = environments.get("proctor", base_url=episodes)
            async with env.session(split="train", index=0) as made:
                calls = (made.call_tool("bash", {"command": f"touch {n}"}) for n in range(8))
                await asyncio.gather(*calls)
                listed = await made.call_tool("bash", {"command": "ls | wc -l"})
                assert listed.blocks[0].text.split()[0] == "8"
                with Client(url) as client:
                    return client.count_active(tags=["openreward"]).total

    assert asyncio.run(run()) == 1


def test_a_session_that_ends_during_a_call_leaves_no_sandbox(episodes: str, url: str) -> None:
    async def run() -> None:
        async with AsyncOpenReward(api_key="none").environments as environments:
            env = environments.get("proctor", base_url=episodes)
            async with env.session(split="train", index=0) as made:
                call = asyncio.create_task(made.call_tool("bash", {"command": "sleep 1"}))
                await asyncio.to_thread(wait_for_a_sandbox, url, "openreward")
            await asyncio.gather(call, return_exceptions=True)

    asyncio.run(run())
    wait_for_no_sandbox(url, "openreward")


@pytest.mark.parametrize("variant", [SANDBOX, ANSWER])
def test_a_row_that_cannot_be_judged_has_no_reward(
    variant: str, episodes: str, told: list[Case]
) -> None:
    with session(episodes, len(told), variant) as env:
        calls = {
            SANDBOX: lambda: env.call_tool("submit_solution", solution(BROKEN)),
            ANSWER: lambda: env.call_terminal_tool(BROKEN.completion),
        }
        with pytest.raises(ToolFailed, match="judged"):
            calls[variant]()


def test_prompts() -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Add."}]
    assert [each.role for each in messages_of(chat)] == ["system", "user"]
    for wrong in (None, [], 7, [{"role": "tool", "content": "x"}], [{"role": "user"}], ["x"]):
        with pytest.raises(ValueError, match="row 0: prompt"):
            create_server([{"prompt": wrong, "tests": ["assert f()"]}], DOWN)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "proctor_trainers.openreward"]
    done = subprocess.run(
        [*command, "--dataset", str(tmp_path / "no")],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
