"""The resources server for NeMo Gym: its two routes, as an agent calls them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from adapter_calls import DOWN, cases
from harness import Service
from waits import WAIT_SECONDS

from proctor_client.testing import FakeProctor
from proctor_trainers.batching import RewardBatcher
from proctor_trainers.nemo_gym import app


def task(completion: Any, metadata: Any) -> dict[str, Any]:
    """What an agent posts to /verify."""
    content = [{"type": "output_text", "text": completion, "annotations": []}]
    output = [
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "id": "m", "content": content},
    ]
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "Write it."}]},
        "response": {"id": "r", "object": "response", "output": output},
        "verifier_metadata": metadata,
        "task_id": 7,
    }


def post(batcher: RewardBatcher, *bodies: dict[str, Any]) -> list[httpx.Response]:
    async def run() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app(batcher=batcher))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://gym", timeout=WAIT_SECONDS
        ) as client:
            seeded = await client.post("/seed_session", json=bodies[0])
            assert (seeded.status_code, seeded.json()) == (200, {})
            calls = (client.post("/verify", json=body) for body in bodies)
            answers = await asyncio.gather(*calls)
        await batcher.aclose()
        return list(answers)

    try:
        return asyncio.run(run())
    finally:
        batcher.close()


@pytest.mark.slow
def test_each_response_has_its_reward(service: Service) -> None:
    told = cases()
    bodies = [task(case.completion, {"tests": case.tests}) for case in told]
    answers = [answer.json() for answer in post(RewardBatcher(service.url), *bodies)]
    assert [each["reward"] for each in answers] == [case.reward for case in told]
    assert answers[0] == bodies[0] | {"reward": 1.0, "verdict": "passed", "hack_signals": []}


@pytest.mark.slow
def test_the_unit_tests_of_code_gen(service: Service) -> None:
    stdio = {"inputs": ["2\n"], "outputs": ["4\n"], "fn_name": None}
    calls = {"inputs": ["2\n3"], "outputs": ["5"], "fn_name": "add"}
    method = "```python\nclass Solution:\n    def add(self, a, b):\n        return a + b\n```"
    answers = post(
        RewardBatcher(service.url),
        task("```python\nprint(2 * int(input()))\n```", {"unit_tests": stdio}),
        task("```python\nprint(5)\n```", {"unit_tests": stdio}),
        task(method, {"unit_tests": calls}),
        task("I cannot.", {"unit_tests": calls}),
    )
    assert [answer.json()["reward"] for answer in answers] == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"verifier_metadata": None}, "verifier_metadata"),
        ({"verifier_metadata": {"unit_tests": {"inputs": [], "outputs": []}}}, "a case or more"),
        ({"verifier_metadata": ["assert 1"]}, "not an object"),
        ({"response": {"output": "text"}}, "no list `output`"),
    ],
)
def test_a_task_without_tests_is_a_422(changed: dict[str, Any], said: str) -> None:
    batcher = RewardBatcher(async_client=FakeProctor().async_client())
    [answer] = post(batcher, task("x", {"tests": ["assert f()"]}) | changed)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


@pytest.mark.parametrize(("status", "reason"), [(503, "draining"), (401, "unauthorized")])
def test_a_failure_is_a_503_and_no_reward(status: int, reason: str) -> None:
    fake = FakeProctor()
    fake.fail_next(999, status=status, reason=reason, retryable=status == 503)
    batcher = RewardBatcher(async_client=fake.async_client())
    answers = post(batcher, *[task("x", {"tests": ["assert f()"]})] * 3)
    assert [answer.status_code for answer in answers] == [503] * 3
    assert all(reason in answer.json()["detail"] for answer in answers)
    assert not any("reward" in answer.json() for answer in answers)


def test_no_service_is_a_503() -> None:
    batcher = RewardBatcher(DOWN, retry_seconds=0.0)
    [answer] = post(batcher, task("x", {"tests": ["assert f()"]}))
    assert answer.status_code == 503
