"""Rows, columns and ground truths become tasks: the same by every door, and none looks at a completion."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor_client import wire
from proctor_client.tasks.files import form_of_file, load_tasks
from proctor_client.tasks.forms import MAKERS, form_of, task_from_row
from proctor_client.tasks.ground_truth import task_of
from proctor_client.tasks.preludes import PRELUDES
from proctor_client.tasks.task import (
    SUBMISSION_FIELDS,
    BadTask,
    DatasetError,
    MissingColumns,
    Task,
    submission_of,
)

CLOSE = {"absolute": 1e-8, "relative": 1e-5}
PROMPT = "import math\n\ndef f(x):\n"
HUMANEVAL = {"prompt": PROMPT, "test": "def check(candidate): ...", "entry_point": "f"}
METHOD = {**HUMANEVAL, "prompt": "import math\n", "entry_point": "Solution().f"}
CALL = {"type": "function_call", "fn_name": "f", "input": "[2]\n3", "output": "4"}
APPS = {"inputs": [[{"1": 2}]], "outputs": [[3]], "fn_name": "f"}
LCB = [{"input": "2", "output": "4", "testtype": "functional"}]


OWN = {"stdin": "2\n", "stdout": "4\n"}


def own(**more: Any) -> dict[str, Any]:
    """The grader of one of the service's own cases."""
    return {"kind": "stdio", "cases": [OWN], **more}


def calls(args: list[Any], expected: Any, equality: str, entry_point: str = "f") -> dict[str, Any]:
    """The grader of one call."""
    cases = [{"args": args, "expected": expected}]
    grader = {"kind": "calls", "entry_point": entry_point, "method": "either", "cases": cases}
    return {**grader, "equality": equality}


def stdio(tolerance: Any = None, **more: Any) -> dict[str, Any]:
    """The grader of one run."""
    cases = [{"stdin": "2\n", "stdout": "4\n"}]
    told = {"kind": "stdio", "cases": cases, "tolerance": tolerance or CLOSE, **more}
    return {**told, "compare": "trimmed"}


