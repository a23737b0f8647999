"""The fake service, which users' own tests stand on."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import httpx
import pytest

from proctor_client import (
    InvalidRequestError,
    NotFoundError,
    NotReplayableError,
    UnauthorizedError,
    wire,
)
from proctor_client.testing import URL, Executed, FakeProctor, FakeSandbox, Judged


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


# ---------------------------------------------------------------- sandboxes and rollouts


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ("text", wire.ExecResult(exit_code=0, stdout="text", ending="exited")),
        (3, wire.ExecResult(exit_code=3, ending="exited")),
        (wire.ExecResult(ending="signalled"), wire.ExecResult(ending="signalled")),
    ],
)
def test_what_a_command_may_do(said: Executed, result: wire.ExecResult) -> None:
    proctor = FakeProctor(execute=lambda sandbox, request: said)
    with proctor.client() as client, client.sandbox() as sandbox:
        assert sandbox.exec(["x"]) == result
        assert list(sandbox.stream(["x"]))[-1].result == result


def test_a_command_may_use_the_files() -> None:
    def run(sandbox: FakeSandbox, request: wire.ExecRequest) -> Executed:
        sandbox.files["out.txt"] = sandbox.files["in.txt"].upper()
        return f"{sandbox.order.tags} {request.stdin}"

    proctor = FakeProctor(execute=run)
    with proctor.client() as client, client.sandbox(files={"in.txt": "a"}, tags=["t"]) as sandbox:
        assert sandbox.exec(["x"], stdin="y").stdout == "['t'] y"
        assert sandbox.read_file("out.txt") == b"A"


def test_a_grade_is_the_judges() -> None:
    proctor = FakeProctor(lambda submission: "passed" if submission.completion else "no_code")
    with proctor.client() as client, client.sandbox() as sandbox:
        assert sandbox.grade({"kind": "exec"}).verdict == "no_code"
        sandbox.write_file("solution.py", "x = 1")
        assert sandbox.grade({"kind": "exec"}).verdict == "passed"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("POST", "/sandboxes", {"tag": 1}, 422, "invalid_request"),
        ("POST", "/sandboxes/sb_fake_0/exec", {}, 422, "invalid_request"),
        ("POST", "/sandboxes/sb_fake_0/grade", {"grader": {"kind": "?"}}, 422, "invalid_request"),
        ("DELETE", "/sandboxes", None, 422, "invalid_request"),
        ("GET", "/sandboxes/sb_other", None, 404, "sandbox_not_found"),
        ("GET", "/sandboxes/sb_fake_0/files/none", None, 404, "file_not_found"),
        ("PATCH", "/sandboxes/sb_fake_0/files/none", None, 404, "not_found"),
        ("POST", "/sandboxes/sb_fake_1/exec", {"code": "1"}, 410, "sandbox_stopped"),
        ("DELETE", "/sandboxes/sb_fake_1", None, 410, "sandbox_stopped"),
        ("POST", "/rollout", {"tasks": []}, 422, "invalid_request"),
    ],
)
def test_requests_that_the_service_would_refuse(
    method: str, path: str, body: object, status: int, reason: str
) -> None:
    proctor = FakeProctor()
    with proctor.client() as client:
        client.sandbox().start()
        client.sandbox().start().stop()
    with httpx.Client(base_url=URL, transport=proctor) as raw:
        refused = raw.request(method, path, json=body)
    assert refused.status_code == status
    assert wire.ProblemBody.model_validate_json(refused.content).error.reason == reason


def test_a_token_is_asked_for_by_every_new_route() -> None:
    with httpx.Client(base_url=URL, transport=FakeProctor(token="right")) as stranger:
        for method, path in (("POST", "/sandboxes"), ("GET", "/sandboxes"), ("POST", "/rollout")):
            assert stranger.request(method, path).status_code == 401


def test_an_episode_may_be_a_whole_trajectory() -> None:
    whole = wire.Trajectory(
        task_id="", index=9, messages_and_choices=[{"role": "user", "content": "hi"}], reward=0.5
    )
    proctor = FakeProctor(roll_out=lambda task, index: whole)
    task = {"id": "t", "prompt": "p", "grader": {"kind": "exec"}, "metadata": {"a": 1}}
    policy = {"base_url": "http://policy.test/v1", "model": "m"}
    with proctor.client() as client:
        answer = client.rollout([task], policy=policy, trajectories_per_task=2)
    assert [each.index for each in answer.trajectories] == [0, 1]
    assert answer.trajectories[0].messages_and_choices == whole.messages_and_choices
    assert proctor.requests[0].rollout is not None
    assert proctor.requests[0].rollout.tasks[0].metadata == {"a": 1}


# ---------------------------------------------------------------- the journal

LOST = wire.ItemError(reason="sandbox_lost", message="it is gone", retryable=True)


def by_text(submission: wire.Submission) -> Judged:
    said: dict[str, Judged] = {"pass": 1.0, "half": 0.5, "none": "no_code", "lost": LOST}
    return said[str(submission.completion).split()[0]]


def filled() -> FakeProctor:
    """A service that has judged two steps of the job `run/1`, and a job without steps."""
    proctor = FakeProctor(by_text)
    with proctor.client() as client:
        for step in (1, 2):
            batch = [{"completion": f"{text} of {step}", "id": text, "group": f"p{step}"}
                     for text in ("pass", "half", "none", "lost")]  # fmt: skip
            client.reward(batch, job="run/1", step=step, tags=["t"], grader={"kind": "exec"})
            proctor.clock.now += 60
        client.reward([{"completion": "pass", "grader": {"kind": "exec"}}])
    return proctor


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            {},
            ["default pass", "2 lost", "2 none", "2 half", "2 pass", "1 lost", "1 none", "1 half"],
        ),
        ({"job": "run/1", "step": 1}, ["1 lost", "1 none", "1 half", "1 pass"]),
        ({"task": "p2", "verdict": "passed"}, ["2 pass"]),
        ({"tag": "t", "reward": 0.5}, ["2 half", "1 half"]),
        ({"error": "*"}, ["2 lost", "1 lost"]),
        ({"error": "sandbox_lost", "step": 2}, ["2 lost"]),
        ({"error": "deadline"}, []),
        ({"text": "OF half 2"}, ["2 half"]),
        ({"signal": "early_exit"}, []),
        ({"rollout_id": "ro_1"}, []),
    ],
)
def test_what_was_judged_is_in_the_journal(wanted: Any, said: list[str]) -> None:
    with filled().client() as client:
        page = client.evaluations(limit=8, **wanted)
    found = [f"{each.step or each.job} {each.submission_id or 'pass'}" for each in page.evaluations]
    assert found == said
    assert (page.next is None) == bool(wanted)


def test_pages_follow_each_other() -> None:
    with filled().client() as client:
        page = client.evaluations(limit=4)
        ids = [each.id for each in page.evaluations]
        while page.next is not None:
            page = client.evaluations(limit=4, cursor=page.next)
            ids += [each.id for each in page.evaluations]
    assert ids == [f"ev_fake_{number}" for number in reversed(range(9))]


def test_an_evaluation_has_its_texts_and_can_be_judged_again() -> None:
    verdicts: list[Judged] = [1.0, 0.0, "no_code"]
    proctor = FakeProctor(lambda submission: verdicts.pop(0))
    with proctor.client() as client:
        asked = {"completion": "x = 1", "limits": {"cpu_seconds": 2}, "files": {"a": "b"}}
        [result] = client.reward([asked], grader={"kind": "exec"}, scoring="fraction").results
        found = client.evaluation(result.evaluation_id)
        assert (found.completion, found.source, found.replayable) == ("x = 1", "x = 1", True)
        assert (found.grader, found.limits) == ({"kind": "exec"}, {"cpu_seconds": 2.0})
        assert (found.scoring, found.files, found.error_message) == ("fraction", {"a": "b"}, "")
        replay = client.replay(result.evaluation_id)
        assert (replay.same, replay.recorded.reward, replay.replayed.reward) == (False, 1.0, 0.0)
        assert len(client.evaluations().evaluations) == 1, "a replay is not recorded"
        [other] = client.reward(["prose"]).results
        with pytest.raises(NotReplayableError):
            client.replay(other.evaluation_id)
        for missing in ("ev_none", "a/b"):
            with pytest.raises(NotFoundError):
                client.evaluation(missing)


def test_jobs_and_their_series() -> None:
    with filled().client() as client:
        default, run = client.jobs()
        series = client.job("run/1").series
        with pytest.raises(NotFoundError):
            client.job("another")
    assert (default.job, default.evaluations, default.last_step) == ("default", 1, None)
    assert (run.job, run.evaluations, run.judged, run.last_step) == ("run/1", 8, 6, 2)
    assert run.mean_reward == 0.5
    assert default.last_at - run.last_at == timedelta(seconds=60)
    assert [point.step for point in series] == [1, 2]
    for point in series:
        assert (point.count, point.judged, point.mean_reward) == (4, 3, 0.5)
        assert point.spread == pytest.approx(math.sqrt(1 / 6))
        assert point.verdicts == {"passed": 1, "failed": 1, "no_code": 1, "error": 1}


def test_grades_and_rollouts_are_in_the_journal() -> None:
    proctor = FakeProctor(roll_out=lambda task, index: LOST if index else 0.5)
    task = {"id": "t", "prompt": "p", "grader": {"kind": "exec"}}
    policy = {"base_url": "http://policy.test/v1", "model": "m"}
    with proctor.client() as client, client.sandbox(job="run", tags=["t"]) as sandbox:
        sandbox.write_file("solution.py", "x = 1")
        sandbox.grade({"kind": "exec"}, step=3)
        [grade] = client.evaluations(job="run", step=3, tag="t").evaluations
        assert grade.graded_sandbox_id == sandbox.id
        with pytest.raises(NotReplayableError):
            client.replay(grade.id)
        options: Any = {"trajectories_per_task": 2, "job": "run", "step": 4}
        played = client.rollout([task], policy=policy, **options).trajectories
        judged, lost = [client.recorded_rollout(each.rollout_id) for each in played]
        assert (judged.task, judged.step, judged.reward, judged.error) == ("t", 4, 0.5, None)
        assert (lost.reward, lost.error, lost.error_message) == (None, "sandbox_lost", "it is gone")
        with pytest.raises(NotFoundError):
            client.recorded_rollout("ro_none")


def test_a_query_that_the_service_would_refuse() -> None:
    with httpx.Client(base_url=URL, transport=FakeProctor()) as raw:
        refused = raw.get("/evaluations", params={"verdikt": "passed"})
    assert refused.status_code == 422
    assert "verdikt" in wire.ProblemBody.model_validate_json(refused.content).error.message
