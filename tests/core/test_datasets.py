"""The files of problems that `proctor eval` reads, and what it says about the ones it cannot."""

from __future__ import annotations

import ast
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from shared_data import shared_data

from proctor_client import wire
from proctor_client.tasks.files import load_completions, load_tasks
from proctor_client.tasks.forms import Format
from proctor_client.tasks.task import DatasetError, Task, submission_of

PROMPT = '''from typing import List


def helper(x):
    return x + 1


def twice(x: int) -> int:
    """Twice x."""
'''
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": PROMPT,
    "entry_point": "twice",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
MBPP = {"task_id": 7, "code": "def f(): return 1", "test_list": ["assert f() == 1"]}
STDIO = {"id": "a", "solution": "print(1)", "tests": [{"stdin": "", "stdout": "1"}]}


def write(path: Path, *rows: Any) -> Path:
    """A file of JSON lines; a text is taken as the line itself."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def one(tmp_path: Path, form: Format, row: Any) -> Task:
    """The only task of a file with one row."""
    [task] = load_tasks(write(tmp_path / "data.jsonl", row), form)
    return task


def reference(task: Task) -> wire.Submission:
    """The task's own solution, as it is sent."""
    assert task.reference is not None
    return submission_of(task, task.reference, id=task.id)


# ---------------------------------------------------------------- MBPP


def test_mbpp_as_it_was_published() -> None:
    tasks = load_tasks(shared_data("mbpp/mbpp.jsonl"), "mbpp")
    assert len(tasks) == 974
    by_id = {task.id: reference(task) for task in tasks}
    assert by_id["1"].id == "1"
    grader = by_id["367"].grader
    assert isinstance(grader, wire.AssertsGrader)
    assert "Node" in grader.setup
    assert len(grader.tests) == 3


def test_sanitized_mbpp_has_imports_for_its_tests(tmp_path: Path) -> None:
    row = MBPP | {"prompt": "Write f.", "test_imports": ["import math", "import re"]}
    grader = reference(one(tmp_path, "mbpp", row)).grader
    assert isinstance(grader, wire.AssertsGrader)
    assert grader.setup == "import math\nimport re"
    assert one(tmp_path, "mbpp", row).prelude == "import math\nimport re"


# ---------------------------------------------------------------- HumanEval

BODY = "    return 2 * x\n"


def test_humaneval_calls_check_with_the_entry_point(tmp_path: Path) -> None:
    submission = reference(one(tmp_path, "humaneval", HUMANEVAL))
    grader = submission.grader
    assert isinstance(grader, wire.AssertsGrader)
    assert grader.entry_point == "twice"
    assert grader.tests == [HUMANEVAL["test"]]
    assert (submission.prompt_code, submission.completion) == (PROMPT, BODY)


# ---------------------------------------------------------------- stdin and stdout


def test_codecontests() -> None:
    tasks = load_tasks(shared_data("codecontests/codecontests_60.jsonl"), "stdio")
    assert len(tasks) == 60
    for task in tasks:
        submission = reference(task)
        assert isinstance(submission.grader, wire.StdioGrader)
        assert isinstance(submission.completion, str)
        assert ast.parse(submission.completion)


@pytest.mark.parametrize(
    "tests",
    [
        {"tests": [{"input": "1", "output": "2"}]},
        {"test_cases": [{"input": "1", "output": "2"}]},
        {"inputs": ["1"], "outputs": ["2"]},
        {"tests": {"inputs": ["1"], "outputs": ["2"]}},
        {"input_output": json.dumps({"inputs": ["1"], "outputs": ["2"]})},
        {"input_output": {"inputs": [["1"]], "outputs": [["2"]]}},
        {"public_tests": {"input": ["1"], "output": ["2"]}},
    ],
)
def test_stdio_in_its_many_forms(tmp_path: Path, tests: dict[str, Any]) -> None:
    grader = reference(one(tmp_path, "stdio", {"id": "a", "solution": "x", **tests})).grader
    assert grader == wire.StdioGrader(
        kind="stdio",
        cases=[wire.StdioCase(stdin="1", stdout="2")],
        compare="trimmed",
        tolerance=wire.Tolerance(absolute=1e-8, relative=1e-5),
    )


