"""How a row of a data set says how a completion is judged, and problems from all their sources."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from shared_data import shared_data

from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import BadTask, DatasetError, MissingColumns, submission_of
from proctor_trainers.problems import TOYS, load_problems

TESTS = ["assert f(1) == 1", "assert f(2) == 2"]
ASSERTS = {"kind": "asserts", "tests": TESTS}


@pytest.mark.parametrize(
    ("row", "grader"),
    [
        ({"tests": TESTS}, ASSERTS),
        ({"test_list": tuple(TESTS), "code": "…", "tests": None}, ASSERTS),
        ({"tests": json.dumps(TESTS)}, ASSERTS),
        ({"tests": "[1, 2] == f()"}, {"kind": "asserts", "tests": ["[1, 2] == f()"]}),
        ({"tests": TESTS, "setup": "import math"}, {**ASSERTS, "setup": "import math"}),
        (
            {"test_list": TESTS, "test_imports": ["import re"], "test_setup_code": "x = 1"},
            {**ASSERTS, "setup": "import re\nx = 1"},
        ),
        ({"test_list": TESTS, "test_setup_code": "", "test_imports": None}, ASSERTS),
        (
            {"test": "def check(candidate): …", "entry_point": "f", "prompt": "…"},
            {"kind": "asserts", "tests": ["def check(candidate): …"], "entry_point": "f"},
        ),
        ({"grader": {"kind": "exec", "tests": None, "cases": None}}, {"kind": "exec"}),
        ({"grader": '{"kind": "exec", "reveal": true}'}, {"kind": "exec", "reveal": True}),
        ({"grader": {"kind": "exec"}, "tests": TESTS}, {"kind": "exec"}),
        ({"grader": None, "tests": TESTS}, ASSERTS),
    ],
)
def test_graders_from_columns(row: dict[str, Any], grader: dict[str, Any]) -> None:
    task = task_from_row(row)
    assert task.grader == grader
    submission_of(task, "")


@pytest.mark.parametrize(
    "row",
    [
        {"tests": None},
        {"tests": []},
        {"test_list": 7},
        {"grader": "no JSON"},
        {"grader": "[1]"},
        {"grader": 3},
    ],
)
def test_a_row_that_cannot_be_judged(row: dict[str, Any]) -> None:
    with pytest.raises(BadTask):
        task_from_row(row)


def test_a_data_set_without_such_a_column_is_told_by_its_names() -> None:
    with pytest.raises(MissingColumns, match="the columns are: answer, level"):
        task_from_row({"level": 1, "answer": "42"})


def test_toys_and_mbpp() -> None:
    toys = load_problems("toy")
    assert len({toy.id for toy in toys}) == len(toys) == 8
    [first, *_] = load_problems("toy", limit=1)
    assert first.row()["prompt"][-1]["content"].endswith(TOYS[first.text.partition("\n")[0]][0])
    problems = load_problems(str(shared_data("mbpp/mbpp.jsonl")))
    assert len(problems) == 974
    for problem in problems:
        submission_of(problem.task, "")
        shown = problem.messages()[-1]["content"]
        tests = (problem.task.grader or {})["tests"]
        assert tests[0] in shown
        assert tests[-1] not in shown or tests[-1] == tests[0]
        assert task_from_row(problem.row()).fields == problem.task.fields
    [by_id] = [each for each in problems if each.id == "367"]
    assert "setup" in (by_id.task.grader or {})


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    rows = [
        {
            "text": "Print the sum.",
            "grader": {"kind": "stdio", "cases": [{"stdin": "", "stdout": ""}]},
        },
        {"prompt": "Double it.", "tests": TESTS, "task_id": 9},
    ]
    path = tmp_path / "own.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    first, second = load_problems(str(path))
    assert (first.task.grader or {})["kind"] == "stdio"
    assert first.messages(None) == [{"role": "user", "content": "Print the sum."}]
    assert (second.id, second.task.grader) == ("9", ASSERTS)
    assert second.row("Be brief.")["prompt"][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no rows"),
        ("{", "own.jsonl:1: not JSON"),
        ("\n3", "own.jsonl:2: not a JSON object"),
        ('{"tests": ["assert f()"]}', "own.jsonl:1: no text"),
        ('{"text": "a"}', "own.jsonl:1: no column says how to judge"),
        ('{"text": "a", "tests": 3}', "own.jsonl:1: tests: no list of tests"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_by_its_line(
    text: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(text)
    with pytest.raises(DatasetError, match=said):
        load_problems(str(path))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such file"):
        load_problems(str(tmp_path / "nowhere.jsonl"))
    (tmp_path / "damaged.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 99)[:30])
    with pytest.raises(DatasetError, match="damaged"):
        load_problems(str(tmp_path / "damaged.jsonl.gz"))
    with pytest.raises(DatasetError, match="1 or more"):
        load_problems("toy", limit=0)
