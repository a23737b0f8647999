"""The share of tasks at each level of `asserts`, for data sets in the forms that trainers use.

    python bench/levels.py [--data ../shared/data]

MBPP is read unchanged. HumanEval's and LeetCode's forms are made of its problems, with the other
parts of real rows: metadata, messages, tolerances, and a loop in every thirtieth; MathQA's of
random formulas; ClassEval's of `unittest` suites. Works without a sandbox: the level is decided
from the tests alone.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proctor_client.wire import AssertsGrader
from proctor_service.errors import InvalidTask
from proctor_service.judge.analysis.levels import analyse

LEVELS = ("plan of calls", "test sandbox", "in_process", "invalid")
_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_CLASSES = {
    "Stack": ("s = Stack()", "s.push(2)", "self.assertEqual(s.pop(), 2)"),
    "Calculator": ("c = Calculator()", "r = c.add(1, 2)", "self.assertEqual(r, 3)"),
    "Account": ("a = Account(5)", "a.deposit(2)", "self.assertEqual(a.balance, 7)"),
    "Matrix": ("m = Matrix([[1]])", "r = m.rows()", "self.assertListEqual(r, [[1]])"),
    "Parser": ("p = Parser()", "r = p.parse('a=1')", "self.assertTrue(r['a'] == '1')"),
    "Calendar": ("c = Calendar()", "r = c.free(1)", "self.assertAlmostEqual(r, 1.0)"),
    "Guard": ("g = Guard()", "pass", "self.assertRaises(ValueError, g.enter, -1)"),
    "Store": ("s = Store('x.db')", "s.put(1)", "self.assertTrue(os.path.exists('x.db'))"),
    "Vector": ("v = Vector(1)", "w = Vector(1)", "self.assertEqual(v, w)"),
    "Queue": ("q = Queue()", "q.add(1)", "self.assertEqual(len(q), 1)"),
}


def mbpp(rows: list[dict[str, Any]]) -> Iterator[AssertsGrader]:
    """MBPP's own tests."""
    for row in rows:
        yield grader(row["test_list"], setup=row["test_setup_code"])


def humaneval(rows: list[dict[str, Any]]) -> Iterator[AssertsGrader]:
    """`check(candidate)` with metadata, messages and tolerances."""
    for number, row in enumerate(rows):
        name, calls = calls_of(row)
        lines = ["METADATA = {'author': 'me', 'dataset': 'test'}", "", "def check(candidate):"]
        for index, (arguments, expected) in enumerate(calls):
            call = f"candidate({arguments})"
            if expected.replace(".", "", 1).isdigit() and "." in expected:
                lines.append(f"    assert abs({call} - {expected}) < 1e-6")
            elif number % 5 == 0:
                lines.append(f"    assert {call} == {expected}, 'case {index}'")
            else:
                lines.append(f"    assert {call} == {expected}")
        if number % 3 == 0:
            lines.append("    assert True, 'This prints if this assert fails'")
        if number % 30 == 7:
            lines.append(f"    for _ in range(3):\n        {lines[3].strip()}")
        if calls:
            yield grader(["\n".join(lines)], entry_point=name)


def leetcode(rows: list[dict[str, Any]]) -> Iterator[AssertsGrader]:
    """`check(candidate)` with keywords, and an entry point such as `Solution().name`."""
    for row in rows:
        name, calls = calls_of(row)
        names = parameters_of(row, name)
        lines = ["def check(candidate):"]
        for arguments, expected in calls:
            parts = ast.parse(f"f({arguments})", mode="eval").body
            assert isinstance(parts, ast.Call)
            if len(parts.args) <= len(names):
                pairs = zip(names, map(ast.unparse, parts.args), strict=False)
                given = ",".join(f"{name} = {part}" for name, part in pairs)
                lines.append(f"    assert candidate({given}) == {expected}")
        if len(lines) > 1:
            imports = "from typing import *\nimport collections, math\nfrom itertools import *"
            yield grader(["\n".join(lines)], setup=imports, entry_point=f"Solution().{name}")


def mathqa(count: int) -> Iterator[AssertsGrader]:
    """A function without parameters, and a comparing helper."""
    chance = random.Random(7)
    helper = "import math\ndef compare(x, y):\n    return math.fabs(x - y) < 1e-8"
    for _ in range(count):
        answer = chance.uniform(-1e4, 1e4)
        test = f"{helper}\ncandidate = problem\nassert compare(candidate(), {answer})"
        yield grader([f"{test}\ndef check(x): pass"])


def classeval() -> Iterator[AssertsGrader]:
    """A `unittest.TestCase` for a class."""
    for name, (made, done, asserted) in _CLASSES.items():
        body = "\n".join(f"        {line}" for line in (made, done, asserted))
        case = f"class {name}Test(unittest.TestCase):\n    def test_1(self):\n{body}"
        yield grader([f"import os\nimport unittest\n\n{case}"])


def grader(tests: list[str], **fields: Any) -> AssertsGrader:
    """A grader of these tests."""
    return AssertsGrader(kind="asserts", tests=tests, **fields)


def calls_of(row: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """The function called by a problem's tests, with literal arguments and results."""
    name, found = "", []
    for test in row["test_list"]:
        node = ast.parse(test).body[0]
        match node:
            case ast.Assert(
                test=ast.Compare(
                    left=ast.Call(func=ast.Name(id=called)) as call, comparators=[expected]
                )
            ) if not row["test_setup_code"]:
                name = called
                found.append((", ".join(map(ast.unparse, call.args)), ast.unparse(expected)))
    return name, found


def parameters_of(row: dict[str, Any], name: str) -> list[str]:
    """The names of a reference's parameters."""
    for node in ast.walk(ast.parse(row["code"])):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [each.arg for each in node.args.args]
    return []


def level_of(each: AssertsGrader) -> str:
    """How a grader's tests are judged: the first two of LEVELS are `separated`."""
    try:
        found = analyse(each)
    except InvalidTask:
        return "invalid"
    if found.level == "in_process":
        return found.level
    return "test sandbox" if found.plan is None else "plan of calls"


def shares(data: Path) -> dict[str, Counter[str]]:
    """How many tasks of each form are at each level."""
    text = (data / "mbpp" / "mbpp.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    forms = {
        "MBPP": mbpp(rows),
        "HumanEval's form": humaneval(rows),
        "LeetCode's form": leetcode(rows),
        "MathQA's form": mathqa(500),
        "ClassEval's form": classeval(),
    }
    return {name: Counter(map(level_of, graders)) for name, graders in forms.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=_DATA)
    print("| form | tasks | " + " | ".join(LEVELS) + " |")
    print("|---|---|" + "---|" * len(LEVELS))
    for name, counts in shares(parser.parse_args().data).items():
        cells = [str(counts[level]) for level in LEVELS]
        print(f"| {name} | {counts.total()} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