def test_cases_of_the_service_keep_its_comparison(tmp_path: Path) -> None:
    for name in ("tests", "test_cases"):
        row = {"id": "a", "solution": "x", name: [{"stdin": "1", "stdout": "2"}]}
        cases = [wire.StdioCase(stdin="1", stdout="2")]
        submission = reference(one(tmp_path, "stdio", row))
        assert submission.grader == wire.StdioGrader(kind="stdio", cases=cases)
        assert submission.prelude is None


def test_stdio_takes_what_belongs_to_a_submission_from_the_row(tmp_path: Path) -> None:
    row = STDIO | {
        "compare": "lines",
        "tolerance": 0.5,
        "language": "cpp",
        "limits": {"memory_mb": 9},
    }
    submission = reference(one(tmp_path, "stdio", row))
    assert isinstance(submission.grader, wire.StdioGrader)
    assert (submission.grader.compare, submission.grader.tolerance) == ("lines", 0.5)
    assert submission.language == "cpp"
    assert submission.limits == wire.Limits(memory_mb=9)


def test_a_row_without_a_name_is_called_by_its_line(tmp_path: Path) -> None:
    row = {key: value for key, value in STDIO.items() if key != "id"}
    path = write(tmp_path / "data.jsonl", "", row)
    assert [task.id for task in load_tasks(path, "stdio")] == ["2"]


# ---------------------------------------------------------------- the wire's own


def test_jsonl_holds_submissions(tmp_path: Path) -> None:
    row = {
        "completion": [{"role": "assistant", "content": "x = 1"}],
        "grader": {"kind": "exec"},
        "group": "g",
        "files": {"a.txt": "1"},
    }
    submission = reference(one(tmp_path, "jsonl", row))
    assert (submission.id, submission.group) == ("1", "g")
    assert submission.files == {"a.txt": "1"}


def test_a_row_may_leave_its_completion_to_another_file(tmp_path: Path) -> None:
    task = one(tmp_path, "jsonl", {"id": "a", "grader": {"kind": "exec"}})
    assert task.reference is None
    path = write(
        tmp_path / "completions.jsonl",
        {"task_id": "a", "completion": "x = 1"},
        {"id": "a", "completion": [{"role": "assistant", "content": "x = 2"}]},
    )
    pairs = load_completions(path, [task])
    assert [pair.id for pair, _ in pairs] == ["a", "a"]
    assert pairs[0][1] == "x = 1"


def test_ids_that_are_numbers_match(tmp_path: Path) -> None:
    task = one(tmp_path, "mbpp", MBPP)
    path = write(tmp_path / "completions.jsonl", {"task_id": 7, "completion": "x"})
    assert load_completions(path, [task]) == [(task, "x")]


def test_compressed(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(MBPP).encode()))
    assert [task.id for task in load_tasks(path, "mbpp")] == ["7"]


# ---------------------------------------------------------------- what is wrong with a file


