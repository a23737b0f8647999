"""Preludes, prompts and middles in Python: what the harness of a data set accepts is accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import Service
from judging import judge, stdio
from shared_data import shared_data

PROMPT = '''from typing import List
from math import floor


def twice(x: float) -> float:
    return 2 * x


def double_all(xs: List[float]) -> List[int]:
    """Double each number.
    >>> double_all([1.5])
    [3]
    """
'''
ENDS_AT_DEF = "import math\n\n\ndef double_all(xs):\n"
METHOD = "import math\n\n\nclass Solution:\n    def double_all(self, xs: list[float]) -> list[int]:\n        "
TESTS = "def check(candidate):\n    assert candidate([1.5, 2.0]) == [3, 4]\n    assert candidate([]) == []\n"
BODY = "    found = []\n    for x in xs:\n        found.append(floor(twice(x)))\n    return found\n"
LESS = "\n".join(line[4:] for line in BODY.splitlines())
WHOLE = "def double_all(xs: List[float]) -> List[int]:\n" + BODY
LATER = WHOLE.replace("List[int]", "Later")
SELF = "def double_all(self, xs):\n    return [math.floor(2 * x) for x in xs]"

CONTINUED = [
    (PROMPT, BODY),
    (PROMPT, BODY.rstrip()),
    (PROMPT, "\n" + BODY),
    (PROMPT, LESS),
    (PROMPT, BODY.removeprefix("    ")),
    (PROMPT, f"{BODY}\n\ndef other():\n    return 1\n\nprint(double_all([1]))"),
    (PROMPT, f"{BODY}```\nThis doubles."),
    (PROMPT, f"<think>\nA loop.\n</think>\n{BODY}"),
    (PROMPT, f"```python\n{BODY}```"),
    (PROMPT, f"Here:\n```python\n{LESS}\n```\nDone."),
    (PROMPT, f"<answer>\n{BODY}</answer>"),
    (PROMPT, WHOLE),
    (PROMPT, f"```python\n{WHOLE}```"),
    (PROMPT, "1. So:\n   ```python\n   " + WHOLE.replace("\n", "\n   ") + "\n   ```"),
    (PROMPT, PROMPT + BODY),
    (PROMPT, f"from __future__ import annotations\n\n{LATER}"),
    (PROMPT, '"""Doc."""\nfrom __future__ import annotations; import os\n' + LATER),
    (PROMPT, "double_all = lambda xs: [floor(twice(x)) for x in xs]"),
    (PROMPT.strip(), BODY),
    (PROMPT, WHOLE.replace("double_all", "\N{LATIN SMALL LETTER D}ouble_a\N{LATIN SMALL LETTER L}l")),
    (PROMPT, "async_names = 1\n" + WHOLE),
    (ENDS_AT_DEF, "return [math.floor(2 * x) for x in xs]"),
    (ENDS_AT_DEF, "    return [math.floor(2 * x) for x in xs]"),
    (ENDS_AT_DEF, "def double_all(xs):\n    return [math.floor(2 * x) for x in xs]"),
    (ENDS_AT_DEF, "# It doubles.\n    return [math.floor(2 * x) for x in xs]"),
]  # fmt: skip
METHODS = [
    "return [math.floor(2 * x) for x in xs]",
    "        found = [math.floor(2 * x) for x in xs]\n        return found",
    "found = [math.floor(2 * x) for x in xs]\nreturn found",
    f"```python\n{SELF}\n```",
    SELF,
    "    " + SELF.replace("\n", "\n    "),
    "class Solution:\n    " + SELF.replace("\n", "\n    "),
]
WRONG = [
    (PROMPT, "    return xs\n"),
    (PROMPT, "def double_all(xs):\n    return xs"),
    (PROMPT, "I do not know."),
    (PROMPT, "pass"),
    (PROMPT, "# nothing"),
    (PROMPT, ""),
    (ENDS_AT_DEF, "    return xs["),
]
"""In all of them, `double_all` of the prompt is not defined, or wrong."""


def _continued(prompt: str, completion: str, entry_point: str = "double_all") -> dict[str, Any]:
    grader = {"kind": "asserts", "tests": [TESTS], "entry_point": entry_point}
    return {"completion": completion, "grader": grader, "prompt_code": prompt}


def _differing(
    service: Service, rows: list[tuple[dict[str, Any], float]], **fields: Any
) -> list[Any]:
    results = judge(service, *(item for item, _ in rows), **fields)
    return [
        (item["completion"], result["verdict"], result["message"])
        for (item, reward), result in zip(rows, results, strict=True)
        if result["reward"] != reward
    ]


def test_a_completion_is_a_body_a_function_a_method_or_a_file(service: Service) -> None:
    rows = [(_continued(*each), 1.0) for each in CONTINUED]
    rows += [(_continued(METHOD, each, "Solution().double_all"), 1.0) for each in METHODS]
    rows += [(_continued(*each), 0.0) for each in WRONG]
    assert _differing(service, rows, extract="auto") == []


BEFORE = "def total(xs):\n    found = 0\n    for x in xs:\n"
BEHIND = "    return found\n"
MIDDLES = [
    "        found += x\n",
    "        found += x",
    "```python\n        found += x\n```",
    "```\n    for x in xs:\n        found += x\n    return found\n```",
    "    found = 0\n    for x in xs:\n        found += x\n",
    "        found += x\n    return found\n",
    BEFORE + "        found += x\n" + BEHIND,
    "def total(xs):\n    return sum(xs)",
]


def test_a_completion_fills_in_the_middle(service: Service) -> None:
    grader = {"kind": "asserts", "tests": ["assert total([1, 2]) == 3"], "entry_point": "total"}
    parts = [(BEFORE, each, BEHIND, 1.0) for each in MIDDLES]
    parts += [(BEFORE, "        found -= x\n", BEHIND, 0.0), (BEFORE, "Sum them.", BEHIND, 0.0)]
    parts += [
        ("def total(xs):\n    return su", "m(x for x in x", "s)\n", 1.0),
        ("def total(xs):\n    found = len('a b') - len('a", " ", "b')\n    return sum(xs) + found\n", 1.0),
        ("def total(xs):\n    return sum([", "x", " for x in xs])\n", 1.0),
    ]  # fmt: skip
    rows = [
        (
            {"completion": code, "grader": grader, "prompt_code": before, "suffix_code": behind},
            reward,
        )
        for before, code, behind, reward in parts
    ]
    assert _differing(service, rows, extract="auto") == []


PRELUDE = (
    "import sys\nfrom typing import *\nfrom collections import *\nsys.setrecursionlimit(50_000)\n"
)
DEEP = "def f(n: Optional[int]) -> int:\n    return 0 if n == 0 else 1 + f(n - 1)"


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_a_prelude_stands_before_the_submission_in_every_grader(
    service: Service, future: str
) -> None:
    code = future + DEEP
    method = (
        f"{future}class Solution:\n    def f(self, q: Deque[int]) -> int: return 1 + q.popleft()"
    )
    tests = {
        "test_solution.py": "from solution import f\n\n\ndef test_f():\n    assert f(3000) == 3000\n"
    }
    run = "import solution, sys; sys.exit(solution.f(3000) != 3000)"
    rows = [
        (code, {"kind": "calls", "entry_point": "f", "cases": [{"args": [3000], "expected": 3000}]}),
        (code, {"kind": "asserts", "tests": ["assert f(3000) == 3000"]}),
        (code, {"kind": "asserts", "tests": ["assert f(3000) == 3000"], "integrity": "in_process"}),
        (method, {"kind": "asserts", "tests": ["import queue\nassert Solution().f(queue.deque([1])) == 2"]}),
        (code, {"kind": "pytest", "files": tests}),
        (code, {"kind": "command", "argv": ["python", "-c", run]}),
        (f"{code}\nprint(f(int(input())))", stdio(("3000", "3000\n"))),
        (f"{code}\nassert f(3000) == 3000", {"kind": "exec"}),
        (code, {"kind": "exec", "setup": "import math", "tests": "assert f(3000) == math.floor(3000.5)"}),
    ]  # fmt: skip
    items = [({"completion": text, "grader": grader}, 1.0) for text, grader in rows]
    assert _differing(service, items, prelude=PRELUDE) == []
    own = [({**item, "prelude": ""}, 0.0) for item, _ in items]
    if not future:
        assert _differing(service, own, prelude=PRELUDE) == []


def test_the_cases_of_the_doors(service: Service) -> None:
    found = [json.loads(line) for line in shared_data("doors.jsonl").read_text().splitlines()]
    [request] = [each["request"] for each in found if each["id"] == "F01e"]
    rows = [json.loads(line) for line in shared_data("eval_rows.jsonl").read_text().splitlines()]
    [case] = [each for each in rows if each["id"] == "F16"]
    grader = {
        "kind": "asserts",
        "tests": [case["rows"][0]["test"]],
        "entry_point": case["rows"][0]["entry_point"],
    }
    reversed_list = {
        "completion": case["completions"][0]["completion"],
        "grader": grader,
        "prompt_code": case["rows"][0]["prompt"],
    }
    submissions = [*request["submissions"], reversed_list]
    for result in judge(service, *submissions, extract="auto"):
        assert result["reward"] == 1.0, result
