"""What a reward function gives: the service's rewards in their places, and never 0.0 for a failure."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import logging
import math
import pickle
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness import Service, free_ports, running_service
from waits import WAIT_SECONDS

from proctor_client import (
    ClientClosedError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    ProctorConnectionError,
    ProctorError,
    ProtocolError,
    UnauthorizedError,
    wire,
)
from proctor_client.tasks.task import BadTask, MissingColumns
from proctor_client.testing import FakeProctor
from proctor_trainers.addresses import client_for
from proctor_trainers.completions import siblings, text_of
from proctor_trainers.rewards import RewardsUnavailable
from proctor_trainers.trl import async_reward_function, reward_function

LOST = wire.ItemError(reason="sandbox_lost", message="it is gone", retryable=True)
TESTS = ["assert f(1) == 1"]


def by_text(submission: wire.Submission) -> Any:
    """A judge that is told by the completion what to say."""
    said: Any = {"pass": 1.0, "fail": 0.0, "half": 0.5, "lost": LOST, "none": "no_code"}
    return said[str(submission.completion)]


@pytest.fixture
def fake() -> FakeProctor:
    return FakeProctor(by_text)


def ask(fake: FakeProctor, *completions: Any, **arguments: Any) -> list[float | None]:
    """One call of a reward function; what is no argument of it is one of the trainer's."""
    names = ("name", "task", "max_unavailable_share", "say", "tags", "scoring", "grader")
    own = {name: arguments.pop(name) for name in names if name in arguments}
    call: dict[str, Any] = {"prompts": ["p"] * len(completions), **arguments}
    if "grader" not in own:
        call.setdefault("tests", [TESTS] * len(completions))
    with fake.client() as client:
        reward = reward_function(client=client, **own)
        return reward(completions=list(completions), **call)


# ---------------------------------------------------------------- what is sent


def test_one_request_with_all_completions_in_their_order(fake: FakeProctor) -> None:
    rewards = ask(
        fake,
        *["pass", "fail", "half"] * 5,
        tests=[[f"assert f({number})"] for number in range(15)],
        completion_ids=[[1, 2]] * 15,
        trainer_state=object(),
        tags=["mine"],
        scoring="fraction",
    )
    assert rewards == [1.0, 0.0, 0.5] * 5
    [request] = fake.requests
    assert request.reward is not None
    assert request.reward.scoring == "fraction"
    assert request.reward.tags[:2] == ["trl-grpo", "mine"]
    graders = [each.grader for each in request.reward.submissions]
    assert [each.tests for each in graders if isinstance(each, wire.AssertsGrader)] == [
        [f"assert f({number})"] for number in range(15)
    ]


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (SimpleNamespace(global_step=7), 7),
        (SimpleNamespace(global_step=0), 0),
        (SimpleNamespace(global_step=-1), None),
        (SimpleNamespace(global_step=None), None),
        (object(), None),
    ],
)
def test_the_step_is_the_trainers(state: object, step: int | None, fake: FakeProctor) -> None:
    ask(fake, "pass", trainer_state=state)
    reward: Any = async_reward_function(client=fake.async_client())
    asyncio.run(reward(["p"], ["pass"], tests=[TESTS], trainer_state=state))
    assert [told.reward.step for told in fake.requests if told.reward] == [step, step]


def test_a_trainer_that_tells_no_step_has_none(fake: FakeProctor) -> None:
    ask(fake, "pass")
    assert "step" not in json.loads(fake.requests[0].content)
    with fake.client() as client:
        reward = reward_function(client=client, step=3)
        reward(["p"], ["pass"], tests=[TESTS])
        reward(["p"], ["pass"], tests=[TESTS], trainer_state=SimpleNamespace(global_step=4))
    assert [json.loads(each.content)["step"] for each in fake.requests[1:]] == [3, 4]