@pytest.mark.parametrize(
    ("form", "row", "message"),
    [
        ("mbpp", "{", ":2: not JSON"),
        ("mbpp", "[1]", ":2: not a JSON object"),
        ("mbpp", "[" * 100_000, ":2: nested too deep"),
        ("mbpp", {"task_id": 1}, ":2: the field 'test_list' is missing"),
        ("mbpp", MBPP | {"test_list": []}, ":2: test_list: no list of tests"),
        ("mbpp", MBPP | {"test_list": [1]}, ":2: grader.asserts.tests.0: "),
        ("mbpp", MBPP | {"code": 1}, ":2: completion"),
        ("humaneval", HUMANEVAL | {"prompt": 1}, ":2: prompt: no text"),
        ("stdio", {"id": "a"}, ":2: no column says how to judge"),
        ("stdio", STDIO | {"tests": [1]}, ":2: grader.asserts.tests.0: "),
        ("stdio", STDIO | {"tests": []}, ":2: tests: no list of tests"),
        ("stdio", STDIO | {"tests": [{"stdin": "1"}]}, ":2: a test without stdout"),
        ("stdio", STDIO | {"tests": {"inputs": ["1"]}}, ":2: inputs and outputs: two lists"),
        (
            "stdio",
            STDIO | {"tests": {"inputs": ["1"], "outputs": []}},
            ":2: 1 inputs and 0 outputs",
        ),
        ("stdio", STDIO | {"tests": {"fn_name": "f"}}, ":2: the ground truth has no tests"),
        (
            "stdio",
            STDIO | {"tests": [{"type": "guess", "input": "", "output": ""}]},
            ":2: type: 'guess' is",
        ),
        ("stdio", STDIO | {"solution": 1}, ":2: completion.str: "),
        ("stdio", STDIO | {"compare": "words"}, ":2: grader.stdio.compare: "),
        ("jsonl", {"completion": "x"}, ":2: no grader"),
        ("jsonl", {"grader": {"kind": "exec"}, "typo": 1}, ":2: typo: no field of a submission"),
        ("jsonl", {"grader": {"kind": "guess"}}, ":2: grader: "),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, form: Format, row: Any, message: str) -> None:
    good = {"mbpp": MBPP, "humaneval": HUMANEVAL, "stdio": STDIO}
    first = good.get(form, {"grader": {"kind": "exec"}})
    path = write(tmp_path / "data.jsonl", first, row)
    with pytest.raises(DatasetError) as caught:
        load_tasks(path, form)
    assert str(caught.value).startswith(f"{path}{message}")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"task_id": 7}, ":1: no completion"),
        ({"task_id": 7, "completion": ["x"]}, ":1: no completion"),
        ({"task_id": 8, "completion": "x"}, ":1: no task '8' in the data"),
        ({"completion": "x"}, ":1: no task None in the data"),
        ("", ": no rows"),
    ],
)
def test_a_bad_completion_is_named(tmp_path: Path, row: Any, message: str) -> None:
    tasks = [one(tmp_path, "mbpp", MBPP)]
    path = write(tmp_path / "completions.jsonl", row)
    with pytest.raises(DatasetError) as caught:
        load_completions(path, tasks)
    assert str(caught.value).startswith(f"{path}{message}")


def test_two_tasks_of_one_name_cannot_be_told_apart(tmp_path: Path) -> None:
    tasks = load_tasks(write(tmp_path / "data.jsonl", MBPP, MBPP), "mbpp")
    with pytest.raises(DatasetError, match=r"data\.jsonl:2: the id '7' again; see .*data\.jsonl:1"):
        load_completions(tmp_path / "none.jsonl", tasks)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.jsonl", None, ": No such file or directory"),
        ("empty.jsonl", b"\n\n", ": no rows"),
        ("latin.jsonl", b'{"a": "\xe9"}', ":1: not UTF-8"),
        ("plain.jsonl.gz", b"{}", ": Not a gzipped file (b'{}')"),
        (
            "cut.jsonl.gz",
            gzip.compress(b"{}", mtime=0)[:-9],
            ": the compressed file is damaged or cut off",
        ),
    ],
)
def test_a_file_that_cannot_be_read(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DatasetError) as caught:
        load_tasks(path, "mbpp")
    assert str(caught.value) == f"{path}{message}"


def test_a_json_array_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps([MBPP, MBPP | {"task_id": 9}], indent=1))
    first, second = load_tasks(path, "mbpp")
    assert (first.fields, second.id) == (second.fields, "9")
    path.write_text(json.dumps([MBPP, 5]))
    with pytest.raises(DatasetError, match=r"data\.json:2: not a JSON object"):
        load_tasks(path, "mbpp")
