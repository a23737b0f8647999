"""Entry points of `calls` and `asserts`: functions, methods, and whichever of both a submission has."""

from __future__ import annotations

from typing import Any

from harness import Service
from judging import ask, calls, judge

FUNCTION = "def f(n): return 2 * n"
METHOD = "class Solution:\n    def f(self, n): return 2 * n"
STATIC = "class Solution:\n    @staticmethod\n    def f(n): return 2 * n"
CLASS = "class Solution:\n    @classmethod\n    def f(cls, n): return 2 * n"
HELPER = "def f(n, k): return k * n\nclass Solution:\n    def f(self, n): return f(n, 2)"
COUNTING = "class Solution:\n    n = 0\n    def f(self, n):\n        self.n += 2 * n\n        return self.n"
CACHED = "import functools\nclass Solution:\n    @functools.lru_cache(None)\n    def f(self, n): return 2 * n"
IMPORTED = (
    "from math import gcd\nclass Solution:\n    def gcd(self, n): return 2 * gcd(n, n)\n"
    "    def lcm(self, n): return 3 * n"
)
PARTIAL = "import functools, operator\nf = functools.partial(operator.mul, 2)"
ROWS: list[tuple[str, str, dict[str, Any], str]] = [
    ("f", FUNCTION, {}, "passed"),
    ("Solution().f", METHOD, {}, "passed"),
    ("Solution().f", STATIC, {}, "passed"),
    ("Solution().f", CLASS, {}, "passed"),
    ("Solution.f", STATIC, {}, "passed"),
    ("Solution.f", CLASS, {}, "passed"),
    ("Solution.f", METHOD, {}, "runtime_error"),
    ("f", METHOD, {}, "runtime_error"),
    ("Solution().f", FUNCTION, {}, "runtime_error"),
    ("f", METHOD, {"method": "either"}, "passed"),
    ("f", FUNCTION, {"method": "either"}, "passed"),
    ("f", CACHED, {"method": "either"}, "passed"),
    ("f", PARTIAL, {"method": "either"}, "passed"),
    ("f", HELPER, {"method": "either"}, "passed"),
    ("Solution().f", METHOD, {"method": "either"}, "passed"),
    ("gcd", IMPORTED, {"method": "either"}, "passed"),
    ("f", "x = 1", {"method": "either"}, "runtime_error"),
    ("f", "class Solution: pass", {"method": "either"}, "runtime_error"),
    (
        "f",
        "class Solution:\n    def f(self): pass\n    1 / 0",
        {"method": "either"},
        "runtime_error",
    ),
    ("ﬁb", "def fib(n): return 2 * n", {}, "passed"),
    ("ﬁb", "def ﬁb(n): return 2 * n", {}, "passed"),
    ("Solution().ﬁb", "class Solution:\n    def ﬁb(self, n): return 2 * n", {}, "passed"),
]
CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 6"
LOOP = "def check(candidate):\n    for n in range(4):\n        assert candidate(n) == 2 * n"


def test_each_form_calls_the_function_that_it_names(service: Service) -> None:
    items, expected = [], []
    for name, source, more, verdict in ROWS:
        graders: list[dict[str, Any]] = [calls(([2], 4), ([3], 6), name=name, **more)]
        graders += [
            {"kind": "asserts", "entry_point": name, "tests": [text], **more, **asked}
            for text in (CHECK, LOOP)
            for asked in ({}, {"integrity": "in_process"})
        ]
        items += [{"completion": source, "grader": grader} for grader in graders]
        expected += [verdict] * len(graders)
    results = judge(service, *items, negative_control="off")
    for item, result, verdict in zip(items, results, expected, strict=True):
        assert result["verdict"] == verdict, (item, result)


def test_a_method_is_called_apart_from_the_tests(service: Service) -> None:
    graders = [
        {"kind": "asserts", "entry_point": "f", "method": "either", "tests": [text]}
        for text in (CHECK, LOOP)
    ]
    items = [{"completion": text, "grader": g} for g in graders for text in (FUNCTION, METHOD)]
    found = [(each["verdict"], each["level"]) for each in judge(service, *items)]
    assert found == [("passed", "calls")] * 2 + [("passed", "values")] * 2


def test_each_call_has_a_new_object(service: Service) -> None:
    either = {"name": "f", "method": "either"}
    asserts = {"kind": "asserts", "entry_point": "f", "method": "either"}
    graders = [
        calls(([2], 4), ([3], 6), name="Solution().f"),
        calls(([2], 4), ([3], 6), **either),
        *({**asserts, "tests": [text]} for text in (CHECK, LOOP)),
        {**asserts, "tests": [CHECK], "integrity": "in_process"},
    ]
    results = judge(service, *({"completion": COUNTING, "grader": each} for each in graders))
    assert [each["verdict"] for each in results] == ["passed"] * len(graders)


def test_what_names_no_function_is_an_invalid_task(service: Service) -> None:
    names = ["f(", "f()", "a.b.f", "Solution(1).f", "Solution().a.f", "1f", "f g"]
    items = [{"completion": FUNCTION, "grader": calls(([2], 4), name=name)} for name in names]
    for result in ask(service, *items):
        assert result["error"]["reason"] == "invalid_task", result
        assert result["error"]["message"].startswith("entry_point: "), result
