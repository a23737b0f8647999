"""A row of each data set's own form: the reference and a right completion pass, a wrong one fails."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any, get_args

import pytest
from command_line import proctor
from harness import Service
from optional_programs import skip_without

from proctor_client.tasks.forms import MAKERS, REPOSITORY_FORMS, Format

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
CRUX = {
    "id": "sample_0",
    "code": "seed = [3]\ndef f(xs, k):\n    return f(xs, k) if k < 0 else [*xs, k]",
    "input": "seed[:], k=2",
    "output": "[3, 2]",
}
DS1000 = """
import io, tokenize

def generate_test_case(test_case_id):
    return [1, 2], [2, 4]

def exec_test(result, ans):
    return 1 if result == ans else 0

exec_context = "x = test_input\\n[insert]\\nresult = y\\n"

def test_execution(solution: str):
    code = exec_context.replace("[insert]", solution)
    test_input, expected = generate_test_case(1)
    env = {"test_input": test_input}
    exec(code, env)
    assert exec_test(env["result"], expected)

def test_string(solution: str):
    tokens = tokenize.tokenize(io.BytesIO(solution.encode("utf-8")).readline)
    lines = [each for each in solution.splitlines() if each.startswith("for")]
    assert not lines and tokens
"""
DECLARATION = "#include<vector>\n#include<stdlib.h>\nusing namespace std;\nint twice(int x){\n"
TWICE_PROGRAM = "print(2 * int(input()))"
WRONG_PROGRAM = "print(3 * int(input()))"
IN_OUT = json.dumps({"inputs": ["3\n"], "outputs": ["6\n"]})
APPS = {
    "problem_id": 4,
    "question": "Twice a number.",
    "solutions": json.dumps([TWICE_PROGRAM]),
    "input_output": IN_OUT,
    "starter_code": "",
}
# What a wrong completion ends with, where it does not run and fail.
WRONG_VERDICTS: dict[Format, str] = {
    "cruxeval_output": "no_code",
    "humanevalx": "early_exit",
    "mbxp": "early_exit",
}
PROGRAMS: dict[Format, tuple[str, ...]] = {
    "codecontestsplus": ("g++",),
    "humanevalx": ("g++",),
    "mbxp": ("node",),
    "multiple": ("g++",),
}
WITHOUT_REFERENCE = ("livecodebench", "codeforces", "hardtests", "acecoder", "multiple")
# Forms whose completions are answers: test_answer_rows.py has their rows.
OF_VERIFIERS: tuple[Format, ...] = ("spider", "bird", "gsm8k", "math")
# Of each form: a row, a right completion and a wrong one.
ROWS: dict[Format, tuple[dict[str, Any], str, str]] = {
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
    "cruxeval_output": (CRUX, "[ANSWER]assert f([3], k=2) == [3, 2][/ANSWER]", "f([3], k=2)"),
    "cruxeval_input": (CRUX, "f([3, 2][:1], **{'k': 2})", "assert f([2], k=2) == [3, 2]"),
    "ds1000": (
        {
            "metadata": {"problem_id": 7, "library": "Numpy"},
            "prompt": "Double the list x into y.",
            "reference_code": "y = [2 * each for each in x]",
            "code_context": DS1000,
        },
        "Here:\n```python\ny = list(map((2).__mul__, x))\n```",
        "y = []\nfor each in x:\n    y.append(2 * each)",
    ),
    "stdio": (
        {"name": "p", "input_output": IN_OUT, "solutions": [TWICE_PROGRAM]}, TWICE_PROGRAM, WRONG_PROGRAM
    ),
    "apps": (APPS, TWICE_PROGRAM, WRONG_PROGRAM),
    "taco": (
        APPS | {"input_output": json.dumps({"fn_name": "twice", "inputs": [[3]], "outputs": [6]}),
                "solutions": json.dumps(["def twice(x):\n    return 2 * x"])},
        "class Solution:\n    def twice(self, x: List[int]):\n        return 2 * x",
        WRONG,
    ),
    "livecodebench": (
        {
            "question_id": "q1",
            "question_content": "Twice a number.",
            "starter_code": "class Solution:\n    def twice(self, x: int) -> int:\n        ",
            "metadata": json.dumps({"func_name": "twice"}),
            "public_test_cases": json.dumps(
                [{"input": "3", "output": "6", "testtype": "functional"}]
            ),
            "private_test_cases": base64.b64encode(
                zlib.compress(
                    pickle.dumps(
                        json.dumps([{"input": "-1", "output": "-2", "testtype": "functional"}])
                    )
                )
            ).decode(),
        },
        "class Solution:\n    def twice(self, x: int) -> int:\n        return reduce(add, [x, x])",
        "def twice(x):\n    return abs(x) * 2",
    ),
    "codecontests": (
        {
            "name": "1_A. Twice",
            "description": "Twice a number.",
            "public_tests": {"input": ["3\n"], "output": ["6\n"]},
            "private_tests": {"input": [], "output": []},
            "generated_tests": {"input": ["-1\n"], "output": ["-2\n"]},
            "solutions": {"language": [2, 3], "solution": ["int main() {}", TWICE_PROGRAM]},
            "input_file": "",
        },
        f"```python\n{TWICE_PROGRAM}\n```",
        "print(6)",
    ),
    "humanevalx": (
        {
            "task_id": "CPP/0",
            "prompt": f"/* Twice. */\n{DECLARATION}",
            "declaration": DECLARATION,
            "canonical_solution": "    return 2 * x;\n}\n",
            "test": "#undef NDEBUG\n#include<assert.h>\nint main(){\n"
            "    vector<int> x = {3};\n    assert (twice(x[0]) == 6);\n}\n",
        },
        "```cpp\nint half(int x) { return x / 2; }\nint twice(int x) { return half(4 * x); }\n```",
        "    exit(0);\n}\n",
    ),
    "mbxp": (
        {
            "task_id": "MBJSP/1",
            "language": "javascript",
            "prompt": "/** Twice. */\nfunction twice(xs) {\n",
            "canonical_solution": "    return xs.map((x) => 2 * x);\n}",
            "entry_point": "twice",
            "test": '\nconst _ = require("lodash")\n\nfunction compare(a, b){\n'
            "    return _.isEqual(a, b)\n}\nif(!compare(twice([3, 0]), [6, -0])){\n    throw 'Error'\n}\n",
        },
        "```javascript\nconst twice = (xs) => xs.map((x) => x + x);\n```",
        "    process.exit(0)\n}",
    ),
    "codeforces": (
        {
            "id": "1/A",
            "description": "Twice a number.",
            "official_tests": [{"input": "3\n", "output": "6\n"}],
            "official_tests_complete": True,
            "time_limit": 2.0,
            "memory_limit": 256.0,
            "input_mode": "file",
            "generated_checker": None,
            "language": "python",
        },
        "print(2 * int(open('input.txt').read()), file=open('output.txt', 'w'))",
        TWICE_PROGRAM,
    ),
    "codecontestsplus": (
        {
            "source": "Codeforces",
            "id": "1_A",
            "title": "Twice",
            "description": "A number whose half is the given one, in any form.",
            "time_limit": 2000,
            "memory_limit": 256,
            "validator": "int main() {}",
            "generator": "int main() {}",
            "generator_cmd": "./gen 1",
            "checker": "#include <fstream>\nint main(int, char* argv[]) {\n"
            "    std::ifstream input(argv[1]), output(argv[2]);\n    double n, twice = 0;\n"
            "    input >> n;\n    output >> twice;\n    return twice == 2 * n ? 0 : 1;\n}\n",
            "correct_submissions": [{"code": TWICE_PROGRAM, "language": "py3"}],
            "incorrect_submissions": [{"code": WRONG_PROGRAM, "language": "py3"}],
            "test_cases": [{"input": "3\n", "output": "6\n"}],
            "true_positive_rate": 1.0,
            "true_negative_rate": 1.0,
        },
        "```python\nprint(2e0 * int(input()))\n```",
        WRONG_PROGRAM,
    ),
    "hardtests": (
        {
            "pid": "1_A",
            "test_cases_kit": {
                "pid": "1_A",
                "output_judging_function": "def output_judging_function(input_str, candidate_output, "
                "reference_output):\n    return float(candidate_output) == float(reference_output)\n",
                "input_validator": "def validate_input(input_str):\n    return True\n",
                "LLMGen": ["3\n"],
            },
            "mapping": {"LLMGen": [0], "RPGen": [], "SPGen": [], "HackGen": []},
            "test_cases": base64.b64encode(
                zlib.compress(pickle.dumps(json.dumps([{"input": "3\n", "output": "6\n"}])))
            ).decode(),
        },
        "print(2e0 * int(input()))",
        WRONG_PROGRAM,
    ),
    "verification": (
        {
            "problem_id": "v",
            "prompt": "Twice a number.",
            "gold_standard_solution": f"```python\n{TWICE_PROGRAM}\n```",
            "verification_info": json.dumps(
                {
                    "language": "python",
                    "test_cases": [
                        {"type": "stdin_stdout", "fn_name": None, "input": "3\n", "output": "6\n"}
                    ],
                }
            ),
        },
        TWICE_PROGRAM,
        WRONG_PROGRAM,
    ),
    "acecoder": (
        {"id": "a", "question": "Twice.", "test_cases": ["assert twice(3) == 6"], "inferences": []},
        f"```python\n{PROMPT}{BODY}```",
        WRONG,
    ),
    "kodcode": (
        {
            "question_id": "k",
            "question": "Twice.",
            "solution": f"{PROMPT}{BODY}",
            "test": "from solution import twice\n\ndef test_one():\n    assert twice(3) == 6\n",
            "test_info": [{"function_name": "twice"}],
        },
        f"```python\n{PROMPT}{BODY}```",
        WRONG,
    ),
    "leetcode": (
        {
            "task_id": "twice",
            "prompt": "from typing import *\nclass Box:\n    def __init__(self, x):\n        self.x = x\n",
            "starter_code": "class Solution:\n    def twice(self, box: Box) -> List[int]:\n        ",
            "completion": "class Solution:\n    def twice(self, box: Box) -> List[int]:\n"
            "        return [box.x] * 2\n",
            "entry_point": "Solution().twice",
            "test": "def check(candidate):\n    assert candidate(box = Box(3)) == [3, 3]\n",
        },
        "```python\nclass Solution:\n    def twice(self, box: Box) -> List[int]:\n"
        "        return [box.x, box.x]\n```",
        "class Solution:\n    def twice(self, box: Box) -> List[int]:\n        return [box.x]\n",
    ),
    "infilling": (
        {
            "task_id": "SingleLine/0",
            "prompt": "def twice(x):\n    total = 0\n",
            "suffix": "        total += x\n    return total\n",
            "canonical_solution": "    for _ in range(2):\n",
            "entry_point": "twice",
            "test": CHECK,
        },
        "    for _ in (1, 2):\n",
        "    for _ in (1, 2, 3):\n",
    ),
    "multiple": (
        {
            "name": "HumanEval_0_twice",
            "language": "cpp",
            "prompt": "#include<assert.h>\n#include<bits/stdc++.h>\n// Twice.\n"
            "long twice(std::vector<long> xs) {\n",
            "tests": "}\nint main() {\n    auto candidate = twice;\n"
            "    assert(candidate((std::vector<long>({(long)3}))) == (6));\n}\n",
            "stop_tokens": ["\n}"],
        },
        "    return 2 * xs[0];",
        "```cpp\nlong twice(std::vector<long> xs) {\n    return 3 * xs[0];\n}\n```",
    ),
    "columns": (
        {
            "task_id": "c",
            "tests": ["assert twice(3) == 6"],
            "prelude": "import math",
            "solution": "def twice(x):\n    return math.fsum([x, x])",
        },
        f"```python\ndef twice(x):\n{BODY}```",
        WRONG,
    ),
    "jsonl": (
        {"id": "own", "completion": "x = 1", "grader": {"kind": "exec"}},
        "x = 1",
        "raise ValueError",
    ),
}  # fmt: skip


def test_each_form_has_a_row_here() -> None:
    """Rows about repositories need their images: features/repositories has them."""
    assert set(ROWS) == set(get_args(Format)) - {*OF_VERIFIERS, *REPOSITORY_FORMS}


@pytest.mark.parametrize("form", ROWS)
def test_reference_and_right_completion_pass_and_a_wrong_one_fails(
    service: Service, tmp_path: Path, form: Format
) -> None:
    skip_without(*PROGRAMS.get(form, ()))
    row, right, wrong = ROWS[form]
    data, completions = tmp_path / "data.jsonl", tmp_path / "completions.jsonl"
    data.write_text(json.dumps(row))
    name = MAKERS[form](row, "data:1").id
    completions.write_text(
        "".join(json.dumps({"task_id": name, "completion": each}) + "\n" for each in (right, wrong))
    )
    base = ["eval", str(data), "--format", form]
    said = proctor(*base, PROCTOR_URL=service.url)
    if form in WITHOUT_REFERENCE:
        assert said.exit_code == 2
        assert "no reference solution" in said.output
    else:
        assert said.exit_code == 0, said.output
    report = tmp_path / "results.jsonl"
    more = ["--completions", str(completions), "--output", str(report)]
    said = proctor(*base, *more, PROCTOR_URL=service.url)
    assert said.exit_code == 1, said.output
    results = {each["sample"]: each for each in map(json.loads, report.read_text().splitlines())}
    assert results[0]["verdict"] == "passed", results[0]
    told = WRONG_VERDICTS.get(form)
    expected = (told,) if told else ("failed", "runtime_error")
    assert results[1]["verdict"] in expected, results[1]