# a row, and what its task has
ROWS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (HUMANEVAL, {"prompt_code": PROMPT, "prelude": None}),
    (METHOD, {"prompt_code": None, "prelude": "import math\n"}),
    ({**HUMANEVAL, "prompt": "Write f(x)."}, {"prompt_code": None, "prelude": None}),
    ({**HUMANEVAL, "prompt": [{"role": "user", "content": PROMPT}]}, {"prompt_code": None}),
    ({**HUMANEVAL, "prompt": [], "prompt_code": PROMPT}, {"prompt_code": PROMPT}),
    ({**HUMANEVAL, "suffix": "    return x\n"}, {"suffix_code": "    return x\n"}),
    ({"test_list": ["assert f()"], "test_imports": ["import re"]}, {"prelude": "import re"}),
    ({"tests": ["assert f()"], "limits": '{"cpu_seconds": 3}'}, {"limits": {"cpu_seconds": 3}}),
    ({"tests": ["assert f()"], "limits": {"cpu_seconds": None}}, {"limits": None}),
    ({"grader": {"kind": "exec"}, "language": "go"}, {"language": "go"}),
    ({"ground_truth": APPS}, {"grader": calls([{"1": 2}], [3], "apps"), "prelude": "prime"}),
    ({"label": json.dumps(APPS)}, {"prelude": "prime"}),
    ({"reward_model": {"style": "rule", "ground_truth": json.dumps(APPS)}}, {"prelude": "prime"}),
    ({"input_output": json.dumps(APPS)}, {"prelude": "apps", "limits": {"cpu_seconds": 4.0}}),
    (
        {"input_output": {"inputs": [["7"]], "outputs": ["12"], "fn_name": "f"}},
        {"grader": calls(["7"], "12", "apps")},
    ),
    (
        {"ground_truth": {"inputs": ['"7"'], "outputs": ['"12"'], "fn_name": "f"}},
        {"grader": calls(["7"], "12", "apps")},
    ),
    (
        {"input_output": APPS, "time_limit": "2 seconds", "memory_limit": "256.0 megabytes"},
        {"limits": {"cpu_seconds": 2.0, "memory_mb": 256}},
    ),
    ({"ground_truth": {"inputs": ["2\n"], "outputs": ["4\n"]}}, {"grader": stdio()}),
    ({"test_cases": [CALL]}, {"grader": calls([[2], 3], 4, "apps")}),
    ({"verification_info": {"language": "python", "test_cases": [CALL]}}, {"prelude": "prime"}),
    (
        {"verification_info": json.dumps({"language": "cpp", "test_cases": [
            {"type": "stdin_stdout", "input": "2\n", "output": "4\n"}]})},
        {"language": "cpp", "prelude": None, "grader": stdio()},
    ),
    ({"question": "q", "test_cases": ["assert f() == 1"], "inferences": []}, {"prelude": None}),
    ({"test": "from solution import f\ndef test_f(): ..."}, {"prelude": None}),
    (
        {"public_test_cases": LCB, "private_test_cases": "[]", "metadata": '{"func_name": "f"}',
         "starter_code": "class Solution:\n    def f(self, n):"},
        {"grader": calls([2], 4, "json", "Solution().f"), "prelude": "livecodebench",
         "limits": {"cpu_seconds": 6.0}},
    ),
    ({"tests": [{**OWN, "argv": None}]}, {"grader": own(), "prelude": None}),
    ({"tests": json.dumps([OWN]), "compare": "lines", "tolerance": None, "ignore_case": True},
     {"grader": own(compare="lines", ignore_case=True)}),
    ({"test_cases": [OWN], "language": "cpp"}, {"grader": own(), "language": "cpp"}),
    ({"tests": [{"input": "2\n", "output": "4\n", "id": 1}]}, {"grader": stdio(), "prelude": "prime"}),
    ({"inputs": ["2\n"], "outputs": ["4\n"]}, {"grader": stdio(), "prelude": "prime"}),
    ({"public_tests": {"input": ["2\n"], "output": ["4\n"]}}, {"grader": stdio()}),
    ({"grader": json.dumps({"kind": "stdio", "cases": [{**OWN, "files": {"a": None}}]})},
     {"grader": {"kind": "stdio", "cases": [{**OWN, "files": {}}]}}),
    ({"grader": {"kind": "calls", "entry_point": "f", "tolerance": {"absolute": 1, "relative": None},
                 "cases": [{"args": [None, {"a": None}], "kwargs": None, "expected": None}]}},
     {"grader": {"kind": "calls", "entry_point": "f", "tolerance": {"absolute": 1},
                 "cases": [{"args": [None, {"a": None}], "expected": None}]}}),
    ({"label": {"grader": {"kind": "exec", "setup": None}, "limits": {"cpu_seconds": 3}}},
     {"grader": {"kind": "exec"}, "limits": {"cpu_seconds": 3}}),
    ({"label": json.dumps(json.dumps(["assert f(2) == 4"]))},
     {"grader": {"kind": "asserts", "tests": ["assert f(2) == 4"]}}),
    ({"tests": str(["assert f(2) == 4"])},
     {"grader": {"kind": "asserts", "tests": ["assert f(2) == 4"]}}),
    ({"verification_info": str({"language": "python", "test_cases": [CALL]})}, {"prelude": "prime"}),
    ({"tests": "[f(2)] == [4] or 1 / 0"},
     {"grader": {"kind": "asserts", "tests": ["[f(2)] == [4] or 1 / 0"]}}),
    ({"tests": json.dumps(json.dumps(["assert f(2) == 4"]))},
     {"grader": {"kind": "asserts", "tests": ["assert f(2) == 4"]}}),
    ({"public_test_cases": LCB, "private_test_cases": None, "metadata": '{"func_name": "f"}',
      "prelude": "import re"}, {"grader": calls([2], 4, "json"), "prelude": "import re"}),
    ({"official_tests": [{"input": "2\n", "output": "4\n"}], "prelude": "import re"},
     {"prelude": "import re"}),
    ({"name": "f", "language": "pl", "prompt": "sub f {\n    my($n) = @_;\n", "tests": "}\n",
      "stop_tokens": []},
     {"grader": {"kind": "exec", "tests": "", "entry_point": "f"}, "language": "perl"}),
    (
        {"public_tests": {"input": ["2\n"], "output": ["4\n"]}, "private_tests": None,
         "generated_tests": {}, "time_limit": {"seconds": 1, "nanos": 500_000_000},
         "memory_limit_bytes": 256_000_000},
        {},
    ),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_the_task_of_a_row(number: int) -> None:
    row, expected = ROWS[number]
    task = task_from_row(row)
    wanted = {
        name: PRELUDES.get(value, value) if name == "prelude" and value else value
        for name, value in expected.items()
    }
    assert {name: getattr(task, name) for name in wanted} == wanted
    submission_of(task, "x = 1")


def test_a_command_makes_the_task_that_a_reward_function_makes() -> None:
    for row, _ in ROWS:
        try:
            form = form_of(row)
        except MissingColumns:
            continue
        assert MAKERS[form](row, "rows:1").fields == task_from_row(row).fields


