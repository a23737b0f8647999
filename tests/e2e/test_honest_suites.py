"""Tests as people write them, of which one right and one wrong program are judged."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Service

RETRY = """
import functools
def retry(n):
    def around(function):
        @functools.wraps(function)
        def again(*args):
            return function(*args){wrong}
        return again
    return around
"""
POINT = """
from dataclasses import dataclass
@dataclass(frozen=True)
class P:
    x: int
    y: int = {wrong}
"""
DOUBLE = "def f(text):\n    return text[::-1] {wrong}"
SUITES: dict[str, tuple[str, str, str, str]] = {
    # name: program, what makes it right, what makes it wrong, tests
    "a decorator in the body of a class": (RETRY, "", " + 1",
        "class A:\n    @retry(2)\n    def m(self, x):\n        return x + 1\nassert A().m(1) == 2"),
    "a name in the body of a class": (DOUBLE, "", "+ ''.join(text[:1])",
        "class A:\n    a = f('ab')\n    b = [each for each in f('cd')]\n"
        "assert (A.a, A.b) == ('ba', ['d', 'c'])"),
    "a name that the class binds, too": (DOUBLE, "", "+ text",
        "def g():\n    class A:\n        text = 'ab'\n        f = staticmethod(f)\n    return A\n"
        "class B:\n    text = f('ab')\n    def m(self, other=f('c')):\n        return f(other)\n"
        "assert (B.text, B().m()) == ('ba', 'c')"),
    "a test case with a class attribute": (DOUBLE, "", "+ text",
        "import unittest\nclass T(unittest.TestCase):\n    found = f('ab')\n"
        "    def test_a(self):\n        self.assertEqual(self.found, 'ba')\n"),
    "a test case with the tested class": (
        "class Stack(list):\n    def last(self):\n        return self[-1] {wrong}",
        "",
        "+ 1",
        "import unittest\nclass T(unittest.TestCase):\n    tested = Stack\n"
        "    def test_a(self):\n        self.assertEqual(self.tested([1, 2]).last(), 2)\n",
    ),
    "a variable for the function in a class": (
        DOUBLE,
        "",
        "+ text",
        "def t():\n    g = f\n    class A:\n        found = g('ab')\n"
        "        def m(self):\n            f = 1\n            return f\n"
        "        more = f('cd')\n    return A\nassert (t().found, t().more) == ('ba', 'dc')",
    ),
    "the docstring of a wrapped function": (RETRY, "", " + 1",
        "@retry(1)\ndef t(x):\n    'doc'\n    return x\nassert (t.__doc__, t(1)) == ('doc', 1)"),
    "a search in a generator": ("def f():\n    yield 1\n    yield {wrong}", "2", "3",
        "assert 2 in f()"),
    "hashes of objects": (POINT, "0", "__import__('random').random()",
        "assert hash(P(1)) == hash(P(1))\nassert P(1).y == 0"),
    "a data class as a dictionary": (POINT, "0", "7",
        "import dataclasses\nassert dataclasses.asdict(P(1)) == {'x': 1, 'y': 0}"),
    "a copy of a data class": (POINT, "0", "7",
        "from dataclasses import replace\nassert replace(P(1), x=5) == P(5, 0)"),
    "a coroutine function": ("{wrong}def f():\n    pass", "async ", "",
        "import asyncio\nassert asyncio.iscoroutinefunction(f)"),
    "the order of a set": ("def f(text):\n    return list(set(text)) {wrong}", "", "* 2",
        "assert f('abc') == list(set('abc'))"),
    "a text that is run": (DOUBLE, "", "+ text", "assert eval(\"f('ab')\") == 'ba'"),
    "statements that are run": (DOUBLE, "", "+ text", "exec(\"assert f('ab') == 'ba'\")"),
    "a text that is run and names nothing": (DOUBLE, "", "+ text",
        "assert f('ab') == eval(\"'b' + 'a'\")"),
}  # fmt: skip


def judged(service: Service, source: str, tests: str) -> dict[str, Any]:
    body = {
        "submissions": [{"completion": source}],
        "grader": {"kind": "asserts", "tests": [tests], "reveal": True},
        "extract": "none",
    }
    with service.client() as client:
        answer = client.post("/reward", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["results"][0]
    return found


@pytest.mark.parametrize("name", SUITES)
def test_the_right_program_passes_and_the_wrong_one_fails(service: Service, name: str) -> None:
    program, right, wrong, tests = SUITES[name]
    found = judged(service, program.replace("{wrong}", right), tests)
    assert (found["reward"], found["error"]) == (1.0, None), found
    found = judged(service, program.replace("{wrong}", wrong), tests)
    assert (found["reward"], found["error"]) == (0.0, None), found
