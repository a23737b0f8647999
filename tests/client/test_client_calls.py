"""Both clients against the fake service: the same questions for threads and for event loops."""

from __future__ import annotations

import json
from typing import Any, Unpack

import pytest
from client_blocking import Kind, a_client
from client_requests import Watching

from proctor_client import (
    AnySubmission,
    InvalidRequestError,
    ProtocolError,
    RewardOptions,
    wire,
)
from proctor_client.testing import FakeProctor

ASSERTS = {"kind": "asserts", "tests": ["assert f(1) == 1"]}


def reward(
    kind: Kind,
    proctor: FakeProctor,
    submissions: list[AnySubmission],
    **options: Unpack[RewardOptions],
) -> wire.RewardResponse:
    """One batch, judged by a client of the kind."""
    with a_client(kind, proctor) as client:
        judged: wire.RewardResponse = client.reward(submissions, **options)
        return judged


def stream(
    kind: Kind, proctor: FakeProctor, submissions: list[AnySubmission]
) -> tuple[list[wire.Result], wire.Summary]:
    """One streamed batch, from a client of the kind."""
    with a_client(kind, proctor) as client, client.reward_stream(submissions) as results:
        return list(results), results.summary


def keys(proctor: FakeProctor) -> set[str | None]:
    """The different keys of the requests that came."""
    return {each.idempotency_key for each in proctor.requests}


def test_submissions_of_every_form_arrive_as_meant(kind: Kind) -> None:
    proctor = FakeProctor(lambda submission: 0.25)
    chat = wire.Submission(completion=[wire.Message(role="assistant", content="c")], id="c")
    answer = reward(
        kind,
        proctor,
        ["a", {"completion": "b", "group": "g"}, chat],
        grader=ASSERTS,
        limits=wire.Limits(cpu_seconds=2.0),
        tags=("run-1", "eval"),
        scoring="fraction",
        deadline_seconds=90,
    )
    assert [each.reward for each in answer.results] == [0.25] * 3
    assert answer.results[1].group == "g"
    [request] = proctor.requests
    assert json.loads(request.content) == {
        "submissions": [
            {"completion": "a"},
            {"completion": "b", "group": "g"},
            {"completion": [{"role": "assistant", "content": "c"}], "id": "c"},
        ],
        "grader": ASSERTS,
        "limits": {"cpu_seconds": 2.0},
        "tags": ["run-1", "eval"],
        "scoring": "fraction",
        "deadline_seconds": 90.0,
    }


def test_the_waiting_time_exceeds_the_deadline_and_connecting_has_its_own(kind: Kind) -> None:
    proctor = Watching()
    reward(kind, proctor, ["a"], deadline_seconds=100)
    assert proctor.timeouts[0]["read"] > 100
    assert proctor.timeouts[0]["connect"] == 10.0


def test_a_call_about_repositories_waits_for_their_limits(kind: Kind) -> None:
    grader: Any = {"kind": "repository", "test": "make test"}
    proctor = Watching()
    reward(kind, proctor, ["a"], grader={"kind": "exec"})
    reward(kind, proctor, ["a"], grader=grader)
    reward(kind, proctor, ["a", "b"], grader=grader, limits={"cpu_seconds": 5, "wall_seconds": 900})
    reward(kind, proctor, [{"completion": "a", "task": "sha256:" + "0b" * 32}])
    reward(kind, proctor, ["a"] * 100, grader=grader)
    waits = [each["read"] for each in proctor.timeouts]
    assert waits == pytest.approx([630, 630 + 14400, 630 + 2 * 1810, 630 + 14400, 86430], abs=10)


def test_the_next_call_has_another_key(kind: Kind) -> None:
    proctor = FakeProctor()
    for _ in range(2):
        reward(kind, proctor, ["a"])
    assert len(keys(proctor)) == 2


def test_an_item_that_could_not_be_judged_is_data(kind: Kind) -> None:
    lost = wire.ItemError(reason="sandbox_lost", message="gone", retryable=True)
    answer = reward(kind, FakeProctor(lambda submission: lost), ["a"])
    assert answer.results[0].error == lost
    assert answer.results[0].reward is None
    assert answer.summary.mean_reward is None


