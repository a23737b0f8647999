# ruff: noqa: E501 - the tables hold programs
"""Test code in a sandbox of its own: reports and messages at the level `values`."""

from __future__ import annotations

from typing import Any

import pytest
from values_runtime import Pairs

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


CHECKED = [
    {"source": "def check(c):\n    assert c(1) == 2", "run": [["check", "check", "f"]]},
    {"source": "async def check(c):\n    assert c(1) == 2", "run": [["check", "check", "f"]]},
    {"source": "def test_a():\n    assert f(2) == 3", "run": [["function", "test_a"]]},
    {
        "source": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(1), 2)",
        "run": [["cases", ["T"]]],
    },
    {
        "source": "def check(c):\n    assert c([4]) == 4",
        "run": [["check", "check", "Solution().first"]],
    },
]
RIGHT = "def f(x): return x + 1\nclass Solution:\n    def first(self, xs): return xs[0]"
WRONG = "def f(x): return x\nclass Solution:\n    def first(self, xs): return xs[-1:]"


@pytest.mark.parametrize("test", CHECKED)
def test_what_tests_define_is_run(pairs: Pairs, test: dict[str, Any]) -> None:
    assert pairs.outcomes(RIGHT, [test]) == ["passed"]
    assert pairs.outcomes(WRONG, [test]) == ["failed"]


@pytest.mark.parametrize("call", ["unittest.main()", "unittest.main(argv=['x'], exit=False)"])
def test_unittest_main_counts_by_its_result(pairs: Pairs, call: str) -> None:
    case = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(1), 2)\n"
    assert pairs.outcomes(RIGHT, [case + call]) == ["passed"]
    assert pairs.outcomes(WRONG, [case + call]) == ["failed"]
    assert pairs.outcomes(RIGHT, ["import unittest\n" + call]) == ["failed"]
    skipped = case.replace("def test_a", "@unittest.skip('x')\n    def test_a")
    assert pairs.outcomes(RIGHT, [skipped + call]) == ["failed"]


def test_a_setup_that_is_broken_by_itself_is_told_apart(pairs: Pairs) -> None:
    assert pairs.judge(RIGHT, ["assert f(1) == 2"], setup="1 / 0")[0][0] == "setup_failed"
    reports = pairs.judge(RIGHT, ["assert f(1) == 2"], setup="y = f('a')")
    assert [report[0] for report in reports] == ["test", "done"]
    assert reports[0][2] == "raised"


def test_the_report_counts_what_was_asked(pairs: Pairs) -> None:
    assert pairs.judge(RIGHT, ["assert True"], setup="import math")[-1] == [
        "done",
        {"asked": 0, "refused": False},
    ]
    assert pairs.judge(RIGHT, ["assert f(1) == 2"])[-1][1]["asked"] > 0


def test_messages_tell_the_class_and_the_line_and_quote_only_literal_calls(pairs: Pairs) -> None:
    source = (
        "class SECRET(ValueError): pass\ndef f(x): raise SECRET(f'saw {x}')\ndef g(x): return x"
    )
    hidden = pairs.judge(source, ["f('hidden')", "assert g('hidden') == 'expected'"])
    assert hidden[0][3] == "ValueError (line 2)"
    assert not any(word in str(hidden) for word in ("hidden", "expected"))
    assert "SECRET" not in hidden[0][3]
    quoted = pairs.judge(
        source, ["f('seen')", "assert g('seen') == 'expected'"], literal_calls=True
    )
    assert "saw seen" in quoted[0][3]
    assert "line 2" in quoted[0][3]
    assert "g('seen') returned 'seen'" in quoted[1][3]
    assert "expected" not in str(quoted)


def test_what_the_submission_imports_is_there_and_changes_no_built_in_name(pairs: Pairs) -> None:
    imports = [
        "import math",
        "import this, antigravity",
        "from sys import *",
        "from operator import add as abs",
        "import no_such_module",
    ]
    tests = ["assert math.floor(f(1) / 2) == 1 and abs(-2) == 2", "no_such_module.x"]
    assert pairs.outcomes(RIGHT, tests, imports=imports) == ["passed", "raised"]


def test_an_end_before_the_tests_is_told(pairs: Pairs) -> None:
    reports = pairs.judge("import os\nos._exit(0)", ["assert True"])
    assert reports[0][2] == "raised"
    assert reports[0][4]["gone"]


def test_a_failure_of_ours_before_the_tests_is_told_apart(pairs: Pairs) -> None:
    reports = pairs.judge(RIGHT, ["assert f(1) == 2"], names=[["no name"]])
    assert [report[0] for report in reports] == ["broken"]
    assert "Traceback" in reports[0][1]