def test_the_run_is_in_the_tags(fake: FakeProctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", "r7")
    ask(fake, "pass")
    assert json.loads(fake.requests[0].content)["tags"][:2] == ["trl-grpo", "wandb-run:r7"]


def test_of_a_conversation_the_last_word_of_the_assistant_counts(fake: FakeProctor) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "bash"}}]}
    tool = {"role": "tool", "content": "fail"}
    parts = [{"type": "text", "text": "pa"}, {"type": "image"}, {"type": "text", "text": "ss"}]
    assert ask(
        fake,
        [{"role": "assistant", "content": "pass"}],
        [{"role": "assistant", "content": "fail"}, tool, {"role": "assistant", "content": "pass"}],
        [call, tool, {"role": "assistant", "content": parts}],
    ) == [1.0, 1.0, 1.0]
    assert text_of([call, tool]) == text_of([tool]) == text_of([]) == ""


def test_a_lone_surrogate_costs_nobody_a_reward() -> None:
    fake = FakeProctor(lambda submission: 1.0 if "?" in str(submission.completion) else 0.0)
    assert ask(fake, "a\ud800", "b") == [1.0, 0.0]


def test_a_grader_for_all_needs_no_column(fake: FakeProctor) -> None:
    assert ask(fake, "pass", "fail", grader={"kind": "exec"}) == [1.0, 0.0]


def test_a_task_of_ones_own_sees_the_row(fake: FakeProctor) -> None:
    def task(row: Any) -> dict[str, Any]:
        return {"grader": {"kind": "exec"}, "files": {"n": str(row["level"])}, "language": "bash"}

    ask(fake, "pass", "fail", task=task, tests=[None, None], level=[3, 4])
    request = fake.requests[0].reward
    assert request is not None
    assert [each.files["n"] for each in request.submissions] == ["3", "4"]


def test_a_data_set_that_says_nothing_of_judging_ends_the_training_at_once(
    fake: FakeProctor,
) -> None:
    with pytest.raises(MissingColumns, match="the columns are: level"), fake.client() as client:
        reward_function(client=client)(["p"], ["pass"], level=[1])
    with pytest.raises(ValueError, match="column tests: 1 values, not 2"):
        ask(fake, "pass", "fail", tests=[TESTS])
    assert fake.requests == []


def test_options_that_no_request_can_have_are_told_before_the_training(fake: FakeProctor) -> None:
    wrong: list[dict[str, Any]] = [
        {"scorin": "all"},
        {"limits": {"memory": 1}},
        {"grader": {"kind": "nonsense"}},
        {"tags": [3]},
    ]
    for options in wrong:
        with fake.client() as client, pytest.raises(InvalidRequestError, match=next(iter(options))):
            reward_function(client=client, **options)


# ---------------------------------------------------------------- what could not be judged


def test_a_failure_is_none_and_never_zero(fake: FakeProctor) -> None:
    assert ask(fake, "pass", "lost", "fail", "none") == [1.0, None, 0.0, 0.0]


def test_a_service_that_is_away_takes_every_reward(
    fake: FakeProctor, caplog: pytest.LogCaptureFixture
) -> None:
    fake.fail_next(99)
    with caplog.at_level(logging.WARNING, "proctor_trainers"):
        assert ask(fake, "pass", "fail") == [None, None]
    assert "2 of 2 could not be judged: draining: as ordered" in caplog.text


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (401, "unauthorized", UnauthorizedError),
        (403, "forbidden", ForbiddenError),
        (404, "not_found", NotFoundError),
    ],
)
def test_what_no_other_call_fares_better_with_ends_the_training(
    fake: FakeProctor, status: int, reason: str, kind: type[ProctorError]
) -> None:
    with fake.client() as client:
        reward = reward_function(client=client, grader={"kind": "exec"})
        fake.fail_next(1, status=status, reason=reason, retryable=False)
        with pytest.raises(kind, match="as ordered"):
            reward(["p"], ["pass"])
        assert reward(["p"], ["pass"]) == [1.0]
        fake.fail_next(1, status=status, reason=reason, retryable=False)
        with pytest.raises(kind):
            reward(["p"], ["pass"])


def test_an_outage_ends_only_a_training_that_never_had_an_answer(fake: FakeProctor) -> None:
    page = b"<html>Bad Gateway</html>"
    with fake.client() as client:
        reward = reward_function(client=client, grader={"kind": "exec"})
        fake.drop_next(99)
        with pytest.raises(ProctorConnectionError, match=r"http://proctor\.test"):
            reward(["p"], ["pass"])
        fake.forget_orders()
        fake.answer_next(page, status=502, count=99)
        with pytest.raises(ProtocolError):
            reward(["p"], ["pass"])
        fake.forget_orders()
        assert reward(["p"], ["pass"]) == [1.0]
        fake.drop_next(99)
        assert reward(["p"], ["pass"]) == [None]
        fake.forget_orders()
        fake.answer_next(page, status=502, count=99)
        assert reward(["p"], ["pass"]) == [None]


