"""A row of each data set's own form: the reference and a right completion pass, a wrong one fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from harness import Service, running_service
from typer.testing import CliRunner

from proctor_client.datasets.forms import Format
from proctor_service.cli import build
from proctor_service.settings import Settings

UNIT = """
import unittest
class TestCases(unittest.TestCase):
    def test_one(self):
        self.assertEqual({call}(3), 6.0)
    def test_two(self):
        with self.assertRaises(TypeError):
            {call}(None)
"""
PLUS = """
from math import inf
def assertion(out, exp, atol):
    assert out == exp, f"out: {out}, exp: {exp}"
inputs = [[3], [-1], [inf]]
results = [6, -2, inf]
for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion(twice(*inp), exp, 0)
"""
PROMPT = 'import math\ndef twice(x):\n    """Twice x."""\n'
BODY = "    return math.fsum([x, x])\n"
CHECK = "def check(candidate):\n    assert candidate(3) == 6\n"
CLASS = "class Doubler:\n    def twice(self, x):\n        return math.fsum([x, x])\n"
WRONG = "def twice(x):\n    return x ** 2\n"
MBPP = {"task_id": 2, "prompt": "Write a function.", "code": PROMPT + BODY, "test_imports": []}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": PROMPT,
    "canonical_solution": BODY,
    "entry_point": "twice",
    "test": CHECK,
}
# Of each form: a row, a right completion and a wrong one.
ROWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "mbpp": (MBPP | {"test_list": ["assert twice(3) == 6"]}, PROMPT + BODY, WRONG),
    "mbppplus": (
        MBPP | {"test_list": ["assert twice(2) == 4"], "test": PLUS},
        PROMPT + BODY,
        "def twice(x):\n    return max(x, -x) * 2\n",
    ),
    "humaneval": (HUMANEVAL, BODY, WRONG),
    "humanevalplus": (HUMANEVAL | {"test": f"{PLUS.partition('inputs')[0]}\n{CHECK}"}, BODY, WRONG),
    "bigcodebench": (
        {
            "task_id": "BigCodeBench/0",
            "complete_prompt": PROMPT,
            "instruct_prompt": "Write self-contained code.",
            "code_prompt": "import math\ndef twice(x):\n",
            "canonical_solution": BODY,
            "entry_point": "twice",
            "test": UNIT.format(call="twice"),
            "libs": "['math']",
        },
        f"Here it is:\n```python\n{PROMPT}{BODY}```",
        WRONG,
    ),
    "classeval": (
        {
            "task_id": "ClassEval_0",
            "skeleton": "class Doubler: ...",
            "class_name": "Doubler",
            "import_statement": ["import math"],
            "solution_code": f"import math\n{CLASS}",
            "test_classes": ["TestCases"],
            "test": UNIT.format(call="Doubler().twice"),
        },
        f"```python\n{CLASS}```",
        CLASS.replace("[x, x]", "[x, x, x]"),
    ),
    "stdio": (
        {"name": "p", "input_output": json.dumps({"inputs": ["3\n"], "outputs": ["6\n"]}),
         "solutions": ["print(2 * int(input()))"]},
        "print(2 * int(input()))",
        "print(3 * int(input()))",
    ),
    "jsonl": (
        {"id": "own", "completion": "x = 1", "grader": {"kind": "exec"}},
        "x = 1",
        "raise ValueError",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running_service(Settings(), judge=None) as running:
        yield running


def test_each_form_has_a_row_here() -> None:
    assert set(ROWS) == set(get_args(Format))


@pytest.mark.parametrize("form", ROWS)
def test_reference_and_right_completion_pass_and_a_wrong_one_fails(
    service: Service, tmp_path: Path, form: str
) -> None:
    row, right, wrong = ROWS[form]
    data, completions = tmp_path / "data.jsonl", tmp_path / "completions.jsonl"
    data.write_text(json.dumps(row))
    name = next(str(row[key]) for key in ("task_id", "id", "name") if key in row)
    completions.write_text(
        "".join(json.dumps({"task_id": name, "completion": each}) + "\n" for each in (right, wrong))
    )
    base = ["eval", str(data), "--format", form, "--url", service.url]
    said = CliRunner().invoke(build(), base)
    assert said.exit_code == 0, said.output
    report = tmp_path / "results.jsonl"
    said = CliRunner().invoke(
        build(), [*base, "--completions", str(completions), "--output", str(report)]
    )
    assert said.exit_code == 1, said.output
    results = {each["sample"]: each for each in map(json.loads, report.read_text().splitlines())}
    assert results[0]["verdict"] == "passed", results[0]
    assert results[1]["verdict"] in ("failed", "runtime_error"), results[1]