def test_an_answer_with_results_missing_is_not_handed_out(kind: Kind) -> None:
    short = FakeProctor()
    none = wire.Summary(count=0, judged=0, passed=0, no_code=0, errors=0, mean_reward=None)
    short.answer_next(wire.RewardResponse(results=[], summary=none).model_dump_json().encode())
    with pytest.raises(ProtocolError, match="does not hold 1 results"):
        reward(kind, short, ["a"])


@pytest.mark.parametrize(
    ("submissions", "options", "named"),
    [
        ([], {}, "submissions"),
        ("one completion", {}, "submissions"),
        ({"completion": "a"}, {}, "submissions"),
        ([{"completion": "a", "gruop": "g"}], {}, "submissions.0.gruop"),
        (["a", {}], {}, "submissions.1.completion"),
        (["a", "\ud800"], {}, "submissions.1"),
        (["a"], {"grader": {"kind": "asserts", "tests": []}}, "grader.asserts.tests"),
        (["a"], {"grader": {"kind": "osserts"}}, "grader"),
        (["a"], {"deadline_seconds": 0}, "deadline_seconds"),
        (["a"], {"tags": "run"}, "tags"),
        (["a"], {"taggs": ["run"]}, "taggs"),
        (
            ["a"],
            {
                "grader": {
                    "kind": "calls",
                    "entry_point": "f",
                    "cases": [{"expected": float("inf")}],
                }
            },
            "a number is infinite",
        ),
    ],
)
def test_a_request_at_fault_is_refused_here_by_name(
    kind: Kind, submissions: Any, options: Any, named: str
) -> None:
    proctor = FakeProctor()
    with pytest.raises(InvalidRequestError) as caught:
        reward(kind, proctor, submissions, **options)
    assert named in caught.value.message
    assert caught.value.status_code is None
    assert proctor.requests == []


def test_a_stream_refuses_before_it_is_iterated() -> None:
    with FakeProctor().client() as client, pytest.raises(InvalidRequestError):
        client.reward_stream([])


def test_many_faults_are_listed_briefly() -> None:
    with FakeProctor().client() as client, pytest.raises(InvalidRequestError) as caught:
        client.reward([{"completion": "a", "extra": "secret text"}] * 9)
    assert "submissions.4.extra" in caught.value.message
    assert "and 4 more" in caught.value.message
    assert "secret text" not in caught.value.message


def test_the_summary_is_known_only_at_the_end() -> None:
    with FakeProctor().client() as client, client.reward_stream(["a", "b"]) as results:
        next(results)
        with pytest.raises(RuntimeError, match="iterate to the end"):
            _ = results.summary
        assert [each.index for each in results] == [1]
        assert results.summary.count == 2


def test_capacity_and_health(kind: Kind) -> None:
    proctor = FakeProctor(token="let-me-in")
    proctor.fail_next()
    with a_client(kind, proctor) as client:
        capacity, health = client.capacity(), client.health()
    assert capacity == proctor.capacity
    assert health.status == "ok"
    assert [each.path for each in proctor.requests] == ["/capacity", "/capacity", "/healthz"]


def test_an_answer_that_is_no_capacity() -> None:
    proctor = FakeProctor()
    proctor.answer_next(b"<html>welcome</html>")
    proctor.answer_next(b'{"slots": 3}')
    with proctor.client() as client:
        with pytest.raises(ProtocolError, match=r"not Proctor's.*<html>welcome"):
            client.capacity()
        with pytest.raises(ProtocolError, match="no Capacity"):
            client.capacity()


def test_environments(client: Any) -> None:
    assert [each.name for each in client.environments().environments] == ["default"]


def test_verifiers(kind: Kind) -> None:
    proctor = FakeProctor()
    words = wire.Verifier(name="words", description="Share of the words.")
    proctor.verifiers = wire.VerifierList(verifiers=[words])
    with a_client(kind, proctor) as client:
        assert client.verifiers() == proctor.verifiers
    assert proctor.requests[-1].path == "/verifiers"


def test_a_result_names_the_environment_that_was_asked_for() -> None:
    items = [{"completion": "x"}, {"completion": "y", "environment": "bare"}]
    with FakeProctor().client() as client:
        results = client.reward(items, grader={"kind": "exec"}, environment="science").results
        assert [each.environment for each in results] == ["science", "bare"]
        recorded = [client.evaluation(each.evaluation_id).environment for each in results]
        assert recorded == ["science", "bare"]
        assert client.sandbox(environment="science").start().refresh().environment == "science"