def test_an_answer_of_another_version_ends_the_training(fake: FakeProctor) -> None:
    with fake.client() as client:
        reward = reward_function(client=client, grader={"kind": "exec"})
        for _ in range(2):
            fake.answer_next(b'{"scores": [1.0]}')
            with pytest.raises(ProtocolError, match="no RewardResponse"):
                reward(["p"], ["pass"])
            assert reward(["p"], ["pass"]) == [1.0]


def test_a_service_that_cannot_be_reached_ends_the_training_after_its_retries() -> None:
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    reward = reward_function(url, retry_seconds=0, grader={"kind": "exec"})
    with pytest.raises(ProctorConnectionError, match=f"{url}: ConnectError") as refused:
        reward(["p"], ["pass"])
    assert "\n" not in str(refused.value)


def test_after_an_answer_a_refused_connection_is_not_judged() -> None:
    with ExitStack() as running:
        service = running.enter_context(running_service())
        with client_for(service.url, retry_seconds=0) as client:
            reward = reward_function(client=client, grader={"kind": "exec"})
            assert reward(["p"], ["x = 1"]) == [1.0]
            running.close()
            assert reward(["p"], ["x = 1"]) == [None]


def test_a_closed_client_ends_the_training(fake: FakeProctor) -> None:
    client = fake.client()
    reward = reward_function(client=client, grader={"kind": "exec"})
    client.close()
    with pytest.raises(ClientClosedError):
        reward(["p"], ["pass"])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copied_reward_function_is_one(
    fake: FakeProctor, copied: Callable[[Any], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    reward: Any = reward_function(client=fake.client(), grader={"kind": "exec"}, name="tests")
    reward.weight = 0.5
    another = copied(reward)
    assert another is not reward
    assert (another.__name__, another.weight) == ("tests", 0.5)
    assert another(["p"] * 2, ["pass", "fail"]) == reward(["p"] * 2, ["pass", "fail"])
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert len(fake.requests) == 2


def test_a_pickled_reward_function_is_one() -> None:
    token = "a-token-of-ours"
    reward = reward_function("http://127.0.0.1:1", token=token, name="tests")
    later = async_reward_function("http://127.0.0.1:1", token=token)
    another, another_later = pickle.loads(pickle.dumps((reward, later)))
    assert another.__name__ == "tests"
    assert inspect.isfunction(another)
    assert not asyncio.iscoroutinefunction(another)
    assert asyncio.iscoroutinefunction(another_later)
    assert token not in repr([reward, later, another, another_later])


def test_a_row_that_cannot_be_judged_costs_no_other_row(fake: FakeProctor) -> None:
    infinite = {"kind": "calls", "entry_point": "f", "cases": [{"expected": math.inf}]}
    sound = {"kind": "exec"}
    graders = [sound, None, {"kind": "nonsense"}, infinite, sound, "no JSON", sound]
    with fake.client() as client:
        reward = reward_function(client=client)
        found = reward(["p"] * 7, ["pass"] * 7, grader=graders)
    assert found == [1.0, None, None, None, 1.0, None, 1.0]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_option_that_the_service_refuses_ends_the_training(kind: str, fake: FakeProctor) -> None:
    told = "limits.memory_mb: 1000000 is above this server's 8192"
    fake.fail_next(1, status=422, reason="invalid_request", message=told, retryable=False)
    limits = {"memory_mb": 1_000_000}
    reward: Any = reward_function(client=fake.client(), limits=limits)
    later: Any = async_reward_function(client=fake.async_client(), limits=limits)
    row: Any = {"prompts": ["p"] * 2, "completions": ["pass"] * 2, "tests": [TESTS] * 2}
    calls: Any = {"sync": lambda: reward(**row), "async": lambda: asyncio.run(later(**row))}
    with pytest.raises(InvalidRequestError, match=re.escape(told)):
        calls[kind]()


def test_an_option_that_the_service_refuses_for_one_row_costs_no_other_row(
    fake: FakeProctor,
) -> None:
    def task(row: Any) -> dict[str, Any]:
        return {"grader": {"kind": "exec"}, "limits": {"memory_mb": 64}}

    told = "submissions.1.limits.memory_mb: 64 is above this server's 32"
    fake.fail_next(1, status=422, reason="invalid_request", message=told, retryable=False)
    assert ask(fake, "pass", "fail", task=task) == [1.0, 0.0]  # in halves; the second is fine now


def test_a_batch_that_is_too_large_is_asked_in_parts() -> None:
    fake = FakeProctor(lambda submission: float(str(submission.completion)[-1] == "7"))
    completions = [str(number) for number in range(5000)]
    rewards = ask(fake, *completions)
    assert rewards == [float(each[-1] == "7") for each in completions]
    fake.fail_next(1, status=413, reason="invalid_request", retryable=False)
    assert ask(fake, "17", "18", "27") == [1.0, 0.0, 1.0]


def test_a_batch_in_which_nothing_can_be_asked(fake: FakeProctor) -> None:
    def never(row: Any) -> dict[str, Any]:
        raise BadTask("not this one")

    assert ask(fake, "pass", "fail", task=never) == [None, None]
    assert fake.requests == []


def test_above_a_share_that_was_set_it_raises(fake: FakeProctor) -> None:
    assert ask(fake, "pass", "lost", max_unavailable_share=0.5) == [1.0, None]
    with pytest.raises(RewardsUnavailable, match="2 of 3 could not be judged: sandbox_lost: it is"):
        ask(fake, "pass", "lost", "lost", max_unavailable_share=0.5)


# ---------------------------------------------------------------- trainers that take None for 0.0


SIBLINGS = [
    (
        "aaaabbbb",
        "pass lost fail half lost pass pass fail",
        [1, 0.5, 0, 0.5, pytest.approx(2 / 3), 1, 1, 0],
    ),
    ("aabbbb", "lost lost pass fail pass pass", [0.75, 0.75, 1, 0, 1, 1]),  # a group without any
]


@pytest.mark.usefixtures("old_trl")
@pytest.mark.parametrize(("groups", "completions", "rewards"), SIBLINGS)
def test_before_trl_1_15_the_siblings_stand_in(
    fake: FakeProctor, groups: str, completions: str, rewards: list[float]
) -> None:
    assert ask(fake, *completions.split(), prompts=[*groups]) == rewards


@pytest.mark.usefixtures("old_trl")
def test_before_trl_1_15_too_many_failures_end_the_training(fake: FakeProctor) -> None:
    with pytest.raises(RewardsUnavailable, match="2 of 3"):
        ask(fake, "pass", "lost", "lost")
    assert ask(fake, "pass", "lost", "lost", max_unavailable_share=0.9) == [1.0, 1.0, 1.0]
    with pytest.raises(RewardsUnavailable, match="none of 2"):
        ask(fake, "lost", "lost", max_unavailable_share=1.0)


class ManyFunctions:
    """A trainer with more than one reward function, as far as one of them can see it."""

    reward_funcs = ("ours", "theirs")

    def log_metric(self, name: str, value: float) -> None:
        """Nothing."""


def test_beside_other_functions_the_siblings_stand_in(fake: FakeProctor) -> None:
    log_metric = ManyFunctions().log_metric
    completions = ["pass", "lost", "half", "lost", "lost"]
    rewards = ask(fake, *completions, prompts=[*"aaabb"], log_metric=log_metric)
    assert rewards == [1.0, 0.75, 0.5, None, None]


class TwoProcesses:
    """What torch.distributed tells two processes, which are threads here."""

    def __init__(self) -> None:
        self._both = threading.Barrier(2, timeout=WAIT_SECONDS)
        self._process = threading.local()
        self._given = [b"", b""]
        self.exchanges = 0

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def get_world_size(self) -> int:
        return 2

    def get_rank(self) -> int:
        rank: int = self._process.rank
        return rank

    def all_gather_object(self, found: list[Any], given: Any) -> None:
        self._given[self.get_rank()] = pickle.dumps(given)
        self._both.wait()
        self.exchanges += self.get_rank()
        found[:] = map(pickle.loads, self._given)
        self._both.wait()

    def run(self, call: Callable[[int], Any]) -> list[Any]:
        """The result of the call in each process, or its exception."""

        def in_process(rank: int) -> Any:
            self._process.rank = rank
            try:
                return call(rank)
            except RewardsUnavailable as error:
                return error

        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(in_process, range(2)))


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> TwoProcesses:
    processes = TwoProcesses()
    monkeypatch.setitem(sys.modules, "torch.distributed", cast(Any, processes))
    return processes


def test_beside_other_functions_siblings_on_another_process_stand_in(
    fake: FakeProctor, two_processes: TwoProcesses
) -> None:
    completions = [["pass", "fail", "half"], ["lost", "lost", "lost"]]
    prompts = ["aab", "bcc"]  # the second prompt's completions are on both

    def call(rank: int) -> Any:
        log_metric = ManyFunctions().log_metric
        return ask(fake, *completions[rank], prompts=[*prompts[rank]], log_metric=log_metric)

    assert two_processes.run(call) == [[1.0, 0.0, 0.5], [0.5, None, None]]
    completions[1] = ["pass", "pass", "fail"]
    assert two_processes.run(call) == [[1.0, 0.0, 0.5], [1.0, 1.0, 0.0]]
    assert two_processes.exchanges == 2


@pytest.mark.usefixtures("old_trl")
def test_before_trl_1_15_processes_end_the_training_together(
    fake: FakeProctor, two_processes: TwoProcesses
) -> None:
    completions = [["pass", "half"], ["lost", "lost"]]

    def call(rank: int) -> Any:
        state = SimpleNamespace(global_step=1)
        return ask(fake, *completions[rank], prompts=[*("aa", "ab")[rank]], trainer_state=state)

    assert two_processes.run(call) == [[1.0, 0.5], [0.75, 0.75]]
    completions[0] = ["pass", "lost"]
    assert [str(each) for each in two_processes.run(call)] == [
        "3 of 4 could not be judged: sandbox_lost: it is gone"
    ] * 2


def test_a_trainer_that_tells_no_state_may_call_in_one_process_alone(
    fake: FakeProctor, two_processes: TwoProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor_trainers.trl.masks_none", lambda: False)
    assert ask(fake, "pass", "lost") == [1.0, 1.0]
    assert two_processes.exchanges == 0


def test_a_function_alone_needs_no_exchange_between_processes(
    fake: FakeProctor, two_processes: TwoProcesses
) -> None:
    assert ask(fake, "pass", "lost") == [1.0, None]
    assert two_processes.exchanges == 0


def test_siblings_are_neighbours_with_the_same_prompt() -> None:
    conversation = [{"role": "user", "content": "a"}]
    assert siblings([conversation, list(conversation), "a", "b", "a"], 5) == [
        range(2),
        range(2, 3),
        range(3, 4),
        range(4, 5),
    ]
    assert siblings(None, 3) == [range(3)]
    assert siblings([], 0) == []


# ---------------------------------------------------------------- what it tells


def test_each_call_is_a_line(fake: FakeProctor, capsys: pytest.CaptureFixture[str]) -> None:
    with fake.client() as client:
        reward = reward_function(client=client, grader={"kind": "exec"})
        reward(["p"] * 5, ["pass", "pass", "fail", "none", "lost"])
        reward(["p"], ["pass"])
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"\[proctor\] reward call 1: 4 judged, 2 passed, 1 skipped \(no code\), 1 unavailable, "
        r"\d+\.\d\d s",
        first,
    )
    assert second.startswith("[proctor] reward call 2: 1 judged, 1 passed, 0 skipped (no code), 0")


def test_a_line_goes_where_one_wants_it(
    fake: FakeProctor, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    ask(fake, "pass", say=lines.append)
    ask(fake, "pass", say=None)
    assert len(lines) == 1
    assert capsys.readouterr().out == ""


def test_the_trainer_is_given_metrics_and_verdicts() -> None:
    cheat = wire.Result(
        index=0,
        evaluation_id="ev",
        reward=0.0,
        verdict="early_exit",
        integrity="separated",
        cache="miss",
        hack_signals=["early_exit"],
    )
    fake = FakeProctor(lambda each: cheat if each.completion == "cheat" else by_text(each))
    metrics: dict[str, float] = {}
    columns: dict[str, list[Any]] = {}
    ask(
        fake,
        *["pass", "cheat", "none", "lost", "pass"],
        name="tests",
        log_metric=metrics.__setitem__,
        log_extra=columns.__setitem__,
    )
    assert metrics.pop("tests/latency_seconds") >= 0
    assert metrics == {
        "tests/pass_rate": 0.5,
        "tests/no_code_rate": 0.25,
        "tests/hack_signal_rate": 0.25,
        "tests/unavailable_rate": 0.2,
    }
    assert columns == {
        "tests/verdict": ["passed", "early_exit", "no_code", "error: sandbox_lost", "passed"]
    }


def test_the_metrics_have_the_same_names_when_nothing_was_judged(fake: FakeProctor) -> None:
    judged: dict[str, float] = {}
    nothing: dict[str, float] = {}
    ask(fake, "pass", log_metric=judged.__setitem__)
    ask(fake, "lost", log_metric=nothing.__setitem__)
    assert list(judged) == list(nothing)
    assert math.isnan(nothing["proctor/pass_rate"])
    assert nothing["proctor/unavailable_rate"] == 1.0


def test_a_reward_function_is_a_function_with_a_name(fake: FakeProctor) -> None:
    with fake.client() as client:
        reward = reward_function(client=client, name="unit_tests")
    later = async_reward_function(client=fake.async_client(), name="unit_tests")
    for each in (reward, later):
        assert getattr(each, "__name__", "") == "unit_tests"
        assert type(each).__name__ == "function"
        assert inspect.isfunction(each)
        assert list(inspect.signature(each).parameters) == ["prompts", "completions", "columns"]
    assert asyncio.iscoroutinefunction(later)
    assert not asyncio.iscoroutinefunction(reward)


def test_the_async_one_does_the_same(fake: FakeProctor) -> None:
    async def call() -> list[list[float | None]]:
        async with fake.async_client() as client:
            reward = async_reward_function(client=client)
            graders = [{"kind": "exec"}, {"kind": "nonsense"}, {"kind": "exec"}]
            first = await reward(["p"] * 3, ["pass", "pass", "fail"], grader=graders)
            fake.fail_next(99)
            return [first, await reward(["p"], ["pass"], tests=[TESTS])]

    assert asyncio.run(call()) == [[1.0, None, 0.0], [None]]


# ---------------------------------------------------------------- the real service


@pytest.mark.slow
def test_rewards_of_the_real_service(service: Service) -> None:
    completions = [
        "<answer>\ndef f(n):\n    return n\n</answer>",
        "```python\ndef f(n):\n    return -n\n```",
        "I cannot.",
        "<answer>\nimport os\nos._exit(0)\n</answer>",
    ]
    with client_for(service.url) as client:
        reward = reward_function(client=client)
        broken: list[Any] = [TESTS] * 3 + [["assert f( =="]]
        assert reward(["p"] * 4, completions, tests=[TESTS] * 4) == [1.0, 0.0, 0.0, 0.0]
        assert reward(["p"] * 4, completions, tests=broken) == [1.0, 0.0, 0.0, None]


@pytest.mark.slow
def test_a_request_that_the_service_refuses_is_asked_in_halves(service: Service) -> None:
    def task(row: Any) -> dict[str, Any]:
        limits = {"memory_mb": 1 << 30} if row["odd"] else {}
        return {"grader": {"kind": "exec"}, "limits": limits}

    with client_for(service.url) as client:
        common = reward_function(
            client=client, grader={"kind": "exec"}, limits={"memory_mb": 1 << 30}
        )
        with pytest.raises(InvalidRequestError, match=r"limits\.memory_mb"):
            common(["p"] * 5, ["x = 1"] * 5)
        reward = reward_function(client=client, task=task)
        odd = [False, True, False, False, False]
        assert reward(["p"] * 5, ["x = 1"] * 5, odd=odd) == [1.0, None, 1.0, 1.0, 1.0]
