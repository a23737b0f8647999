"""What of a setup stands before the submission, decided from its text."""

from __future__ import annotations

import ast

import pytest

from proctor_service.judge.analysis.setups import split_setup

BEFORE = [
    "",
    "import math, os.path as p\nfrom typing import *\nX: List[int] = [math.pi, p.sep]",
    "class Node:\n    def __init__(self, v=None, *rest): self.v, self.w = v, [x for x in rest]",
    "def isBad(v):\n    global seen\n    seen = v\n    return later(v)\ndef later(v): return not v",
    "größe = 1; b = größe + 1\r\nc = b\r\n",
    "@property\ndef x(self): return [y for y in (1, 2) if (z := y)]\nprint(x)",
]
SPLIT = {
    "PI = 3\nX = f(PI)\nY = 1": ("PI = 3\n", "\nX = f(PI)\nY = 1"),
    "import math; X = f(1)": ("import math; ", "X = f(1)"),
    "é = 'ä'; X = Solution().run(é)": ("é = 'ä'; ", "X = Solution().run(é)"),
    "a = 1\n@cached\ndef g(): pass": ("a = 1\n", "\n@cached\ndef g(): pass"),
    "def g(x): return f(x)\nb = 2": ("", "def g(x): return f(x)\nb = 2"),
    "class A(Base): pass": ("", "class A(Base): pass"),
    "from solution import f\nx = 1": ("", "from solution import f\nx = 1"),
    "globals()['f']": ("", "globals()['f']"),
}


@pytest.mark.parametrize("text", BEFORE)
def test_a_setup_that_needs_nothing_stands_before(text: str) -> None:
    assert split_setup(text, ast.parse(text).body) == (text.replace("\r\n", "\n"), "")


@pytest.mark.parametrize("text", SPLIT)
def test_the_rest_stands_behind_with_its_line_numbers(text: str) -> None:
    assert split_setup(text, ast.parse(text).body) == SPLIT[text]
