"""Long test code over HTTP, with the real judge in real sandboxes."""

from __future__ import annotations

import pytest
from harness import Service
from judging import ask, judge

from proctor_service.judge.analysis import process

RIGHT = "def f(x):\n    return 2 * x"


def long_tests(first: int, count: int) -> str:
    lines = (f"    assert candidate({i}) == {2 * i}\n" for i in range(first, first + count))
    return "def check(candidate):\n" + "".join(lines)


def test_a_suite_of_many_calls_is_judged_as_a_small_one(service: Service) -> None:
    wrong = RIGHT + " if x != 5999 else 1"
    tests = {"kind": "asserts", "tests": [long_tests(0, 6000)], "entry_point": "f"}
    results = judge(service, {"completion": RIGHT}, {"completion": wrong}, grader=tests)
    assert [each["verdict"] for each in results] == ["passed", "failed"]
    assert {each["integrity"] for each in results} == {"separated"}
    assert {each["level"] for each in results} == {"calls"}


def test_tests_whose_analysis_is_ended_run_beside_the_submission(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CPU_SECONDS", 0.0)
    tests = {"kind": "asserts", "tests": [long_tests(10_000, 1500)], "entry_point": "f"}
    separated = {**tests, "integrity": "separated"}
    right, wrong, refused = ask(
        service,
        *({"completion": each, "grader": tests} for each in (RIGHT, "def f(x):\n    return 1")),
        {"completion": RIGHT, "grader": separated},
    )
    assert (right["verdict"], wrong["verdict"]) == ("passed", "failed")
    assert right["integrity"] == "in_process"
    assert refused["error"]["reason"] == "invalid_task"
    assert not refused["error"]["retryable"]
    assert "too much time" in refused["error"]["message"]
