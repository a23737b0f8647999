"""How a row of a data set says how a completion is judged, and problems from all their sources."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shared_data import shared_data

from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import BadTask, DatasetError, MissingColumns, submission_of
from proctor_trainers.problems import DIFF, TOYS, load_problems
from proctor_trainers.trl.workplaces import Order, Workplaces

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


SMITH = {
    "instance_id": "owner__ring.3f1c0e2a.func_basic__x7k2",
    "repo": "swesmith/owner__ring.3f1c0e2a",
    "image_name": "swebench/swesmith.x86_64.owner_1776_ring.3f1c0e2a",
    "patch": "--- a/ring.py\n+++ b/ring.py\n@@ -1 +1 @@\n-append\n+pop\n",
    "FAIL_TO_PASS": ["tests/test_ring.py::test_push"],
    "PASS_TO_PASS": [],
    "problem_statement": "push drops the item",
}


def repository_rows(tmp_path: Path) -> Path:
    """Rows of SWE-smith: one to train on, one without a statement, and one without tests."""
    path = tmp_path / "smith.jsonl"
    rows = [SMITH, SMITH | {"problem_statement": ""}, SMITH | {"FAIL_TO_PASS": []}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_about_repositories_have_their_form_and_keep_their_image(tmp_path: Path) -> None:
    (problem,) = load_problems(str(repository_rows(tmp_path)), form="swe_smith")
    image = {"image": f"docker.io/{SMITH['image_name']}:latest"}
    assert problem.is_repository
    assert problem.messages()[0]["content"] == DIFF
    assert problem.messages()[1]["content"] == "push drops the item"
    row = problem.row()
    assert task_from_row(row).fields == problem.task.fields
    assert task_from_row(row).environment == image
    task = problem.rollout_task()
    assert task["environment"] == image
    assert task["grader"]["prepare"]["patch"] == SMITH["patch"]


def test_the_sandbox_of_a_repository_has_its_task() -> None:
    options: list[dict[str, Any]] = []

    class Client:
        def sandbox(self, **fields: Any) -> Any:
            options.append(fields)
            return self

        def start(self) -> Any:
            return self

    places = Workplaces(Client(), Client(), Order())  # type: ignore[arg-type]
    grader = {"kind": "repository", "test": "pytest"}
    for task in ({"grader": grader, "environment": {"image": "a"}}, {"grader": {"kind": "exec"}}):
        places.make(Client(), task)  # type: ignore[arg-type]
    assert options[1]["repository"] == grader
    assert options[1]["environment"] == {"image": "a"}
    assert "repository" not in options[2]


def test_the_example_shows_its_first_task(tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[2] / "trainers" / "examples" / "swe_smith.py"
    command = [sys.executable, str(example), str(repository_rows(tmp_path)), "--show"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(shown)["prompt"] == "push drops the item"
