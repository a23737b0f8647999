"""SkyPilot's and slime's routes with scripted judges: rewards in their forms, and 503 for what is ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from compat_clients import Failing
from grace import grace_period
from harness import Gate, Service, running_service
from requests_under_way import asking

from proctor_client import wire
from proctor_service.errors import InvalidRequest, InvalidTask, SandboxLost
from proctor_service.features.compat.slime import submission_of_label
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings import Settings

ITEM: dict[str, Any] = {
    "prompt": "Write f.",
    "response": "```python\nright\n```",
    "tests": ["assert f() == 1"],
    "setup_code": "import math",
}
LABELLED = {"prompt": "Write f.", "response": "```python\nright\n```", "label": ["assert 1"]}
QUERY: dict[str, Any] = {
    "query": ["<s>Write f.\n```python\nright\n```<|im_end|></s>", "Write f. wrong = 1"],
    "prompts": ["Write f.", "Write f."],
    "labels": [["assert 1"], '["assert 1"]'],
}
ROUTES = [("/compat/reward", ITEM), ("/compat/batch_reward", {"items": [ITEM]}),
          ("/compat/remote_rm", LABELLED),
          ("/compat/get_reward", {name: column[:1] for name, column in QUERY.items()})]  # fmt: skip


class BySource:
    """A judge that goes by the program's text."""

    def __init__(self) -> None:
        self.seen: list[Submission] = []

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """`right` passes, `broken` has broken tests, anything else fails."""
        self.seen.append(submission)
        if submission.source.strip() == "broken":
            raise InvalidTask("tests.0 is not Python")
        if submission.source.strip() == "right":
            return Judgement("passed", passed=1, total=1, exit_code=0, stdout="x" * 3000)
        return Judgement("failed", total=1, exit_code=0, message="it does not hold")


@pytest.fixture
def judge() -> BySource:
    return BySource()


@pytest.fixture
def service(judge: BySource) -> Iterator[Service]:
    with running_service(judge=judge) as running:
        yield running


def test_skypilot_rewards_one(client: httpx.Client, judge: BySource) -> None:
    answer = client.post("/compat/reward", json=ITEM).json()
    assert set(answer) == {
        "reward", "passed", "exit_code", "extracted_code", "stdout", "stderr", "error",
    }  # fmt: skip
    assert (answer["reward"], answer["passed"], answer["exit_code"]) == (1.0, True, 0)
    assert (answer["extracted_code"], answer["error"]) == ("right", None)
    assert len(answer["stdout"]) == 2001
    grader = judge.seen[0].grader
    assert isinstance(grader, wire.AssertsGrader)
    assert (grader.tests, grader.setup) == (["assert f() == 1"], "import math")


def test_skypilot_rewards_many(client: httpx.Client) -> None:
    wrong = ITEM | {"response": "```python\nwrong\n```", "setup_code": None}
    no_tests, no_code = ITEM | {"tests": []}, ITEM | {"response": "I cannot."}
    items = [ITEM, wrong, no_tests, no_code]
    answer = client.post("/compat/batch_reward", json={"items": items}).json()
    assert [each["reward"] for each in answer["rewards"]] == [1.0, 0.0, 0.0, 0.0]
    assert [each["exit_code"] for each in answer["rewards"]] == [0, 1, None, None]
    assert answer["rewards"][1]["error"] == "failed: it does not hold"
    assert (answer["mean_reward"], answer["pass_rate"]) == (0.25, 0.25)
    empty = client.post("/compat/batch_reward", json={"items": []}).json()
    assert empty == {"rewards": [], "mean_reward": 0.0, "pass_rate": 0.0}


def test_tests_that_are_broken_are_named_and_nobody_pays(client: httpx.Client) -> None:
    broken = ITEM | {"response": "```python\nbroken\n```"}
    answer = client.post("/compat/batch_reward", json={"items": [ITEM, broken]})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == "items.1.tests: tests.0 is not Python"
    answer = client.post("/compat/remote_rm", json=LABELLED | {"response": broken["response"]})
    assert answer.status_code == 422


def test_slime_gets_a_bare_number(client: httpx.Client) -> None:
    assert client.post("/compat/remote_rm", json=LABELLED).text == "1.0"
    wrong = LABELLED | {"response": "wrong = 1", "prompt": [{"role": "user", "content": "?"}]}
    assert client.post("/compat/remote_rm", json=wrong).text == "0.0"
    assert client.post("/compat/remote_rm", json=LABELLED | {"response": "No."}).text == "0.0"


# ---------------------------------------------------------------- OpenRLHF


def test_openrlhf_gets_the_rewards_of_the_responses(client: httpx.Client, judge: BySource) -> None:
    assert client.post("/compat/get_reward", json=QUERY).json() == {
        "rewards": [1.0, 0.0],
        "scores": [1.0, 0.0],
        "extra_logs": {"pass_rate": [1.0, 0.0]},
    }
    assert sorted(each.source.strip() for each in judge.seen) == ["right", "wrong = 1"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"query": []}, "query"),
        ({"prompts": ["Write f."]}, "the same length"),
        ({"labels": [["assert 1"], None]}, "labels.1: label: the ground truth holds neither"),
        ({"query": [QUERY["query"][0], "```python\nright\n```"]}, "query.1: the query does not"),
        (
            {"query": ["Write f.```python\nbroken\n```", QUERY["query"][1]]},
            "labels.0: tests.0 is not Python",
        ),
    ],
)
def test_what_openrlhf_must_not_send(
    client: httpx.Client, changed: dict[str, Any], said: str
) -> None:
    answer = client.post("/compat/get_reward", json=QUERY | changed)
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"]
    assert "rewards" not in answer.json()


