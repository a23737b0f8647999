"""Long test code: its analysis comes from another process, takes work in line with the text, and can end."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from proctor_client.wire import AssertsGrader
from proctor_service.errors import InvalidTask
from proctor_service.judge.analysis import process
from proctor_service.judge.analysis.levels import (
    Analysis,
    analyse,
    level_of,
    sources_of,
    with_plan,
)
from proctor_service.judge.analysis.suite import parse_suite
from proctor_service.settings.interpreter import interpreter_environment

CLOSE = "def close(a, b):\n    return abs(a - b) < 1e-6\n"
CONDITIONS = [
    "assert f(1) == [1, 'a', {2: (3.5, None)}, {4}]",
    "assert f(1) != float('inf')",
    "assert None is f(1)",
    "assert not f(1)",
    "assert f(1) and f(2) > 3 >= f(4)",
    "assert f(1) or not f'' or -f(2) == 1",
    "assert abs(f(2) - 4.1) < 1e-6",
    "assert f(1)[0]['a'] in [1, 2] and 3 not in f(2)",
    "assert isinstance(f(1), (int, str))",
    "assert sorted(f(1), reverse=True) == [3, 2] and set(f(2)) == frozenset([1])",
    "import math\nassert math.isclose(f(1), math.pi) and 'a' + str(f(1)) == 'a1'",
    CLOSE + "assert close(f(1), 2.0) and close(b=1, a=2)",
    CLOSE + "assert close(f(1), 2.0)",
    "x = [1]\nassert f(x) == 1",
    "r = f(1)\nassert r == 1 and len(r) == r",
    "def check(candidate):\n    assert candidate(1) == 2",
    "assert Solution(1).f(2) == 3",
    "s = Solution().f\nassert s(1) == 2",
    "for i in range(3):\n    assert f(i) == i",
    "s = Stack()\ns.push(1)\nassert s.pop() == 1",
    "with open('x') as file:\n    assert f(file) == 1",
]


def grader(*tests: str, **fields: Any) -> AssertsGrader:
    return AssertsGrader(kind="asserts", tests=list(tests), **fields)


@pytest.mark.parametrize("test", CONDITIONS)
def test_an_analysis_is_equal_after_its_journey(test: str) -> None:
    found = analyse(grader(test, entry_point="f" if "candidate" in test else None))
    assert pickle.loads(pickle.dumps(found)) == found


SHAPES: dict[str, Callable[[int], str]] = {
    "asserts": lambda n: rows("assert f({i}) == {i}", n // 16),
    "asserts in one line": lambda n: "; ".join(["assert f(1) == 1"] * (n // 18)),
    "formulas": lambda n: rows("assert abs(f({i}) - 1.5) < 1e-6", n // 32),
    "a list": lambda n: "assert f([" + "1, " * (n // 3) + "]) == 1",
    "an expected list": lambda n: "assert f(1) == [" + "x, [1], " * (n // 8) + "]",
    "a dictionary": lambda n: "assert f({" + pairs("{i}: 1, ", n // 8) + "}) == 1",
    "a string": lambda n: "assert f('" + "x" * n + "') == 1",
    "f-strings": lambda n: rows("assert f(f'{{x}}') == 1", n // 22),
    "an or": lambda n: "assert " + " or ".join(["f(1) == 1"] * (n // 13)),
    "a comparison": lambda n: "assert F(1)" + " == F(1)" * (n // 8),
    "nested lists": lambda n: rows("assert f(" + "[" * 90 + "]" * 90 + ") == 1", n // 195),
    "nested calls": lambda n: rows("assert " + "abs(" * 50 + "f(1)" + ")" * 50 + " == 1", n // 270),
    "names": lambda n: rows("x{i} = f({i})\nassert x{i} == 1", n // 32),
    "names of the submission": lambda n: rows("assert g{i}(1) == 1", n // 22),
    "functions": lambda n: rows("def g{i}(x): return x", n // 24) + "assert f(1)",
    "helpers that call helpers": lambda n: (
        "def g0(x): return x\n"
        + rows("def g{next}(x): return g{i}(x)", n // 35)
        + f"assert g{n // 35}(f(1)) == 1"
    ),
    "calls of a helper": lambda n: CLOSE + rows("assert close(f({i}), 1.5)", n // 28),
    "a helper with a changed name": lambda n: (
        "def near(a): return a < t\n" + rows("t = {i}\nassert near(f(1))", n // 30)
    ),
    "containers": lambda n: rows("a{i} = [1]\nassert f(a{i}) == 1", n // 32),
    "containers in one call": lambda n: (
        rows("a{i} = []", n // 16) + "assert f(" + pairs("a{i}, ", n // 16) + ")"
    ),
    "star expressions": lambda n: "assert f(" + "*[1, 2], " * (n // 9) + ")",
    "keywords": lambda n: "assert f(" + pairs("a{i}=1, ", n // 10) + ")",
    "calls over many lines": lambda n: "assert f([\n" + "  1,\n" * (n // 5) + "]) == 1",
    "classes": lambda n: "class T0: pass\n" + rows("class T{next}(T{i}): pass", n // 24),
    "lambdas": lambda n: rows("g{i} = lambda x: x + y", n // 24),
    "comprehensions": lambda n: rows("x = [y for y in z if y]", n // 24),
    "imports": lambda n: rows("from math import sqrt as s{i}", n // 30) + "assert f(1)",
}


def rows(row: str, count: int) -> str:
    return "".join(row.format(i=i, next=i + 1) + "\n" for i in range(count))


def pairs(pair: str, count: int) -> str:
    return "".join(pair.format(i=i) for i in range(count))


def work_of(text: str) -> int:
    """How many calls of functions, built-in ones included, the analysis of a text takes."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    tests = grader(text)
    try:
        suite = parse_suite(tests)
        with_plan(level_of(tests, suite), suite)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_text_is_twice_the_work(shape: str) -> None:
    small, large = map(SHAPES[shape], (6_000, 12_000))
    assert work_of(large) < 2.5 * work_of(small)


