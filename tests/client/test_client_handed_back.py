"""A service that stops hands items back, and the client asks once more until they are judged."""

from __future__ import annotations

from collections import Counter

import pytest

from proctor_client import wire
from proctor_client._answers import completed
from proctor_client.testing import FakeProctor, Judged

BACK = wire.ItemError(reason="cancelled", message="the service is stopping", retryable=True)
NAMES = ["a", "b", "c", "d"]


class Judge:
    """Hands some back so often, and then judges them: the later letters are right."""

    def __init__(self, back: dict[str, int]) -> None:
        self.back = back
        self.asked: Counter[str] = Counter()

    def __call__(self, submission: wire.Submission) -> Judged:
        name = str(submission.completion)
        self.asked[name] += 1
        if self.back.get(name, 0) >= self.asked[name]:
            return BACK
        return float(name > "b")


def rewards(proctor: FakeProctor, streams: bool) -> tuple[list[float | None], int]:
    with proctor.client() as client:
        if not streams:
            answer = client.reward(NAMES)
            assert [each.index for each in answer.results] == [0, 1, 2, 3]
            return [each.reward for each in answer.results], answer.summary.judged
        stream = client.reward_stream(NAMES)
        found = {result.index: result.reward for result in stream}
        assert stream.summary is not None
        return [found[index] for index in range(4)], stream.summary.judged


@pytest.mark.parametrize("streams", [False, True])
def test_what_was_handed_back_is_asked_for_again_and_nothing_else_is_judged_twice(
    streams: bool,
) -> None:
    judge = Judge({"b": 1, "d": 3})
    proctor = FakeProctor(judge)
    assert rewards(proctor, streams) == ([0.0, 0.0, 1.0, 1.0], 4)
    assert judge.asked == {"a": 1, "b": 2, "c": 1, "d": 4}
    assert len({each.idempotency_key for each in proctor.requests}) == 1
    assert len(proctor.clock.sleeps) == 3


@pytest.mark.parametrize("streams", [False, True])
def test_what_nobody_judges_in_the_end_is_given_back_as_it_is(streams: bool) -> None:
    judge = Judge({"b": 99})
    proctor = FakeProctor(judge)
    assert rewards(proctor, streams) == ([0.0, None, 1.0, 1.0], 3)
    assert judge.asked["b"] == 8


@pytest.mark.parametrize("streams", [False, True])
def test_other_errors_are_not_asked_for_again(streams: bool) -> None:
    lost = wire.ItemError(reason="sandbox_lost", message="gone", retryable=True)
    proctor = FakeProctor(lambda submission: lost)
    assert rewards(proctor, streams) == ([None] * 4, 0)
    assert len(proctor.requests) == 1


def test_a_stream_that_breaks_between_two_attempts_goes_on() -> None:
    judge = Judge({"a": 1})
    proctor = FakeProctor(judge)
    proctor.drop_next(after_results=2)
    assert rewards(proctor, streams=True) == ([0.0, 0.0, 1.0, 1.0], 4)


def test_what_was_judged_is_kept_when_the_service_stays_away() -> None:
    judge = Judge({"b": 1})

    def judge_once(submission: wire.Submission) -> Judged:
        proctor.fail_next(999)
        return judge(submission)

    proctor = FakeProctor(judge_once)
    with proctor.client() as client:
        answer = client.reward(NAMES)
    assert [each.reward for each in answer.results] == [0.0, None, 1.0, 1.0]
    assert answer.results[1].error == BACK
    assert (answer.summary.judged, answer.summary.errors, answer.summary.passed) == (3, 1, 2)


def test_a_later_answer_takes_nothing_away() -> None:
    answers = [
        result_lists(["judged", "back", "judged", "back"]),
        result_lists(["back", "judged", "back", "back"]),  # a replica that did not know the first
        result_lists(["back", "back", "back", "judged"]),
    ]
    kept = answers[0]
    for later in answers[1:]:
        kept = completed(kept, later)
    assert [each.reward for each in kept.results] == [1.0] * 4
    assert kept.summary.judged == 4
    assert kept.summary.mean_reward == 1.0


def result_lists(outcomes: list[str]) -> wire.RewardResponse:
    """An answer with these outcomes."""
    fake = FakeProctor(lambda each: BACK if each.completion == "back" else 1.0)
    with fake.client(max_attempts=1) as client:
        return client.reward(outcomes)