# ---------------------------------------------------------------- labels

AS_PRIME = {"compare": "trimmed", "tolerance": {"absolute": 1e-8, "relative": 1e-5}}


def grader_of(label: Any) -> dict[str, Any]:
    found = submission_of_label(label, "x", None).model_dump(exclude_defaults=True)
    grader: dict[str, Any] = found["grader"]
    return grader


@pytest.mark.parametrize(
    ("label", "grader"),
    [
        (["assert 1"], {"kind": "asserts", "tests": ["assert 1"]}),
        ("assert 1\nassert 2", {"kind": "asserts", "tests": ["assert 1\nassert 2"]}),
        ({"kind": "exec"}, {"kind": "exec"}),
        (
            [{"input": "1", "output": "2"}, {"stdin": "3", "stdout": ["4", "5"]}],
            {"kind": "stdio", "cases": [{"stdin": "1", "stdout": "2"},
                                        {"stdin": "3", "stdout": "4\n5"}],
             **AS_PRIME},
        ),
        (
            {"inputs": ["1"], "outputs": ["2"]},
            {"kind": "stdio", "cases": [{"stdin": "1", "stdout": "2"}], **AS_PRIME},
        ),
        (
            "np.testing.assert_allclose(f(1), 2)",
            {"kind": "asserts", "tests": ["np.testing.assert_allclose(f(1), 2)"]},
        ),
        (
            ["with pytest.raises(ValueError): f(1)"],
            {"kind": "asserts", "tests": ["with pytest.raises(ValueError): f(1)"]},
        ),
        (
            [{"input": "1", "output": "2", "testtype": []}],
            {"kind": "stdio", "cases": [{"stdin": "1", "stdout": "2"}], **AS_PRIME},
        ),
        (
            {"inputs": ["2\n3"], "outputs": ["5"], "fn_name": "add"},
            {"kind": "calls", "entry_point": "add", "method": "either", "equality": "apps",
             "cases": [{"args": [2, 3], "expected": 5}]},
        ),
        (
            [{"input": "2\n3", "output": "5", "testtype": "functional",
              "metadata": {"func_name": "add"}}],
            {"kind": "calls", "entry_point": "add", "method": "either", "equality": "apps",
             "cases": [{"args": [2, 3], "expected": 5}]},
        ),
    ],
)  # fmt: skip
def test_what_a_label_may_be(label: Any, grader: dict[str, Any]) -> None:
    for given in (label, json.dumps(label)):
        assert grader_of(given) == grader


@pytest.mark.parametrize(
    "label",
    [7, [], {}, [1], [{"input": "1"}, "assert 1"], [{"input": "1"}], {"kind": "guess"},
     {"inputs": ["1"], "outputs": []}, {"kind": "asserts", "tests": "x"}, "[" * 100_000 + "]",
     {"grader": "[" * 100_000},
     "Paris", "3/4", {"tests": ["assert 1"], "setup": ["import math"]},
     {"tests": ["assert 1"], "test_imports": 5}, {"tests": ["assert 1"], "test_imports": [5]}],
)  # fmt: skip
def test_what_a_label_may_not_be(label: Any, client: httpx.Client) -> None:
    with pytest.raises(InvalidRequest, match="label"):
        grader_of(label)
    answer = client.post("/compat/remote_rm", json=LABELLED | {"label": label})
    assert answer.status_code == 422


def test_a_test_that_is_no_python_is_left_to_its_judging() -> None:
    text = "[" * 100_000
    assert grader_of({"tests": text})["tests"] == [text]


# ---------------------------------------------------------------- what is ours


@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_a_failure_of_ours_is_a_503_and_never_a_reward(path: str, body: dict[str, Any]) -> None:
    judge = Failing(1000, SandboxLost("it went away"))
    with running_service(Settings(slots=1), judge=judge) as service, service.client() as client:
        answer = client.post(path, json=body)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert "it went away" in answer.json()["detail"]
    assert "reward" not in answer.json()


@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_a_failure_that_passes_is_not_seen(path: str, body: dict[str, Any]) -> None:
    with (
        running_service(Settings(slots=1), judge=Failing(3)) as service,
        service.client() as client,
    ):
        assert client.post(path, json=body).status_code == 200


@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_what_takes_long_is_a_503_and_goes_on(path: str, body: dict[str, Any]) -> None:
    gate = Gate()
    with running_service(judge=gate) as service, service.client() as client:
        assert client.post(f"{path}?hold_seconds=0.2", json=body).status_code == 503
        service.call(gate.open)
        assert client.post(path, json=body).status_code == 200
    assert len(gate.entered) == 1


@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_a_service_that_stops_is_a_503(path: str, body: dict[str, Any]) -> None:
    gate = Gate()
    with (
        grace_period() as grace,
        running_service(Settings(grace_seconds=grace.seconds), judge=gate) as service,
        asking(service, path, body) as asked,
    ):
        service.until(lambda: bool(gate.entered))
        service.drain()
        grace.end()
        assert asked.result().status_code == 503


def test_a_trainer_names_its_job(client: httpx.Client) -> None:
    for query in ("?job=run-17", ""):
        client.post(f"/compat/remote_rm{query}", json=LABELLED)
    text = client.get("/metrics").text
    assert 'proctor_rewards_total{job="run-17",verdict="passed"} 1.0' in text
    assert 'proctor_rewards_total{job="slime",verdict="passed"} 1.0' in text