def test_a_suite_of_many_calls_has_a_plan() -> None:
    found = analyse(grader(rows("assert f({i}) == {i}", 6_000)))
    assert found.plan is not None
    assert len(found.plan.calls) == 6_000


def heard(of: AssertsGrader, parts: int) -> Analysis:
    """What the service makes of the first parts of a process's answer, and half of the next."""
    answer = io.BytesIO()
    pickler = pickle.Pickler(answer)
    ends = [0]
    suite = parse_suite(of)
    level = level_of(of, suite)
    for part in (sources_of(suite), level, with_plan(level, suite)):
        pickler.dump(part)
        ends.append(answer.tell())
    cut = ends[parts] + 5
    return process.analysis_in(of, answer.getvalue()[:cut])


def test_an_answer_that_was_cut_off_says_all_that_is_needed_to_run_the_tests() -> None:
    tests = grader("def check(candidate):\n    assert candidate(1) == 2", entry_point="f")
    whole = heard(tests, 3)
    assert whole == analyse(tests)
    unplanned = heard(tests, 2)
    assert (unplanned.level, unplanned.plan, unplanned.names) == ("separated", None, whole.names)
    ended = heard(tests, 1)
    assert (ended.level, ended.tests, ended.plan) == ("in_process", whole.tests, None)
    assert ended.tests[0].run == (("check", "check", "f"),)
    with pytest.raises(InvalidTask):
        heard(tests, 0)
    with pytest.raises(InvalidTask, match="must share the submission's process"):
        heard(tests.model_copy(update={"integrity": "separated"}), 1)


@pytest.mark.slow
def test_a_process_finds_what_a_thread_finds() -> None:
    for tests in (grader(*CONDITIONS[:-3]), grader(*CONDITIONS)):
        assert process.analyse_apart(tests) == analyse(tests)
    with pytest.raises(InvalidTask, match=r"tests\.1 is not Python"):
        process.analyse_apart(grader("assert f(1)", "assert ("))


@pytest.mark.slow
def test_an_analysis_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CPU_SECONDS", 0.0)
    tests = grader(rows("assert f({i}) == {i}", 3_000))
    found = process.analyse_apart(tests)
    assert (found.level, found.tests) == ("in_process", sources_of(parse_suite(tests)))
    assert "too much time" in found.reason
    with pytest.raises(InvalidTask, match="too much time"):
        process.analyse_apart(tests.model_copy(update={"integrity": "separated"}))


def test_the_process_has_no_variable_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_TOKENS", "secret")
    names = interpreter_environment()
    assert "secret" not in names.values()
    assert set(names) <= {"PYTHONPATH", "LD_LIBRARY_PATH"}
