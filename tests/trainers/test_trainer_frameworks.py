"""Rewards for other frameworks by their interfaces: `make test-adapters` runs their own packages.

Axolotl's interface is read in its source 0.19.0.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import pickle
import socket
from typing import Any

import pytest
from adapter_calls import DOWN

from proctor_client import ProctorConnectionError, wire
from proctor_client.tasks.forms import task_from_ground_truth
from proctor_client.tasks.task import BadTask
from proctor_client.testing import FakeProctor
from proctor_trainers import verl
from proctor_trainers.areal import async_reward_function
from proctor_trainers.batching import RewardBatcher
from proctor_trainers.ms_swift import orm_class
from proctor_trainers.rewards import RewardsUnavailable
from proctor_trainers.rewards import Settings as RewardSettings
from proctor_trainers.trl import reward_function
from proctor_trainers.verl import (
    NotJudged,
    async_compute_score_function,
    batch_compute_score_function,
    compute_score_function,
)

# ---------------------------------------------------------------- AReaL


def test_areal_rejects_a_trajectory_that_could_not_be_judged() -> None:
    reward: Any = async_reward_function(DOWN, retry_seconds=0.0)
    with pytest.raises(ProctorConnectionError):
        asyncio.run(reward("Add.", "x<|im_end|>", [1], [2], tests=["assert f()"], id=7))
    assert issubclass(ProctorConnectionError, Exception)  # others would end AReaL's own loop


# ---------------------------------------------------------------- ms-swift


def test_ms_swift_reads_no_missing_reward_as_zero() -> None:
    fake = FakeProctor()
    with fake.client() as client:
        orm = orm_class(client=client)()
        tests: list[Any] = [["assert f()"], [], ["assert f()"], ["assert f()"]]
        assert orm(["x"] * 4, tests=tests, prompt_id=["a", "a", "b", "b"]) == [1.0] * 4
        fake.fail_next(999)
        with pytest.raises(RewardsUnavailable):
            orm(["x"] * 2, tests=[["assert f()"]] * 2)


def test_ms_swift_calls_a_function_or_a_method_as_the_completion_has_it() -> None:
    fake = FakeProctor()
    method = "class Solution:\n    def double(self, n): return 2 * n"
    truth = {"inputs": ["2"], "outputs": ["4"], "fn_name": "double"}
    with fake.client() as client:
        orm = orm_class(client=client)()
        assert orm([[{"role": "assistant", "content": method}]], ground_truth=[truth]) == [1.0]
    [asked] = [each.reward for each in fake.requests if each.reward is not None]
    grader = asked.submissions[0].grader
    assert isinstance(grader, wire.CallsGrader)
    assert (grader.entry_point, grader.method) == ("double", "either")


# ---------------------------------------------------------------- Axolotl, ROLL, verl


def test_axolotl_takes_trls_reward_function() -> None:
    with FakeProctor().client() as client:
        reward = reward_function(client=client)
        assert len(inspect.signature(reward).parameters) >= 2  # it refuses others
        assert callable(reward)


def verl_calls(batcher: RewardBatcher) -> dict[str, Any]:
    """One call of each of verl's functions, with a row that cannot be judged."""
    row: Any = ("mine", "x", ["assert f()"], {"index": 1})
    sync, later = compute_score_function, async_compute_score_function
    return {
        "threads": lambda: sync(batcher=batcher)(*row),
        "loop": lambda: asyncio.run(later(batcher=batcher)(*row)),  # type: ignore[arg-type]
        "batch": lambda: batch_compute_score_function(batcher=batcher)(*([each] for each in row)),
    }


@pytest.mark.parametrize("form", ["threads", "loop", "batch"])
@pytest.mark.parametrize(
    ("status", "reason"), [(503, "draining"), (401, "unauthorized"), (404, "not_found")]
)
def test_verl_never_gets_a_number_for_a_failure(status: int, reason: str, form: str) -> None:
    fake = FakeProctor()
    fake.fail_next(999, status=status, reason=reason, retryable=status == 503)
    settings = RewardSettings(task=task_from_ground_truth, say=None)
    batcher = RewardBatcher(
        client=fake.client(), async_client=fake.async_client(), settings=settings
    )
    call = verl_calls(batcher)[form]
    with pytest.raises(NotJudged, match=reason):
        call()
    assert not issubclass(NotJudged, Exception)  # some of verl's managers make 0.0 of an Exception


@pytest.mark.parametrize("form", ["threads", "loop"])
def test_a_service_that_says_nothing_ends_a_call_before_verl_makes_up_a_number(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verl, "SPARE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        limits: Any = {"retry_seconds": 0.0, "deadline_seconds": 0.1}
        row: Any = ("mine", "x", ["assert f()"])
        later: Any = async_compute_score_function(url, **limits)

        async def in_loop() -> None:
            try:
                await later(*row)
            finally:  # the cancelled request closes its connection
                await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

        call: Any = {
            "threads": lambda: compute_score_function(url, **limits)(*row),
            "loop": lambda: asyncio.run(in_loop()),
        }[form]
        with pytest.raises(NotJudged, match=r"no answer within 0\.2 s"):
            call()


def test_verl_gets_a_number_in_place_of_a_reward_where_this_is_asked_for() -> None:
    fake = FakeProctor(lambda each: 1.0 if str(each.completion) == "right" else 0.0)
    settings = RewardSettings(task=task_from_ground_truth, say=None)
    batcher = RewardBatcher(client=fake.client(), settings=settings)
    good, broken = ["assert f()"], ["assert g()", 3]
    called = (["mine"] * 4, ["right", "x", "wrong", "right"], [good, broken, good, broken])
    nan: Any = batch_compute_score_function(batcher=batcher, on_unjudged="nan")(*called)
    assert [math.isnan(each) for each in nan] == [False, True, False, True]

    def task(row: Any) -> dict[str, Any]:
        if row["data_source"] == "broken":
            raise BadTask("it cannot be judged")
        return {"grader": {"kind": "exec"}}

    mean = RewardBatcher(client=fake.client(), settings=RewardSettings(task=task, say=None))
    compute: Any = batch_compute_score_function(batcher=mean, on_unjudged="mean")
    sources = ["m", "broken", "m", "broken"]
    assert compute(sources, ["right", "x", "wrong", "x"], ["a", "a", "a", "a"]) == [
        1,
        0.5,
        0,
        0.5,
    ]
    with pytest.raises(NotJudged, match="it cannot be judged"):
        compute(sources[:2], ["right", "x"], ["a", "b"])


def test_verl_sees_which_functions_are_coroutines_and_sends_them_to_workers() -> None:
    both: Any = (compute_score_function(DOWN), async_compute_score_function(DOWN))
    for each in (*both, *(pickle.loads(pickle.dumps(one)) for one in both)):
        assert inspect.isfunction(each)
    assert [inspect.iscoroutinefunction(each) for each in both] == [False, True]
