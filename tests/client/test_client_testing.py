"""The fake service, which users' own tests stand on."""

from __future__ import annotations

import httpx
import pytest

from proctor_client import InvalidRequestError, NotFoundError, UnauthorizedError, wire
from proctor_client.testing import URL, FakeProctor, Judged


@pytest.mark.parametrize(
    ("said", "verdict", "reward"),
    [
        (1.0, "passed", 1.0),
        (1, "passed", 1.0),
        (0.5, "failed", 0.5),
        ("timeout", "timeout", 0.0),
        ("passed", "passed", 1.0),
    ],
)
def test_what_a_judge_may_say(said: Judged, verdict: str, reward: float) -> None:
    with FakeProctor(lambda submission: said).client() as client:
        [result] = client.reward([{"completion": "a", "id": "x"}]).results
    assert (result.verdict, result.reward, result.id) == (verdict, reward, "x")


def test_a_judge_may_say_a_whole_result() -> None:
    said = wire.Result(
        index=99,
        evaluation_id="ev_mine",
        integrity="separated",
        cache="miss",
        reward=0.0,
        verdict="early_exit",
        hack_signals=["early_exit"],
    )
    with FakeProctor(lambda submission: said).client() as client:
        answer = client.reward(["a", "b"])
    assert [each.index for each in answer.results] == [0, 1]
    assert answer.results[1].hack_signals == ["early_exit"]


def test_a_judge_that_fails_fails_the_test() -> None:
    with FakeProctor(lambda submission: "pased").client() as client:
        with pytest.raises(ValueError, match="'pased', which is no verdict"):
            client.reward(["a"])
        with pytest.raises(ValueError, match="no verdict"):
            list(client.reward_stream(["a"]))


def test_requests_can_be_looked_at() -> None:
    proctor = FakeProctor()
    with proctor.client() as client:
        client.reward(["a"], job="run-7")
        client.capacity()
    first, second = proctor.requests
    assert first.reward is not None
    assert first.reward.job == "run-7"
    assert first.reward.submissions[0].completion == "a"
    assert (first.method, first.path, second.method, second.path) == (
        "POST",
        "/reward",
        "GET",
        "/capacity",
    )
    assert second.reward is None
    assert second.idempotency_key is None


def test_a_token_is_asked_for_but_not_for_health() -> None:
    proctor = FakeProctor(token="right")
    with proctor.client() as client:
        client.capacity()
    with httpx.Client(base_url=URL, transport=proctor) as stranger:
        assert stranger.get("/healthz").status_code == 200
        refused = stranger.get("/capacity")
    assert refused.status_code == 401
    assert wire.ProblemBody.model_validate_json(refused.content).error.reason == "unauthorized"


def test_a_request_that_breaks_the_contract_is_refused_by_name() -> None:
    with httpx.Client(base_url=URL, transport=FakeProctor()) as raw:
        refused = raw.post("/reward", json={"submissions": [{"completion": "a", "gruop": 1}]})
        lost = raw.get("/nowhere")
    problem = wire.ProblemBody.model_validate_json(refused.content).error
    assert (refused.status_code, problem.reason) == (422, "invalid_request")
    assert "submissions.0.gruop" in problem.message
    assert lost.status_code == 404


def test_orders_of_every_kind_are_carried_out_in_turn() -> None:
    proctor = FakeProctor()
    proctor.fail_next(status=422, reason="invalid_request")
    proctor.fail_next(status=404, reason="not_found")
    proctor.fail_next(status=401, reason="unauthorized")
    with proctor.client() as client:
        for kind in (InvalidRequestError, NotFoundError, UnauthorizedError):
            with pytest.raises(kind):
                client.health()
        assert client.health().status == "ok"


@pytest.mark.parametrize("after_results", [None, 0, 1, 2])
def test_a_stream_may_break_anywhere_and_is_judged_once(after_results: int | None) -> None:
    judged: list[wire.Submission] = []

    def judge(submission: wire.Submission) -> Judged:
        judged.append(submission)
        return 1.0

    proctor = FakeProctor(judge)
    proctor.drop_next(after_results=after_results)
    with proctor.client() as client, client.reward_stream(["a", "b"]) as results:
        assert [each.index for each in results] == [0, 1]
    assert len(judged) == 2
    assert len(proctor.requests) == 2
