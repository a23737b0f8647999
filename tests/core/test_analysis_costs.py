"""The work of the analysis grows with the length of the tests, whatever they are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from proctor_client.wire import AssertsGrader
from proctor_service.judge.analysis.levels import analyse

LOOP = "for i in range(3):\n    assert f(i) == i"

SUITES: dict[str, Callable[[int], tuple[str, list[str]]]] = {
    "assignments": lambda n: ("x = 1\n" * n, [LOOP]),
    "assignments that read": lambda n: ("x = f(x)\n" * n, [LOOP]),
    "objects": lambda n: ("x = C(x)\n" * n, [LOOP, "assert len(x) == 1"]),
    "targets": lambda n: ("x = " * n + "1", [LOOP]),
    "tuples": lambda n: ("a, b = b, a\n" * n, [LOOP]),
    "walrus": lambda n: ("(x := 1)\n" * n, [LOOP]),
    "augmented": lambda n: ("x = 1\n" + "x += 1\n" * n, [LOOP]),
    "names in a row": lambda n: ("x0 = C()\n" + rows("x{next} = x{i}", n), [LOOP]),
    "names in circles": lambda n: (rows(f"x{{i}} = x{{i}}\nx{{i}} = y\ny = x{n - 1}", n), [LOOP]),
    "readings": lambda n: ("x = f\n" * n, [LOOP, "x(1).a\nf(x)\n" * n]),
    "attributes": lambda n: ("x = f(1)\n" * n, [LOOP, "x.a\nx.pop()\n" * n]),
    "attributes of self": lambda n: (
        "class A:\n  def m(self):\n" + "    self.a = C(self.a)\n" * n,
        [LOOP],
    ),
    "loops": lambda n: ("x = [C()]\n" + "for x in x: len(x)\n" * n, [LOOP]),
    "decorators": lambda n: ("@f\n" * n + "def g(x): return x", [LOOP, "g(1)\n" * n]),
    "definitions": lambda n: ("def g(x): return x\n" * n, [LOOP, "f(g)\n" * n]),
    "methods' objects": lambda n: ("c = C(x)\n" * n, [LOOP, "assert c.run() == x\n" * n]),
    "returns": lambda n: (
        "def g(x):\n" + "  if x: return x\n" * n,
        [LOOP, "assert g(f(1)) == 1\n" * n],
    ),
    "parameters": lambda n: ("def g(a): return a.b\n" + "g(f(1))\n" * n, [LOOP]),
    "imports": lambda n: ("import math as m\n" * n, [LOOP, "m.sqrt(1)\n" * n]),
    "classes": lambda n: (
        "class Test0: pass\n" + rows("class Test{next}(Test{i}): pass", n),
        [LOOP],
    ),
    "tests": lambda n: ("y = [1]", [LOOP, *(f"x{i} = f(y, z)" for i in range(n))]),
    "sides": lambda n: ("x = [1]", [LOOP, "assert " + " == ".join(["F(x)"] * n)]),
    "arguments": lambda n: (
        rows("a{i} = [1]", n),
        ["assert f(" + ", ".join(f"a{i}" for i in range(n)) + ") == 1"],
    ),
    "sums around a list": lambda n: (
        "",
        [LOOP, "assert f([" + "x, " * n + "])" + " + 1" * (n // 4) + " == 1"],
    ),
    "sums in conditions": lambda n: ("", ["assert f(1)" + " + 1" * (n // 4) + " == 1"]),
    "brackets in conditions": lambda n: (
        "",
        ["assert " + "1 + (" * (n // 4) + "f(1)" + ")" * (n // 4) + " == 1"],
    ),
    "strings": lambda n: ("", [LOOP, "assert f(f'" + "{x}" * n + "') == 1"]),
}


def rows(row: str, count: int) -> str:
    return "\n".join(row.format(i=i, next=i + 1) for i in range(count)) + "\n"


def calls_of(setup: str, tests: list[str]) -> int:
    """How many calls of functions, built-in ones included, an analysis makes."""
    grader = AssertsGrader(kind="asserts", setup=setup, tests=tests)
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        analyse(grader)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", SUITES)
def test_twice_the_text_is_twice_the_work(name: str) -> None:
    make = SUITES[name]
    assert calls_of(*make(160)) < 2.6 * calls_of(*make(80))


def test_a_call_of_what_calls_returned_is_no_more_work_than_its_text() -> None:
    def curried(count: int) -> int:
        return calls_of("x = [1]", [LOOP, "assert np.a" + ".b(x)" * count + " == x"])

    assert curried(24) < 3 * curried(8)


def test_constants_of_few_characters_are_computed_for_a_while_only() -> None:
    def tests(count: int) -> int:
        return calls_of("", [f"assert f({i}) == [0] * 100000" for i in range(count)])

    assert tests(240) < 2 * tests(60)


@pytest.mark.parametrize("helpers", [3, 6])
def test_helpers_that_call_each_other_are_written_out_for_a_while_only(helpers: int) -> None:
    setup = "def g0(x): return x\n" + rows(
        "def g{next}(x): return " + "+".join(["g{i}(x)"] * 12), helpers
    )
    assert calls_of(setup, [f"assert g{helpers}(f(1)) == 1"]) < 2_000_000
