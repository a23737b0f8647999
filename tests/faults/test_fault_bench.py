"""Three replicas behind nginx: what befalls them, nobody who sends them work must notice."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from policy_server import policy_server
from waits import WAIT_SECONDS

from fault_rig import bench
from fault_rig.flood import AT_A_TIME, FLOOD, flood, small_request
from fault_rig.load import Score, Trainer, work
from fault_rig.processes import Process
from fault_rig.rig import TOKENS, Rig, rig
from proctor_client import Client, SandboxLostError, SandboxNotFoundError

GRACE_SECONDS = 20
QUEUED = 500


@pytest.fixture(scope="module")
def room() -> Iterator[Rig]:
    # As long as a slow machine needs for what has begun: at the end of the grace, that is cancelled.
    with rig({"PROCTOR_GRACE_SECONDS": str(WAIT_SECONDS)}, cables_between=False) as found:
        yield found


def test_every_submission_is_answered_and_every_reward_right_whatever_befalls_the_replicas() -> (
    None
):
    rewards, rollouts = 900, 20
    result = bench.run(rewards, rollouts, faults=7)
    assert len(result.faults) == 7
    assert result.first.wrong == result.second.wrong == []
    assert (result.first.lost, result.second.lost) == (0, 0)
    assert result.first.judged == rewards + rollouts
    assert result.second.judged == rewards
    assert result.differences == []
    assert set(result.first.rewards) == {0.0, 1.0}


def test_a_rolling_restart_fails_no_request(room: Rig) -> None:
    over = threading.Event()

    async def load(url: str, policy: dict[str, str]) -> tuple[Score, int]:
        trainer = Trainer(room.url, TOKENS["trainer"], at_once=12)
        rounds = 0
        async with trainer.client:
            while rounds == 0 or not over.is_set():
                rounds += 1
                async with asyncio.TaskGroup() as group:
                    group.create_task(trainer.send_rewards(work(150)))
                    group.create_task(trainer.send_rollouts(4, policy))
        return trainer.score, rounds

    with policy_server(bench.play) as server, ThreadPoolExecutor(1) as pool:
        policy = {"base_url": server.url, "model": "policy"}
        loading = pool.submit(asyncio.run, load(room.url, policy))
        try:
            for process in room.processes:
                process.send(signal.SIGTERM)
                assert process.wait() == 0
                process.start()
        finally:
            over.set()
        score, rounds = loading.result()
    assert score.judged == rounds * 154
    assert (score.wrong, score.lost) == ([], 0)
    assert (score.failed_calls, score.errors) == ({}, {})


def test_a_sandbox_is_used_through_nginx_and_lost_with_its_replica(room: Rig) -> None:
    with Client(room.url, token=TOKENS["trainer"]) as client:
        with client.sandbox(tags=["kept"]) as kept:
            for number in range(6):
                kept.write_file(f"f{number}", f"{number}")
            assert kept.exec(["sh", "-c", "cat f*"]).stdout == "012345"
            assert kept.exec(code="print(open('f3').read())").stdout == "3\n"
            with kept.stream(["sh", "-c", "echo a; echo b"]) as output:
                assert "".join(line.stdout or "" for line in output) == "a\nb\n"
        made = [client.sandbox(tags=["lost"]).start() for _ in range(6)]
        with Client(room.url, token=TOKENS["other"]) as other:
            assert other.sandboxes(tags=["lost"]) == []
            assert other.stop_sandboxes(["lost"]) == 0
            with pytest.raises(SandboxNotFoundError):
                other.attach(made[0].id).exec(["true"])
        assert len(client.sandboxes(tags=["lost"])) == 6

        room.processes[0].kill()
        lost = 0
        for sandbox in made:
            try:
                assert sandbox.exec(["true"]).exit_code == 0
            except SandboxLostError:
                lost += 1
        assert 1 <= lost <= 4
        room.processes[0].start()
        assert client.stop_sandboxes(["lost"]) == 6 - lost


def test_with_500_queued_it_ends_in_time_and_every_item_has_its_answer() -> None:
    process = Process()
    settings = {"PROCTOR_SLOTS": "2", "PROCTOR_GRACE_SECONDS": str(GRACE_SECONDS)}
    body = {
        "submissions": [
            {"completion": f"import time\ntime.sleep(1.0)  # {number}"} for number in range(QUEUED)
        ],
        "grader": {"kind": "exec"},
        "cache": False,
    }
    try:
        process.start(settings)
        with (
            ThreadPoolExecutor(1) as pool,
            httpx.Client(base_url=process.url, trust_env=False, timeout=240) as http,
        ):
            answer = pool.submit(
                httpx.post, f"{process.url}/reward", json=body, timeout=WAIT_SECONDS
            )
            turns = 0
            while http.get("/capacity").json()["busy"] < 2:
                turns += 1
                assert turns < 10_000
            process.send(signal.SIGTERM)
            results = answer.result().json()["results"]
            assert process.wait(GRACE_SECONDS) == 0
    finally:
        process.close()
    assert [each["index"] for each in results] == list(range(QUEUED))
    judged = [each for each in results if each["error"] is None]
    back = [each["error"] for each in results if each["error"] is not None]
    assert judged
    assert {each["reward"] for each in judged} == {1.0}
    assert len(back) >= QUEUED - 50
    assert {(each["reason"], each["retryable"]) for each in back} == {("cancelled", True)}


def test_a_flood_of_one_job_leaves_another_its_share() -> None:
    process = Process()
    try:
        process.start({})
        with (
            httpx.Client(base_url=process.url, trust_env=False, timeout=WAIT_SECONDS) as http,
            flood(http),
        ):
            for _ in range(20):
                assert small_request(http)["passed"] == AT_A_TIME
            assert http.get("/capacity").json()["queued"] > FLOOD / 2
    finally:
        process.close()
