"""The `calls` grader over HTTP: what counts as the expected value, and what does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness import Service, running_service
from judging import JSON, calls, one, verdicts
from proctor_service.settings import Settings


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running_service(Settings(), judge=None) as running:
        yield running


def test_calls_verdicts(service: Service) -> None:
    found = {
        "def f(x): return x * 2": "passed",
        "def f(x): return x": "failed",
        "def f(x): assert False": "failed",
        "def f(x): return {}[x]": "runtime_error",
        "def g(x): return x": "runtime_error",
        "f = 3": "runtime_error",
        "raise ValueError": "runtime_error",
        "def f(x) return": "syntax_error",
        "": "no_code",
        "import sys\ndef f(x): sys.exit(0)": "early_exit",
        "import os\ndef f(x): os._exit(0)": "early_exit",
        "import os\nos._exit(0)": "early_exit",
        "import sys\ndef f(x): return x * 2\nif __name__ == '__main__':\n    sys.exit()": "passed",
        "def f(x):\n    while True: pass": "timeout",
        "def f(x): return [0] * (1 << 28)": "memory_limit",
        "import os\ndef f(x):\n    while True: os.write(1, b'x' * 65536)": "output_limit",
        "def f(x): return f(x)": "runtime_error",
    }
    limits = {"cpu_seconds": 1, "memory_mb": 128}
    grader = calls(([1], 2), ([2], 4))
    assert verdicts(service, grader, *found, limits=limits) == list(found.values())


@pytest.mark.parametrize(
    ("source", "expected", "verdict"),
    [
        ("(1, 2)", [1, 2], "passed"),
        ("[(1, (2,)), [3]]", [[1, [2]], [3]], "passed"),
        ("{1: 'a', None: 'b', True: 'c'}", {"true": "c", "null": "b"}, "failed"),
        ("{2: 'a', None: 'b'}", {"2": "a", "null": "b"}, "passed"),
        ("{1, 2}", [1, 2], "failed"),
        ("float('nan')", None, "failed"),
        ("float('inf')", 1e308, "failed"),
        ("None", None, "passed"),
        ("object()", None, "failed"),
        ("lambda: 0", 0, "failed"),
        ("type('T', (), {'__eq__': lambda *a: True})()", 5, "failed"),
        ("type('I', (int,), {'__eq__': lambda *a: True})(4)", 5, "failed"),
        ("0.1 + 0.2", 0.3, "failed"),
        ("10 ** 6000", 5, "failed"),
        ("'a\\0b'", "a\0b", "passed"),
        ("'\\ud800'", "\ud800", "passed"),
        ("1.0", 1, "passed"),
        ("1", True, "passed"),
        ("b'a'", "a", "failed"),
        ("[[]] * 3", [[], [], []], "passed"),
        ("(lambda a: a.append(a) or a)([])", [[]], "failed"),
    ],
)
def test_calls_compares_as_json(service: Service, source: str, expected: Any, verdict: str) -> None:
    assert verdicts(service, calls(([], expected)), f"def f(): return {source}") == [verdict]


def test_calls_takes_large_integers(service: Service) -> None:
    body = {
        "submissions": [{"completion": "def f(): return 10 ** 6000 + 1"}],
        "extract": "none",
        "cache": False,
    }
    case = f'{{"args":[],"expected":1{"0" * 5999}1}}'
    grader = f'{{"kind":"calls","entry_point":"f","cases":[{case}]}}'
    text = json.dumps(body)[:-1] + f',"grader":{grader}}}'
    with service.client() as client:
        answer = client.post("/reward", content=text, headers=JSON)
    # Python reads no integer of that many digits unless it is told to; a refusal must say so.
    assert answer.status_code in (200, 422), answer.text
    if answer.status_code == 200:
        assert answer.json()["results"][0]["verdict"] == "passed", answer.text


def test_calls_passes_keywords_and_tolerates(service: Service) -> None:
    grader = {
        "kind": "calls",
        "entry_point": "f",
        "cases": [{"args": [1], "kwargs": {"by": 3}, "expected": 0.3333333}],
        "tolerance": 1e-6,
    }
    found = [
        "def f(a, *, by): return a / by",
        "def f(a, by): return (a / by,)",
        "def f(a): return 1",
    ]
    assert verdicts(service, grader, *found) == ["passed", "failed", "runtime_error"]


def test_calls_reveals_only_what_it_may(service: Service) -> None:
    hidden = one(service, "def f(x): return 12", calls(([3], 987654)))
    assert "987654" not in json.dumps(hidden)
    assert hidden["message"] == "f(3) returned 12"
    shown = one(service, "def f(x): return 12", calls(([3], 987654), reveal=True))
    assert "987654" in shown["message"]
    assert "987654" in shown["tests"]["failures"][0]["message"]


def test_numbers_of_more_digits_than_python_writes(service: Service) -> None:
    big = hex(1 << 20_000)
    grader = {"kind": "asserts", "tests": [f"assert f({big}) == {big}"], "reveal": True}
    result = one(service, "def f(n):\n    return n + 1", grader)
    assert (result["verdict"], result["reward"]) == ("failed", 0.0)
    result = one(service, "def f(n):\n    return n", grader)
    assert (result["verdict"], result["reward"]) == ("passed", 1.0)