def test_a_task_has_the_fields_of_a_submission() -> None:
    assert {*SUBMISSION_FIELDS, "id", "completion", "task"} == set(wire.Submission.model_fields)
    with pytest.raises(BadTask, match="prelud: no field of a submission: did you mean prelude"):
        Task.of({"grader": {"kind": "exec"}, "prelud": "import re"})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([{"type": "graphics", "input": "", "output": ""}], "'graphics' is no kind of test case"),
        ([CALL, {"type": "stdin", "input": "", "output": ""}], "one function's name"),
        ([CALL, {**CALL, "fn_name": "g"}], "one function's name"),
        ([{**CALL, "fn_name": ""}], "one function's name"),
        ([{"input": "2", "output": "4", "testype": "functional"}], "did you mean testtype"),
        ({"grader": {"kind": "exec"}, "preludes": "import re"}, "did you mean prelude"),
        ({"language": "cpp", "test_cases": [CALL]}, "calls of a function in cpp"),
        ({"grader": {"kind": "exec"}, "answer": 3, "inputs": []}, None),
    ],
)
def test_a_test_case_is_read_as_what_it_is_or_refused(value: Any, said: str | None) -> None:
    if said is None:
        assert task_of(value).grader == {"kind": "exec"}
        return
    with pytest.raises(BadTask, match=said):
        task_of(value)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": PROMPT, "test": "def check(candidate): ...", "entrypoint": "f"},
        {**HUMANEVAL, "preludes": "import re"},
        {"tests": ["assert f()"], "test_setup_codes": "import re"},
        {"ground_truth": ["assert f()"], "prompt_codes": PROMPT},
    ],
)
def test_a_typo_in_what_a_row_is_judged_by_is_an_error(row: dict[str, Any]) -> None:
    with pytest.raises(BadTask, match="did you mean"):
        task_from_row(row)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"task_id": 1, "test_lists": ["assert f()"]}, "test_lists: did you mean test_list?"),
        ({"grader": {"kind": "exec"}, "prompt_cod": "def f():"}, "did you mean prompt_code?"),
        ({"verification_infos": {}}, "did you mean verification_info?"),
        ({"code": "def f(): ...", "input": "", "output": "1"}, "cruxeval_output or cruxeval_input"),
        ({"level": 1, "answer": "42"}, "the columns are: answer, level"),
        ({"problem": "f", "answer": "def f(): ...", "test_lists": []}, "did you mean test_list?"),
    ],
)
def test_a_row_of_no_known_form_names_the_near_field(
    row: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(DatasetError) as caught:
        form_of_file(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}:1: ")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"interaction_format": "Guess."}, "talks to another one"),
        ({"official_tests_complete": False}, "cut off"),
        ({"official_tests": []}, "no tests"),
    ],
)
def test_problems_of_codeforces_without_whole_tests_are_left_out(
    changed: dict[str, Any], said: str
) -> None:
    row = {"id": "1/A", "official_tests": [{"input": "1", "output": "2"}], **changed}
    with pytest.raises(ValueError, match=said):
        MAKERS["codeforces"](row, "rows:1")


def test_integers_of_any_length(tmp_path: Path) -> None:
    digits = "7" * 10_000
    label = json.dumps({"inputs": [digits], "outputs": [digits], "fn_name": "f"})
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"notes": {digits}, "label": {json.dumps(label)}}}')
    [task] = load_tasks(path, "columns")
    [case] = (task.grader or {})["cases"]
    assert case["expected"] == case["args"][0]
    assert case["expected"] % 10**6 == 777_777
    assert case["expected"].bit_length() > 33_000


def test_a_prelude_is_what_the_harness_imports() -> None:
    names = {
        "apps": "deque OrderedDict gcd lru_cache fractions time heappush List",
        "livecodebench": "deque inf reduce accumulate bisect_left Optional sys heapq",
        "prime": "deque inf reduce accumulate bisect_left Optional sys heapq",
        "leetcode": "List Optional deque inf cache heapify bisect_left",
    }
    for form, wanted in names.items():
        found: dict[str, Any] = {}
        source = re.sub(r"^.*(recursionlimit|max_str_digits).*$", "", PRELUDES[form], flags=re.M)
        exec(compile(source, form, "exec"), found)
        assert set(wanted.split()) <= found.keys()
        assert found.get("sum", sum) is sum
        assert found.get("open", open) is open


def test_a_program_of_livecodebench_may_print_long_integers_and_recurse() -> None:
    program = f"{PRELUDES['livecodebench']}print(len(str(10**9_999)), sys.getrecursionlimit())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split() == [b"10000", b"50000"]
