"""The `calls` grader over HTTP: what counts as the expected value, and what does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from harness import Service, running_service
from judging import JSON, calls, check_rows, one, verdicts
from visible_folder import visible_python

from proctor_service.settings import Settings


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A real service; the interpreter of the tests has numpy, which a system's own may lack."""
    with (
        visible_python() as python,
        running_service(Settings(sandbox_python=python), judge=None) as running,
    ):
        yield running


@pytest.mark.smoke
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


COMPARED: list[tuple[str, Any, str]] = [
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
]


def test_calls_compares_as_json(service: Service) -> None:
    rows = [(f"def f(): return {each}", calls(([], value)), end) for each, value, end in COMPARED]
    check_rows(service, rows)


def test_names_are_normalised_as_python_does(service: Service) -> None:
    for defined in ("\ufb01b", "fib", "\U0001d41fib"):
        for asked in ("\ufb01b", "fib", "\U0001d41fib"):
            source = f"def {defined}(n):\n    return 2 * n"
            assert one(service, source, calls(([2], 4), name=asked))["verdict"] == "passed"
            tests = [f"assert {asked}(2) == 4"]
            assert one(service, source, {"kind": "asserts", "tests": tests})["verdict"] == "passed"


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


ARRAYS: list[tuple[str, Any, float, str]] = [
    ("numpy.array([1, 2, 3])", [1, 2, 3], 0, "passed"),
    ("numpy.array([1, 2, 3])", [1, 2, 4], 0, "failed"),
    ("numpy.array([[1, 2], [3, 4]])", [[1, 2], [3, 4]], 0, "passed"),
    ("numpy.array([[1, 2], [3, 4]]).T", [[1, 3], [2, 4]], 0, "passed"),
    ("numpy.array([[1, 2], [3, 4]])", [1, 2, 3, 4], 0, "failed"),
    ("numpy.array([0.1 + 0.2])", [0.3], 1e-9, "passed"),
    ("numpy.array([0.1 + 0.2])", [0.3], 0, "failed"),
    ("numpy.float64(1.5)", 1.5, 0, "passed"),
    ("numpy.int32(2)", 2, 0, "passed"),
    ("[numpy.array([1]), (numpy.int64(2),)]", [[1], [2]], 0, "passed"),
    ("numpy.array([[1], [2, 3]], dtype=object)", [[1], [2, 3]], 0, "passed"),
    ("numpy.zeros((2, 0))", [[], []], 0, "passed"),
    ("{'a': numpy.arange(3)}", {"a": [0, 1, 2]}, 0, "passed"),
    ("numpy.arange(100_000)", list(range(100_000)), 0, "passed"),
    ("type('A', (numpy.ndarray,), {'__eq__': lambda *a: True})((2,))", [1, 2], 0, "failed"),
]


def test_arrays_answer_for_lists(service: Service) -> None:
    check_rows(
        service,
        [
            (f"import numpy\ndef f(): return {each}", calls(([], value), tolerance=apart), end)
            for each, value, apart, end in ARRAYS
        ],
    )


def test_an_array_of_the_standard_library_answers_for_a_list(service: Service) -> None:
    source = "import array\ndef f(): return array.array('d', [0.5, 1])"
    assert verdicts(service, calls(([], [0.5, 1])), source) == ["passed"]


def test_keys_that_json_writes_alike_are_no_answer(service: Service) -> None:
    alike = ("{1: 'b', '1': 'a'}", "{'1': 'a', 1: 'b'}", "{1: 'a', '1': 'a'}")
    grader = calls(([], {"1": "a"}))
    check_rows(service, [(f"def f(): return {each}", grader, "failed") for each in alike])


SHARED = "y = []\n    for _ in range(23): y = [y, y]\n    return "
HUGE = {
    "shared parts": SHARED + "y",
    "shared parts in tuples": SHARED.replace("[y, y]", "(y, y)") + "y",
    "shared parts in a dict": SHARED + "{'a': y}",
    "shared parts as keys": SHARED.replace("23", "15")
    .replace("[]", "()")
    .replace("[y, y]", "(y, y)")
    + "{(y, i): 0 for i in range(50)}",
    "a large array": "import numpy; return numpy.zeros(2_000_000)",
    "many numbers": "return list(range(400_000))",
    "a long text": "return 'y' * (8 << 20)",
    "a large integer": "return 1 << 30_000_000",
}


@pytest.mark.parametrize("name", HUGE)
def test_a_huge_answer_is_wrong_and_others_are_served(service: Service, name: str) -> None:
    source = f"def f():\n    {HUGE[name]}"
    limits = {"cpu_seconds": 10}
    wanted: tuple[Any, ...] = ([], 5, [[[]], [[]]], {"a": []})
    for expected in wanted:
        result = one(service, source, calls(([], expected)), limits=limits)
        assert result["reward"] == 0.0, result
        with service.client() as client:
            assert client.get("/healthz").status_code == 200


def test_parts_that_are_shared_answer_for_parts_that_are_not(service: Service) -> None:
    source = "def f():\n    row = [0] * 300\n    return [row] * 300"
    assert verdicts(service, calls(([], [[0] * 300] * 300)), source) == ["passed"]
    wrong = [[0] * 300] * 299 + [[0] * 299 + [1]]
    assert verdicts(service, calls(([], wrong)), source) == ["failed"]
