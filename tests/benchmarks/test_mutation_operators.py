"""The faults that `make mutants` makes in a text, and the lines that it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants.mutant import Mutant, read_list, write_list
from mutants.operators import is_sound, mutants_of, sample

TABLE = {
    "comparison": ("def f(a):\n    g(a < 3)\n", "comparison", ["g(a <= 3)", "g(a >= 3)"]),
    "parentheses": ("def f(a):\n    g((a) not  in (b))\n", "comparison", ["g((a) in (b))"]),
    "identity": ("def f(a):\n    g(a is not b)\n", "comparison", ["g(a is b)"]),
    "chain": ("def f(a):\n    g(a == b in c)\n", "comparison", ["g(a != b in c)", "g(a == b not in c)"]),
    "boolean": ("def f(a):\n    g(a and b or c)\n", "boolean", ["g(a or b or c)", "g(a and b and c)"]),
    "not": ("def f(a):\n    g(not a)\n", "not", ["g(a)"]),
    "number": ("def f(a):\n    g(2)\n", "constant", ["g(1)", "g(3)"]),
    "zero": ("def f(a):\n    g(0)\n", "constant", ["g(1)"]),
    "flag": ("def f(a):\n    g(True)\n", "constant", ["g(False)"]),
    "text": ("def f(a):\n    g('é', x)\n", "constant", ['g("", x)']),
    "empty text": ("def f(a):\n    g('')\n", "constant", ['g("mutant")']),
    "behind other letters": ("def f(a):\n    g(é, 0)\n", "constant", ["g(é, 1)"]),
    "module": ("MOST = 3\n", "constant", ["MOST = 2", "MOST = 4"]),
    "sum": ("def f(a):\n    g(a + b)\n", "arithmetic", ["g(a - b)"]),
    "in place": ("def f(a):\n    a += b\n", "arithmetic", ["a -= b"]),
    "sign": ("def f(a):\n    g(-a)\n", "arithmetic", ["g(a)"]),
    "return": ("def f(a):\n    return a\n", "return", ["return None"]),
    "answer": (
        "def f(a) -> bool:\n    return a or b\n",
        "return",
        ["return None", "return not (a or b)"],
    ),
    "call": ("def f(a):\n    g(a)\n", "deletion", ["pass"]),
    "raise": ("def f(a):\n    raise Fault\n", "deletion", ["pass"]),
    "attribute": ("def f(a):\n    a.b = a\n", "deletion", ["pass"]),
    "bound again": ("def f(a):\n    a = b\n", "deletion", ["pass"]),
    "bound once": ("def f(a):\n    c = b\n", "assignment", ["c = None"]),
    "break": ("for a in b:\n    break\n", "loop", ["continue"]),
    "continue": ("for a in b:\n    continue\n", "loop", ["break"]),
    "default": ("def f(a=1, *, b='x'): ...\n", "default", [
        "def f(a=0, *, b='x'): ...", "def f(a=2, *, b='x'): ...", 'def f(a=1, *, b=""): ...']),
    "if": ("def f(a):\n    if a:\n        pass\n", "condition", ["if False:", "if True:"]),
    "elif": (
        "def f(a):\n    if 1:\n        pass\n    elif a:\n        pass\n",
        "condition",
        ["elif False:", "elif True:"],
    ),
    "while": ("def f(a):\n    while a:\n        pass\n", "condition", ["while False:"]),
    "filter": (
        "def f(a):\n    g([b for b in a if b])\n",
        "condition",
        ["g([b for b in a if False])", "g([b for b in a if True])"],
    ),
}  # fmt: skip
"""Name → text, operator, and the changed lines."""
LEFT_ALONE = [
    '"""Text."""\n',
    'class A:\n    """Text."""\n',
    "def f(a: Literal['x'] = ...) -> 'A': ...\n",
    "__all__ = ['f']\n",
    "Kind = Literal['a', 'b']\n",
    "T = TypeVar('T')\n",
    "Number = int | float\n",
    "import a\n",
    "if TYPE_CHECKING:\n    a = 1\n",
    "log.warning('text', 1)\n",
    "def f(a):\n    log.warning('text %s', 1)\n",
    "@dataclass(frozen=True)\nclass A:\n    b: int\n",
    "class A:\n    def __init__(self, b):\n        self.b = b\n",
    "a = f'{b + 1}'\n",
]
FIRST = "def f(a):\n    if a == 1:\n        return 2\n    return 3\n\n\n"
SECOND = "def g(a):\n    if a == 1:\n        return f(a)\n"
SOURCE = FIRST + SECOND


@pytest.mark.parametrize("name", TABLE)
def test_each_operator_changes_one_piece_of_a_line(name: str) -> None:
    source, operator, expected = TABLE[name]
    changed = []
    for mutant in mutants_of("a.py", source):
        assert is_sound(mutant, source)
        if mutant.operator == operator:
            lines = mutant.applied(source).split("\n")
            assert lines != source.split("\n")
            changed.append(lines[mutant.line - 1].strip())
    assert sorted(changed) == sorted(expected)


@pytest.mark.parametrize("source", LEFT_ALONE)
def test_texts_without_behaviour_have_no_faults(source: str) -> None:
    assert mutants_of("a.py", source) == []


def test_a_sample_depends_on_the_seed_and_has_one_mutant_a_line() -> None:
    sources = {"a.py": SOURCE, "b.py": "MOST = 3\n"}
    mutants = sample(sources, 4, seed=1)
    assert mutants == sample(sources, 4, seed=1)
    assert len({(mutant.path, mutant.line) for mutant in mutants}) == 4
    assert mutants != sample(sources, 4, seed=2)
    assert len(sample(sources, 100, seed=1)) == 6  # a line of each statement


def mutant_of_second_function() -> Mutant:
    (mutant,) = (m for m in mutants_of("a.py", SOURCE) if m.line == 8 and m.after == "!=")
    return mutant


def test_a_mutant_is_found_again_where_lines_moved(tmp_path: Path) -> None:
    write_list(tmp_path / "list.json", [mutant_of_second_function()])
    (mutant,) = read_list(tmp_path / "list.json")
    later = "import a\n\n" + SOURCE
    assert mutant.line_in(later) == 10
    assert mutant.applied(later) == "import a\n\n" + FIRST + SECOND.replace("==", "!=")


def test_a_mutant_whose_line_is_gone_is_absent() -> None:
    mutant = mutant_of_second_function()
    later = FIRST
    assert mutant.line_in(later) is None
    with pytest.raises(ValueError, match="has no line"):
        mutant.applied(later)
