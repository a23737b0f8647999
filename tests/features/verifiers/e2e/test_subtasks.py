"""Points of subtasks: the rewards of the scoring `points`, beside those of `all` and `fraction`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness import Service
from judging import calls, judge, stdio

SCORE = {"source": "import sys\nprint(open(sys.argv[3]).read())", "convention": "open_r1"}
"""A checker that says the score which the submission prints."""
HANGS, CRASHES = "while True: pass", "1 / 0"


def subtask(points: float, *cases: int, requires: tuple[int, ...] = ()) -> dict[str, Any]:
    return {"points": points, "cases": list(cases), "requires": list(requires)}


TWO = (subtask(30, 0, 1), subtask(70, 2, 3))
CHAIN = (subtask(10, 0), subtask(20, 1, requires=(0,)), subtask(70, 2, requires=(1,)))
LATER = (subtask(1, 2), subtask(3, 0, 1, requires=(0,)))
BOTH = (subtask(25, 0), subtask(75, 0, 1))


@dataclass(frozen=True)
class Row:
    """What the program does in each case (a score, or a statement), and what that is worth.

    `passed`: cases that have passed; those that can earn nothing any more do not run.
    """

    acts: tuple[float | str, ...]
    reward: float
    passed: int
    subtasks: tuple[dict[str, Any], ...] = ()
    verdict: str = "failed"


ROWS = [
    Row((1, 1, 1, 1), 1.0, 4, verdict="passed"),
    Row((1, 1, 0, 0.5), 2.5 / 4, 2),
    Row((0, 0, 0), 0.0, 0),
    Row((1, 1, 1, 1), 1.0, 4, TWO, "passed"),
    Row((0, 1, 1, 1), 0.7, 2, TWO),
    Row((1, 1, 1, 0), 0.3, 3, TWO),
    Row((1, 0.5, 1, 1), 0.85, 3, TWO),
    Row((0.5, 0.25, 0.5, 1), (30 * 0.25 + 70 * 0.5) / 100, 1, TWO),
    Row((1, 1, 1), 1.0, 3, CHAIN, "passed"),
    Row((1, 0, 1), 0.1, 1, CHAIN),
    Row((0, 1, 1), 0.0, 0, CHAIN),
    Row((0.5, 1, 1), 0.05, 0, CHAIN),
    Row((1, 0.5, 1), 0.2, 1, CHAIN),
    Row((1, 1, 0), 0.0, 2, LATER),
    Row((1, 0, 1), 0.25, 2, LATER),
    Row((1, 1, 0.5), 0.125, 2, LATER),
    Row((1, 0), 0.25, 1, BOTH),
    Row((0, 1), 0.0, 0, BOTH),
    Row((1, 0, 0), 1.0, 1, (subtask(5, 0, 0),), "passed"),
    Row((1, HANGS, 1), 2 / 3, 2, verdict="timeout"),
    Row((1, CRASHES, 1), 2 / 3, 2, verdict="runtime_error"),
    Row((1, HANGS, 1, 1), 0.7, 3, TWO, "timeout"),
    Row((1, 1, 1), 1.0, 3, (subtask(0.1, 0), subtask(0.2, 1), subtask(0.7, 2)), "passed"),
    Row((1, 0), 1 - 2**-53, 1, (subtask(1e12, 0), subtask(1e-9, 1))),
    Row((1, 1 - 2**-53), 1 - 2**-53, 1, (subtask(1, 0), subtask(1, 1))),
]


def grader_of(row: Row) -> dict[str, Any]:
    cases = [{"stdin": str(place), "stdout": "1"} for place in range(len(row.acts))]
    return {"kind": "stdio", "cases": cases, "checker": SCORE, "subtasks": list(row.subtasks)}


def program_of(row: Row) -> str:
    acts = [each if isinstance(each, str) else f"print({each!r})" for each in row.acts]
    return f"exec({acts!r}[int(input())])"


def test_points_of_subtasks(service: Service) -> None:
    items = [{"completion": program_of(row), "grader": grader_of(row)} for row in ROWS]
    limits = {"cpu_seconds": 1, "wall_seconds": 20}
    for row, result in zip(
        ROWS, judge(service, *items, scoring="points", limits=limits), strict=True
    ):
        assert result["reward"] == pytest.approx(row.reward, abs=1e-15), (row, result)
        assert (result["reward"] == 1) == (row.reward == 1) == (result["verdict"] == "passed"), row
        assert result["verdict"] == row.verdict, (row, result)
        assert result["tests"]["passed"] == row.passed, (row, result)
        assert result["tests"]["total"] == len(row.acts), (row, result)


def test_other_scorings_of_the_same_task(service: Service) -> None:
    row = Row((1, 0.5, 1, 1), 0.85, 3, TWO)
    programs = [program_of(row), "print(1)", "print(0)", "def f(:"]
    expected = {
        "all": [0.0, 1.0, 0.0, 0.0],
        "fraction": [0.75, 1.0, 0.0, 0.0],
        "points": [0.85, 1.0, 0.0, 0.0],
    }
    items = [
        {"completion": program, "grader": grader_of(row), "scoring": scoring}
        for scoring in expected
        for program in programs
    ]
    results = judge(service, *items)
    rewards = [result["reward"] for result in results]
    assert rewards == [reward for each in expected.values() for reward in each]
    assert results[3]["verdict"] == "syntax_error"
    assert results[3]["tests"]["total"] == 4


def test_points_of_compared_outputs_and_of_named_checkers(service: Service) -> None:
    cases = [("1", "a b"), ("2", "b a"), ("3", "c")]
    parts = [subtask(1, 0), subtask(2, 1), subtask(5, 2)]
    items = [
        {"completion": "print('a b')", "grader": stdio(*cases, subtasks=parts, **more)}
        for more in ({}, {"checker": "unordered_tokens"})
    ]
    results = judge(service, *items, scoring="points")
    assert [each["reward"] for each in results] == [1 / 8, 3 / 8]


def test_graders_without_points_score_them_as_a_fraction(service: Service) -> None:
    graders = [
        calls(([1], 1), ([2], 0), ([3], 3)),
        {"kind": "asserts", "tests": ["assert f(1) == 1", "assert f(2) == 0", "assert f(3) == 3"]},
        {"kind": "exec", "tests": "assert f(1) == 2"},
        {"kind": "exec", "tests": "assert f(1) == 1"},
    ]
    items = [
        {"completion": "def f(x): return x", "grader": each, "scoring": scoring}
        for scoring in ("fraction", "points")
        for each in graders
    ]
    rewards = [each["reward"] for each in judge(service, *items)]
    assert rewards == [2 / 3, 2 / 3, 0.0, 1.0] * 2


@dataclass(frozen=True)
class Refused:
    """Fields of a grader that is refused, and the beginning of the message."""

    message: str
    fields: dict[str, Any] = field(default_factory=dict)


REFUSED = [
    Refused("subtask 0 names a case", {"subtasks": [subtask(1, 3)]}),
    Refused("subtask 0 names a case", {"subtasks": [subtask(1, -1)]}),
    Refused("subtask 0 requires one", {"subtasks": [subtask(1, 0, requires=(0,))]}),
    Refused("subtask 1 requires one", {"subtasks": [subtask(1, 0), subtask(1, 1, requires=(2,))]}),
    Refused("Input should be greater than 0", {"subtasks": [subtask(0, 0)]}),
    Refused("Input should be less than or equal", {"subtasks": [subtask(1e300, 0)]}),
    Refused("List should have at least 1 item", {"subtasks": [subtask(1)]}),
    Refused("the subtasks name more than", {"subtasks": [subtask(1, *[0] * 4000)] * 5}),
    Refused("Input should be ", {"checker": "no_such_checker"}),
    Refused("Input should be ", {"checker": {"source": "0", "convention": "none"}}),
    Refused("no 'klingon' here", {"checker": {"source": "0", "language": "klingon"}}),
    Refused("'../a' leads out", {"checker": {"source": "0", "files": {"../a": ""}}}),
    Refused("longer than", {"checker": {"source": "0", "argv": ["\0"]}}),
    Refused("", {"checker": {"source": "0", "environment": "nowhere"}}),
    Refused("", {"checker": {"source": "0", "limits": {"memory_mb": 1e9}}}),
]


def test_what_no_task_has_is_refused(service: Service) -> None:
    with service.client() as client:
        for each in REFUSED:
            asked = {**stdio(("", "1"), ("", "1"), ("", "1")), **each.fields}
            body = {"submissions": [{"completion": "0"}], "grader": asked}
            answer = client.post("/reward", content=json.dumps(body))
            assert answer.status_code == 422, each
            message = answer.json()["error"]["message"]
            assert message.startswith("grader"), message
            assert each.message in message, (each, message)
