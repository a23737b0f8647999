"""Arguments and expected values of any size: megabytes, and integers of thousands of digits."""

from __future__ import annotations

import json
from typing import Any

from harness import Service
from judging import ask, calls, judge

from proctor_client.wire import long_integers

LONG = 10**10_000 - 1


def digits(value: int) -> str:
    return long_integers.digits_of(value)


def rewards(service: Service, *items: dict[str, Any]) -> list[Any]:
    """The verdicts of one request whose JSON has integers of any length."""
    body = {"submissions": items, "extract": "none", "cache": False}
    with service.client() as client:
        answer = client.post(
            "/reward",
            content=long_integers.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
    assert answer.status_code == 200, answer.text[:1000]
    return [each["verdict"] or each["error"] for each in answer.json()["results"]]


def test_integers_of_ten_thousand_digits(service: Service) -> None:
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("def f(): return 10**10_000 - 1", calls(([], LONG)), "passed"),
        ("def f(): return 10**10_000", calls(([], LONG)), "failed"),
        ("def f(): return '9' * 10_000", calls(([], LONG)), "failed"),
        ("def f(): return 10**10_000", calls(([], LONG), reveal=True), "failed"),
        ("def f(n): return n % 1000", calls(([LONG], 999)), "passed"),
        ("def f(n): return [-n, {'a': n}]", calls(([LONG], [-LONG, {"a": LONG}])), "passed"),
        ("def f(n): return -n", calls(([LONG], -LONG), equality="python"), "passed"),
        ("def f(n): return n + 0.5", calls(([1], LONG), tolerance=1e-6), "failed"),
        ("def f(n): return n", calls(([LONG], 7**20_000), tolerance=1e-6), "failed"),
        ("def f(n): return 1 / 0", calls(([LONG], 0)), "runtime_error"),
    ]
    items = [{"completion": source, "grader": grader} for source, grader, _ in rows]
    assert rewards(service, *items) == [verdict for *_, verdict in rows]
    assert rewards(service, *items * 20) == [verdict for *_, verdict in rows * 20]  # a long body


def test_an_integer_with_too_many_digits_is_refused(service: Service) -> None:
    grader = json.dumps(calls(([], 0))).replace('"expected": 0', f'"expected": {"9" * 100_001}')
    for padding in ("", " " * 600_000):
        with service.client() as client:
            answer = client.post(
                "/reward",
                content=f'{{"submissions": [{{"completion": "x", "grader": {grader}}}]{padding}}}',
                headers={"Content-Type": "application/json"},
            )
        assert answer.status_code == 422
        assert "100,000 digits" in answer.text


def test_arguments_and_values_of_megabytes(service: Service) -> None:
    numbers = list(range(1_000_000, 1_800_000))
    text = "x" * 8_000_000
    rows = list(range(10))
    table = [rows] * 15_000
    items = [
        {"completion": "def f(a): return sum(a)", "grader": calls(([numbers], sum(numbers)))},
        {"completion": "def f(a): return len(a)", "grader": calls(([text], len(text)))},
        {"completion": "def f(a): return a[::9]", "grader": calls(([numbers], numbers[::9]))},
        {"completion": "def f(a): return a", "grader": calls(([table], table))},
        {"completion": "def f(a): return a[1::9]", "grader": calls(([numbers], numbers[::9]))},
    ]
    found = []
    for item in items:
        found += [each["verdict"] for each in judge(service, item, limits={"memory_mb": 2048})]
    assert found == ["passed"] * 4 + ["failed"]


def test_many_small_parts_fill_a_body(service: Service) -> None:
    ones = [1] * 4_500_000
    grader = calls(([ones], 4_500_000))
    item = {"completion": "def f(a): return sum(a)", "grader": grader}
    (result,) = ask(service, item, limits={"memory_mb": 4096})
    assert result["verdict"] == "passed", result
