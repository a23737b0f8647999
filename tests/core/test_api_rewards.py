"""POST /reward over a real connection, with a scripted judge."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import httpx
import pytest
from harness import Gate, NoBackend, exec_request, running_service
from requests_under_way import asking, hanging_up

from proctor_client import wire
from proctor_service.errors import Failure as NotJudged
from proctor_service.errors import InvalidTask, JudgeFailed, Overloaded, SandboxLost
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes, Traits, Usage
from proctor_service.settings import Settings

ASSERTS = {"kind": "asserts", "tests": ["assert f() == 1", "assert f() == 2"]}
NDJSON = {"Accept": "application/x-ndjson"}


class Seen:
    """A judge that notes what it is given, and says what it is told to."""

    def __init__(self, *ends: Judgement | Exception) -> None:
        self.submissions: list[Submission] = []
        self.ends = list(ends)

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        self.submissions.append(submission)
        end = self.ends.pop(0) if self.ends else Judgement("passed", passed=1, total=1)
        if isinstance(end, Exception):
            raise end
        return end


def ask(client: httpx.Client, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    # The standard library's JSON, since httpx refuses to send lone surrogates.
    answer = client.post("/reward", content=json.dumps(body), headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_result_has_every_field_of_the_contract() -> None:
    whole = Judgement(
        "failed",
        passed=1,
        total=2,
        failures=tuple(wire.Failure(index=i, test="t", message="m") for i in range(12)),
        message="said",
        stdout="out\x00\x1b[0m",
        stderr="err",
        truncated=True,
        exit_code=3,
        integrity="in_process",
        level="shared",
        hack_signals=("early_exit",),
        negative_control="caught",
        usage=Usage(0.5, 1.5, 9.25, control_seconds=0.25),
        sandbox_id="sb_1",
    )
    with running_service(judge=Seen(whole)) as service, service.client() as client:
        answer = ask(
            client,
            {
                "submissions": [
                    {"id": "a", "group": "g", "completion": "x", "scoring": "fraction"}
                ],
                "grader": ASSERTS,
                "extract": "none",
            },
        )
    assert wire.RewardResponse.model_validate(answer).summary.mean_reward == 0.5
    [result] = answer["results"]
    assert set(result) == set(wire.Result.model_fields)
    assert set(answer["summary"]) == set(wire.Summary.model_fields)
    assert result.pop("evaluation_id").startswith("ev_")
    assert result["usage"].pop("queue_seconds") >= 0
    assert result == {
        "index": 0,
        "id": "a",
        "group": "g",
        "reward": 0.5,
        "verdict": "failed",
        "error": None,
        "tests": {
            "passed": 1,
            "total": 2,
            "failures": [{"index": i, "test": "t", "message": "m"} for i in range(10)],
        },
        "message": "said",
        "stdout": "out\x00\x1b[0m",
        "stderr": "err",
        "truncated": True,
        "exit_code": 3,
        "integrity": "in_process",
        "level": "shared",
        "hack_signals": ["early_exit"],
        "negative_control": "caught",
        "usage": {
            "cpu_seconds": 0.5,
            "wall_seconds": 1.5,
            "peak_memory_mb": 9.25,
            "compile_seconds": 0.0,
            "control_seconds": 0.25,
        },
        "cache": "miss",
        "sandbox_id": "sb_1",
        "environment": "default",
        "degraded": [],
        "repository": None,
    }


def test_what_a_submission_lacks_comes_from_the_request_and_then_from_the_server() -> None:
    judge = Seen()
    settings = Settings(cpu_seconds=7, memory_mb=99)
    with running_service(settings, judge=judge) as service, service.client() as client:
        ask(
            client,
            {
                "submissions": [
                    {"completion": "<answer>a</answer>"},
                    {
                        "completion": [
                            {"role": "user", "content": "q"},
                            {"role": "assistant", "content": "```\nold\n```"},
                            {
                                "role": "assistant",
                                "content": [
                                    {"type": "text", "text": "```py"},
                                    {"type": "image"},
                                    {"type": "text", "text": "thon\nb\n```"},
                                ],
                                "reasoning": "more",
                            },
                            {"role": "tool", "content": "c"},
                        ],
                        "grader": {"kind": "exec"},
                        "limits": {"wall_seconds": 3},
                        "scoring": "all",
                        "files": {"data/in.txt": "1"},
                    },
                    {"completion": "echo", "grader": {"kind": "exec"}, "language": "bash"},
                    {"completion": [{"role": "assistant", "content": None}]},
                ],
                "grader": ASSERTS,
                "limits": {"cpu_seconds": 2},
                "scoring": "fraction",
            },
        )
    by_source = {each.source.strip(): each for each in judge.submissions}
    assert set(by_source) == {"a", "b"}
    first, second = by_source["a"], by_source["b"]
    assert first.grader.kind == "asserts"
    assert (first.scoring, second.scoring) == ("fraction", "all")
    assert (first.limits.cpu_seconds, first.limits.memory_mb) == (2, 99)
    assert (second.limits.cpu_seconds, second.limits.wall_seconds) == (7, 3)
    assert second.files == {"data/in.txt": "1"}


def test_a_submission_may_say_itself_where_its_code_is() -> None:
    judge = Seen()
    items = [
        {"completion": "<answer>a</answer> <solution>b"},
        {"completion": "<answer>c</answer> <solution>d", "extract": "xml"},
        {"completion": "<a>\n```\ne\n```\n```\nf\n```</a>", "extract": {"tags": ["a"]}},
        {"completion": "    return g", "prompt_code": "def f():\n", "extract": "auto"},
    ]
    with running_service(judge=judge) as service, service.client() as client:
        ask(client, {"submissions": items, "grader": ASSERTS, "extract": {"tags": ["solution"]}})
    assert {each.source for each in judge.submissions} == {"b", "c", "f", "def f():\n    return g"}


def test_a_prelude_that_is_too_long_for_a_batch_is_refused() -> None:
    body = {
        "submissions": [{"completion": "x = 1"}] * 9,
        "grader": ASSERTS,
        "prelude": "#" * (16 << 20),
    }
    with running_service(judge=Seen()) as service, service.client() as client:
        answer = client.post("/reward", json=body)
        assert (answer.status_code, answer.json()["error"]["reason"]) == (413, "batch_too_large")


def test_no_code_is_a_verdict_without_a_sandbox() -> None:
    judge = Seen()
    with running_service(judge=judge) as service, service.client() as client:
        answer = ask(client, {"submissions": [{"completion": "Sorry."}], "grader": ASSERTS})
    [result] = answer["results"]
    assert (result["verdict"], result["reward"], result["error"]) == ("no_code", 0.0, None)
    assert result["tests"] == {"passed": 0, "total": 2, "failures": []}
    assert judge.submissions == []
    assert answer["summary"]["no_code"] == 1


@pytest.mark.parametrize(
    ("failure", "reason", "retryable"),
    [
        (JudgeFailed("x"), "judge_failed", True),
        (Overloaded("x"), "overloaded", True),
        (InvalidTask("x"), "invalid_task", False),
        (KeyError("secret"), "judge_failed", True),
    ],
)
def test_a_failure_of_ours_is_an_error_and_never_a_reward(
    failure: Exception, reason: str, retryable: bool
) -> None:
    with running_service(judge=Seen(failure)) as service, service.client() as client:
        answer = ask(client, exec_request("x"))
        text = client.get("/metrics").text
    [result] = answer["results"]
    assert (result["verdict"], result["reward"]) == (None, None)
    assert result["error"]["reason"] == reason
    assert result["error"]["retryable"] is retryable
    assert isinstance(failure, NotJudged) or "secret" not in json.dumps(answer)
    assert answer["summary"] == {
        "count": 1,
        "judged": 0,
        "passed": 0,
        "no_code": 0,
        "errors": 1,
        "mean_reward": None,
    }
    assert f'proctor_infrastructure_errors_total{{reason="{reason}"}} 1.0' in text


def test_a_lost_sandbox_shows_in_the_metrics_though_the_second_attempt_counts() -> None:
    judge = Seen(SandboxLost("gone"))
    with running_service(judge=judge) as service, service.client() as client:
        assert ask(client, exec_request("x"))["results"][0]["reward"] == 1.0
        text = client.get("/metrics").text
    assert 'proctor_failed_attempts_total{reason="sandbox_lost"} 1.0' in text
    assert not re.search(r"proctor_infrastructure_errors_total{.*} [1-9]", text)


def test_a_deadline_fails_what_is_not_judged_by_then() -> None:
    gate = Gate()
    with running_service(Settings(slots=1), judge=gate) as service, service.client() as client:
        answer = ask(client, exec_request("a", "b", deadline_seconds=0.05))
    assert [each["error"]["reason"] for each in answer["results"]] == ["deadline"] * 2
    assert gate.cancelled == gate.entered


def test_lines_come_as_they_finish_and_the_object_in_the_order_of_the_request() -> None:
    gate = Gate()
    with running_service(Settings(slots=3), judge=gate) as service, service.client() as client:
        body = exec_request("a", "b", "c")
        with client.stream("POST", "/reward", json=body, headers=NDJSON) as answer:
            assert answer.headers["content-type"].startswith("application/x-ndjson")
            lines = answer.iter_lines()
            seen = []
            for source in ("c", "a", "b"):
                service.call(partial(gate.release, source))
                seen.append(json.loads(next(lines)))
            assert [each["message"] for each in seen] == ["c", "a", "b"]
            assert [each["index"] for each in seen] == [2, 0, 1]
            summary = json.loads(next(lines))
            assert summary == {"summary": summary["summary"]}
            assert summary["summary"]["count"] == 3
            assert list(lines) == []
        whole = ask(client, body)
    assert [each["message"] for each in whole["results"]] == ["a", "b", "c"]
    assert {each["cache"] for each in whole["results"]} == {"hit"}


def test_strings_that_utf8_cannot_hold_reach_a_verdict_and_come_back_as_json() -> None:
    judge = Seen(Judgement("failed", stdout="out \udcff", message="m \ud800\U0001f600"))
    source = "x = '\ud800\U0001f600'"
    with running_service(judge=judge) as service, service.client() as client:
        body = exec_request(source)
        body["submissions"][0]["id"] = "id-\udfff"
        answer = client.post("/reward", content=json.dumps(body))
    assert judge.submissions[0].source == source
    [result] = json.loads(answer.content.decode("utf-8"))["results"]
    assert result["stdout"] == "out \\udcff"
    assert result["message"] == "m \\ud800\U0001f600"
    assert result["id"] == "id-\\udfff"
    wire.RewardResponse.model_validate_json(answer.content)


@pytest.mark.parametrize("headers", [{}, NDJSON])
def test_a_client_that_goes_away_ends_its_work(headers: dict[str, str]) -> None:
    gate = Gate()
    with running_service(Settings(slots=2), judge=gate) as service:
        sources = [str(number) for number in range(200)]
        with hanging_up(service, "/reward", exec_request(*sources), **headers):
            service.until(lambda: service.parts.core.queue.queued == 198)
        service.until(lambda: not service.parts.core.running)
        assert gate.entered == ["0", "1"]
        assert sorted(gate.cancelled) == ["0", "1"]
        assert (service.parts.core.queue.busy, service.parts.core.queue.queued) == (0, 0)


def test_identical_work_is_judged_once() -> None:
    gate = Gate()
    with running_service(judge=gate) as service, service.client() as client:
        with asking(service, "/reward", exec_request(*["same"] * 1000)) as asked:
            service.until(lambda: gate.entered == ["same"])
            service.call(gate.open)
        answer = asked.result().json()
        assert gate.entered == ["same"]
        hows = [each["cache"] for each in answer["results"]]
        assert hows.count("miss") == 1
        assert answer["summary"]["passed"] == 1000
        assert len({each["evaluation_id"] for each in answer["results"]}) == 1000

        other = exec_request("same", limits={"cpu_seconds": 1})
        assert ask(client, other)["results"][0]["cache"] == "miss"
        for mode in ("off", "verdict"):
            again = ask(client, exec_request("same", negative_control=mode))
            assert again["results"][0]["cache"] == "miss"
        assert ask(client, exec_request("same"))["results"][0]["cache"] == "hit"
        assert ask(client, exec_request("same", job="x"))["results"][0]["cache"] == "hit"


def test_without_the_cache_everything_is_judged() -> None:
    judge = Seen()
    with running_service(judge=judge) as service, service.client() as client:
        answer = ask(client, exec_request("same", "same", cache=False))
        assert {each["cache"] for each in answer["results"]} == {"miss"}
        assert ask(client, exec_request("same"))["results"][0]["cache"] == "miss"
    assert len(judge.submissions) == 3


def test_a_full_batch_is_answered_in_order(client: httpx.Client) -> None:
    answer = ask(client, exec_request(*[f"x = {number}" for number in range(4096)]))
    assert [each["index"] for each in answer["results"]] == list(range(4096))
    assert answer["summary"]["passed"] == 4096


def test_every_result_says_what_the_machine_cannot_enforce() -> None:
    backend = NoBackend(Traits("none", degraded=("cgroups",)))
    with running_service(backend=backend) as service, service.client() as client:
        assert ask(client, exec_request("x"))["results"][0]["degraded"] == ["cgroups"]
        assert 'proctor_degraded{protection="cgroups"} 1.0' in client.get("/metrics").text
    assert backend.closed
