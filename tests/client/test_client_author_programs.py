"""Columns with programs of a task's author, and the forms of rows that need a checker or a verifier."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from proctor_client import wire
from proctor_client.tasks.forms import MAKERS, form_of, task_from_row
from proctor_client.tasks.supplies import Supplies, lacks_testlib
from proctor_client.tasks.task import BadTask, MissingColumns, Row, Task, submission_of

CASES = [{"stdin": "3"}, {"stdin": "5"}]
CHECKER = {"source": "print(1)", "convention": "open_r1", "language": None, "limits": None}
SET_CHECKER = {"source": "print(1)", "convention": "open_r1"}
VERIFY = "def verify(completion, params):\n    return params['x'] is None\n"
IN_CPP = '#include "testlib.h"\nint main() {}\n'
PLUS: dict[str, Any] = {
    "id": "1_B",
    "checker": IN_CPP,
    "correct_submissions": [
        {"code": "int main() {}", "language": "cpp"},
        {"code": "print(1)", "language": "py3"},
    ],
    "test_cases": [{"input": "1", "output": "1"}],
    "time_limit": 1500,
    "memory_limit": 256,
    "true_positive_rate": 0.97,
    "true_negative_rate": None,
}
CODEFORCES: dict[str, Any] = {
    "id": "1/A",
    "official_tests": [{"input": "1\r\n2\r\n", "output": "YES\r\n"}],
    "generated_tests": 7,
}
HARDTESTS: dict[str, Any] = {
    "pid": "p",
    "test_cases_kit": {"output_judging_function": None},
    "test_cases": json.dumps([{"input": "1", "output": "1"}]),
}


def submitted(task: Task) -> wire.Submission:
    """A submission of the task: its fields are valid."""
    return submission_of(task, "x")


def grader_of(row: Row) -> dict[str, Any]:
    """The grader of a row."""
    task = task_from_row(row)
    submitted(task)
    return dict(task.grader or {})


def stdio(row: Row) -> wire.StdioGrader:
    """The grader of a row, as the service reads it."""
    grader = submitted(task_from_row(row)).grader
    assert isinstance(grader, wire.StdioGrader)
    return grader


@pytest.mark.parametrize(
    ("row", "changed"),
    [
        ({"tests": CASES, "checker": CHECKER}, {"cases": CASES, "checker": SET_CHECKER}),
        ({"tests": CASES, "interactor": {"source": "x"}}, {"interactor": {"source": "x"}}),
        ({"test_cases": CASES, "checker": json.dumps(CHECKER)}, {"checker": CHECKER}),
        ({"inputs": ["3"], "outputs": ["1 2"], "checker": "one_of"}, {"checker": "one_of"}),
        ({"ground_truth": {"test_cases": CASES, "checker": SET_CHECKER}}, {"cases": CASES}),
        ({"label": {"tests": CASES, "checker": SET_CHECKER}}, {"checker": SET_CHECKER}),
        (
            {"input_output": {"inputs": ["3"], "outputs": ["1"]}, "checker": "unordered_lines"},
            {"checker": "unordered_lines", "compare": "trimmed"},
        ),
    ],
)
def test_a_checker_or_an_interactor_may_be_a_column(row: Row, changed: dict[str, Any]) -> None:
    grader = grader_of(row)
    expected = {
        name: {k: v for k, v in each.items() if v is not None} if isinstance(each, dict) else each
        for name, each in changed.items()
    }
    assert {name: grader[name] for name in changed} == expected


@pytest.mark.parametrize(
    ("row", "grader"),
    [
        ({"verifier": "math", "params": {"answer": "2"}}, {"name": "math", "params": {"answer": "2"}}),
        ({"verifier": VERIFY, "params": '{"x": null}'}, {"source": VERIFY, "params": {"x": None}}),
        ({"verifier": {"name": "math", "source": None, "max": 2.0}}, {"name": "math", "max": 2.0}),
        (
            {"verifier": {"source": VERIFY, "params": {"x": [None]}}, "tests": ["assert f()"]},
            {"source": VERIFY, "params": {"x": [None]}},
        ),
        (
            {"ground_truth": {"verifier": "math", "params": {"answer": None}}},
            {"name": "math", "params": {"answer": None}},
        ),
        (
            {"grader": {"kind": "verifier", "name": "math", "params": {"answer": None}, "min": None}},
            {"name": "math", "params": {"answer": None}},
        ),
        (
            {"label": {"grader": {"kind": "verifier", "name": "a", "params": {"b": [None, {"c": None}]}}}},
            {"name": "a", "params": {"b": [None, {"c": None}]}},
        ),
    ],
)  # fmt: skip
def test_a_verifier_and_its_parameters_may_be_columns(row: Row, grader: dict[str, Any]) -> None:
    assert grader_of(row) == {"kind": "verifier", **grader}


def test_a_row_of_a_verifier_has_the_fields_of_a_submission() -> None:
    row = {"verifier": "math", "prompt": "1 + 1?", "environment": "maths", "language": "cpp"}
    assert task_from_row(row).fields == {
        "grader": {"kind": "verifier", "name": "math"},
        "prompt": "1 + 1?",
        "environment": "maths",
        "language": "cpp",
    }
    assert form_of(row) == "columns"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"tests": CASES, "cheker": CHECKER}, "cheker: did you mean checker?"),
        ({"tests": CASES, "intractor": CHECKER}, "did you mean interactor?"),
        ({"tests": ["assert f()"], "verifer": "math"}, "did you mean verifier?"),
        ({"verifier": "math", "param": {}}, "param: did you mean params?"),
        ({"ground_truth": {"inputs": ["1"], "outputs": ["1"], "checkers": "one_of"}}, "checker?"),
        ({"tests": ["assert f()"], "checker": "one_of"}, "checker: only for tests with stdin"),
        ({"tests": CASES, "checker": "import sys\nprint(1)"}, "checker: an object"),
        ({"tests": CASES, "interactor": "one_of"}, "interactor: an object"),
        ({"tests": CASES, "checker": "one_of"}, "a test without stdout or output"),
        ({"verifier": 3}, "verifier: neither"),
        ({"verifier": "math", "params": [1]}, "params: no object"),
        ({"verifier": {"name": "math", "params": {}}, "params": {}}, "also in verifier"),
        ({"verifier": "math", "grader": {"kind": "exec"}}, "a row has one of them"),
    ],
)
def test_a_mistake_in_such_a_column_is_told(row: Row, said: str) -> None:
    with pytest.raises(BadTask, match=said.replace("?", r"\?")):
        task_from_row(row)


def test_columns_of_other_data_sets_are_no_typos() -> None:
    row = {"tests": ["assert f()"], "verified": True, "checked": "by hand", "param": 3}
    assert grader_of(row)["kind"] == "asserts"


# ---------------------------------------------------------------- rows with checkers


def test_codeforces_with_a_checker_of_its_own() -> None:
    row = {**CODEFORCES, "generated_checker": "print(1)", "input_mode": "file"}
    grader = stdio(row)
    assert isinstance(grader.checker, wire.Checker)
    assert grader.checker.files == {"checker.py": "print(1)"}
    [case] = grader.cases if isinstance(grader.cases, list) else []
    assert case.stdin == case.files["input.txt"] == "1\n2\n"
    assert (case.stdout, case.output_file) == ("YES\n", "output.txt")


@pytest.mark.parametrize(
    ("output", "ignore_case"),
    [("YES\r\n", True), ("yes 3\nNo", True), ("YES\nab", False), ("3 4", False), ("", False)],
)
def test_codeforces_takes_yes_and_no_in_any_case(output: str, ignore_case: bool) -> None:
    row = {**CODEFORCES, "official_tests": [{"input": "1", "output": output}]}
    assert stdio(row).ignore_case is ignore_case


def test_codeforces_with_generated_tests_in_the_row() -> None:
    generated = [{"input": "3", "output": "NO", "problem_id": "1/A", "test_i": 0}]
    row = {**CODEFORCES, "official_tests_complete": False, "generated_tests": generated}
    grader = stdio(row)
    assert isinstance(grader.cases, list)
    assert [case.stdout for case in grader.cases] == ["YES\n", "NO"]


def test_codecontests_plus() -> None:
    assert form_of(PLUS) == "codecontestsplus"
    task = MAKERS["codecontestsplus"](PLUS, "data:1")
    assert (task.id, task.reference) == ("1_B", "print(1)")
    assert task.limits == {"cpu_seconds": 1.5, "memory_mb": 256}
    checker = (task.grader or {})["checker"]
    assert checker == {"language": "cpp", "source": IN_CPP, "convention": "testlib"}
    in_cpp = MAKERS["codecontestsplus"]({**PLUS, "language": "cpp"}, "data:1")
    assert (in_cpp.language, in_cpp.reference) == ("cpp", None)


def test_hardtests() -> None:
    assert form_of(HARDTESTS) == "hardtests"
    task = MAKERS["hardtests"](HARDTESTS, "data:1")
    assert (task.id, task.limits) == ("p", {"cpu_seconds": 5.0})
    assert stdio(HARDTESTS).checker is None
    joined = {**HARDTESTS, "question_content": "Say 1.", "time_limit": "1500 ms"}
    joined |= {"memory_limit": "64 MB", "solutions": [{"code": "print(1)", "language": "python3"}]}
    task = MAKERS["hardtests"](joined, "data:1")
    assert (task.text, task.reference) == ("Say 1.", "print(1)")
    assert task.limits == {"cpu_seconds": 1.5, "memory_mb": 64}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**PLUS, "true_positive_rate": 0.5}, "true_positive_rate: 0.50, below 0.9"),
        ({**PLUS, "true_negative_rate": 0.0}, "true_negative_rate: 0.00, below 0.9"),
        ({**PLUS, "test_cases": None}, "test_cases: no tests"),
        ({**HARDTESTS, "test_cases": "[]"}, "test_cases: no tests"),
        ({**HARDTESTS, "test_cases": pickle.dumps(Path).hex()}, "not in LiveCodeBench's form"),
        ({**CODEFORCES, "official_tests_complete": False}, "cut off"),
    ],
)
def test_rows_that_cannot_be_judged(row: Row, said: str) -> None:
    with pytest.raises(BadTask, match=said):
        task_from_row(row)


def test_outputs_of_one_input_are_all_right_in_codecontests() -> None:
    row = {
        "name": "1_A",
        "public_tests": {"input": ["1", "2"], "output": ["1 2", "4"]},
        "private_tests": {"input": ["1", "2"], "output": ["2 1", "4"]},
        "generated_tests": {"input": [], "output": []},
    }
    cases = grader_of(row)["cases"]
    assert cases == [{"stdin": "1", "stdout": ["1 2", "2 1"]}, {"stdin": "2", "stdout": "4"}]


def test_problems_of_ioi_say_why_they_are_not_judged() -> None:
    row = {"id": "nile", "grader_files": [["grader.cpp", ""]], "test_names": ["1"], "score": 5}
    with pytest.raises(MissingColumns, match="compiled together"):
        task_from_row(row)


# ---------------------------------------------------------------- files that rows lack


def test_testlib_is_given_to_programs_that_include_it() -> None:
    supplies = Supplies(testlib="// testlib")
    for row, files in (
        (PLUS, {"testlib.h": "// testlib"}),
        ({**PLUS, "checker": "int main() {}"}, None),
        (
            {"tests": CASES, "checker": {"source": IN_CPP, "language": "cpp", "files": {"a.h": ""}}},
            {"a.h": "", "testlib.h": "// testlib"},
        ),
        (
            {"tests": CASES, "checker": {"source": IN_CPP, "files": {"testlib.h": "own"}}},
            {"testlib.h": "own"},
        ),
    ):  # fmt: skip
        task = supplies.task_from_row(row)
        assert ((task.grader or {})["checker"].get("files")) == files
        assert not lacks_testlib(task)
        submitted(task)
    generated = {
        "kind": "stdio",
        "cases": {"generator": {"source": IN_CPP}, "seeds": [1], "reference": {"source": "x"}},
    }
    task = supplies.task_from_row({"grader": generated})
    cases = (task.grader or {})["cases"]
    assert cases["generator"]["files"] == {"testlib.h": "// testlib"}
    assert "files" not in cases["reference"]
    copy = pickle.loads(pickle.dumps(supplies))
    assert copy.task_from_row(PLUS) == supplies.task_from_row(PLUS)
