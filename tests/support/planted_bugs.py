"""Small projects with a planted bug each, laid out and tested as projects of data sets are.

Each has a way of its own to be found and run: `src/`, namespace packages, doctests, subtests, workers, a
build in C, an activated environment, names with blanks.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

RING = '''"""A ring of items."""


def push(ring, item, size=3):
    """Add an item, and drop the oldest.

    >>> push([1, 2, 3], 4)
    [2, 3, 4]
    """
    ring = [*ring, item]
    return ring[-size:]


def pop(ring):
    """Take the oldest item.

    >>> pop([1, 2])
    1
    """
    return ring[0]
'''
BUG = ("return ring[-size:]", "return ring[:size]")
WRONG = ("return ring[0]", "return ring[-1]")
FUNCTIONS = """from {module} import pop, push


def test_push():
    assert push([1, 2, 3], 4) == [2, 3, 4]


def test_pop():
    assert pop([1, 2]) == 1
"""
CLASSES = """import unittest

from ring import pop, push


class Ring(unittest.TestCase):
    def test_push(self):
        for size in (1, 2, 3):
            with self.subTest(size=size):
                self.assertEqual(push([1, 2, 3], 4, size), [1, 2, 3, 4][-size:])

    def test_pop(self):
        \"\"\"The oldest item comes first.\"\"\"
        self.assertEqual(pop([1, 2]), 1)


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def test_later(self):
        self.assertEqual(pop([1]), 1)
"""
PARAMETERS = """import pytest

from ring import pop, push

CASES = {"a b": [1, 2, 3], "ü/x": [5], "[x] - y": [7, 8, 9]}


@pytest.mark.parametrize("ring", CASES.values(), ids=CASES)
def test_push(ring):
    assert push(ring, 4)[-1] == 4


@pytest.mark.parametrize("text", ["", " ", "a::b", "100%"])
def test_pop(text):
    assert pop([text, 1]) == text


@pytest.mark.xfail(reason="not yet - later")
def test_later():
    assert pop([]) is None
"""
WORKERS = """import pytest

from ring import pop, push


@pytest.mark.parametrize("n", range(40))
def test_push(n):
    assert push([n, n, n], 99)[-1] == 99


@pytest.mark.parametrize("n", range(40))
def test_pop(n):
    assert pop([n, -1]) == n
"""
C_RING = """int oldest(const int *ring, int count) { return ring[0]; }
int newest(const int *ring, int count) { return ring[count - 1]; }
"""
C_TESTS = """import ctypes

LIBRARY = ctypes.CDLL("./libring.so")
RING = (ctypes.c_int * 3)(1, 2, 3)


def test_oldest():
    assert LIBRARY.oldest(RING, 3) == 1


def test_newest():
    assert LIBRARY.newest(RING, 3) == 3
"""
NODE_RING = """exports.push = (ring, item) => [...ring, item].slice(-3);
exports.pop = (ring) => ring[0];
"""
NODE_TESTS = """const { describe, it } = require('node:test');
const assert = require('node:assert');
const { push, pop } = require('../ring.js');

describe('ring', () => {
  describe('push', () => {
    it('drops the oldest', () => assert.deepStrictEqual(push([1, 2, 3], 4), [2, 3, 4]));
  });
  it('pops the oldest [first]', () => assert.strictEqual(pop([1, 2]), 1));
});
"""
WRITES_XML = """import sys
sys.path.insert(0, ".")
from ring import pop, push

cases = {"push": push([1, 2, 3], 4) == [2, 3, 4], "pop": pop([1, 2]) == 1}
lines = [
    f'<testcase classname="ring" name="{name}">{"" if ok else "<failure/>"}</testcase>'
    for name, ok in cases.items()
]
open("report.xml", "w").write(f"<testsuite>{''.join(lines)}</testsuite>")
"""
SETTINGS = """[tool.pytest.ini_options]
testpaths = ["testing"]
addopts = "--color=yes -v"
"""
ACTIVATE = """export CONDA_PREFIX="/opt/conda/envs/$1"
[ -d "$CONDA_PREFIX" ] || return 1
export PATH="$CONDA_PREFIX/bin:$PATH"
"""


RUNNER = """#!/bin/sh
exec python3 -m pytest "$@"
"""


@dataclass(frozen=True, slots=True)
class Planted:
    """A project: its files, the bug in one of them, and the lists of its tests."""

    files: Mapping[str, str]
    test: str | Sequence[str]
    fail_to_pass: Sequence[str]
    pass_to_pass: Sequence[str]
    source: str = "ring.py"
    bug: tuple[str, str] = BUG
    wrong: tuple[str, str] = WRONG
    report: Any = "pytest"
    fields: Mapping[str, Any] = field(default_factory=dict)
    image: Mapping[str, str] = field(default_factory=dict)
    """Files of the image outside of the repository."""
    builds: bool = False
    """The image has what the build of the sound source makes."""

    def diff(self, old: str, new: str) -> str:
        """A diff of the source with a bug."""
        lines = difflib.unified_diff(
            old.splitlines(keepends=True),
            new.splitlines(keepends=True),
            f"a/{self.source}",
            f"b/{self.source}",
        )
        return f"diff --git a/{self.source} b/{self.source}\n" + "".join(lines)

    def changes(self) -> dict[str, str]:
        """The planted bug, the right change, none, and a wrong one, as diffs."""
        sound = self.files[self.source]
        buggy = sound.replace(*self.bug)
        note = "diff --git a/notes.txt b/notes.txt\nnew file mode 100644\n--- /dev/null\n+++ b/notes.txt\n"
        return {
            "bug": self.diff(sound, buggy),
            "gold": self.diff(buggy, sound),
            "empty": f"{note}@@ -0,0 +1 @@\n+Looked at it.\n",
            "wrong": self.diff(buggy, buggy.replace(*self.wrong)),
        }


def _tests(path: str, *names: str) -> list[str]:
    return [f"{path}::{name}" for name in names]


_FLAT = {"ring.py": RING, "conftest.py": ""}
_PYTEST = "python3 -m pytest -rA"
_PUSH_IDS = [f"tests/test_ring.py::test_push[{name}]" for name in ("a b", "[x] - y")]
_POP_IDS = [f"tests/test_ring.py::test_pop[{name}]" for name in ("", " ", "a::b", "100%")]

PROJECTS: Mapping[str, Planted] = {
    "flat": Planted(
        _FLAT | {"tests/test_ring.py": FUNCTIONS.format(module="ring")},
        _PYTEST,
        _tests("tests/test_ring.py", "test_push"),
        _tests("tests/test_ring.py", "test_pop"),
    ),
    "src": Planted(
        {
            "src/rings/__init__.py": RING,
            "testing/test_ring.py": FUNCTIONS.format(module="rings"),
            "pyproject.toml": SETTINGS,
        },
        _PYTEST,
        _tests("testing/test_ring.py", "test_push"),
        _tests("testing/test_ring.py", "test_pop"),
        source="src/rings/__init__.py",
        image={"usr/lib/python3/dist-packages/__editable__.rings.pth": "/src_project/src\n"},
    ),
    "namespace": Planted(
        {
            "many/rings/__init__.py": RING,
            "test_ring.py": FUNCTIONS.format(module="many.rings"),
            "pytest.ini": "[pytest]\naddopts = --doctest-modules --import-mode importlib\n",
            "conftest.py": "import sys\nsys.path.insert(0, '.')\n",
        },
        _PYTEST,
        ["test_ring.py::test_push", "many/rings/__init__.py::rings.push"],
        ["test_ring.py::test_pop", "many/rings/__init__.py::rings.pop"],
        source="many/rings/__init__.py",
    ),
    "doctests": Planted(
        _FLAT | {"README.rst": ">>> from ring import pop\n>>> pop([3, 4])\n3\n"},
        f"{_PYTEST} --doctest-modules --doctest-glob=README.rst",
        ["ring.py::ring.push"],
        ["ring.py::ring.pop", "README.rst::README.rst"],
    ),
    "unittest": Planted(
        _FLAT | {"tests/__init__.py": "", "tests/test_ring.py": CLASSES},
        "python3 -m unittest -v",
        ["test_push (tests.test_ring.Ring)"],
        ["test_pop (tests.test_ring.Ring)", "tests.test_ring.Asynchronous.test_later"],
        report="unittest",
    ),
    "subtests": Planted(
        _FLAT | {"tests/test_ring.py": CLASSES},
        ["python3", "-m", "pytest", "-rA", "tests"],
        _tests("tests/test_ring.py", "Ring::test_push"),
        _tests("tests/test_ring.py", "Ring::test_pop", "Asynchronous::test_later"),
    ),
    "names": Planted(
        _FLAT | {"tests/test_ring.py": PARAMETERS},
        _PYTEST,
        _PUSH_IDS,
        [*_POP_IDS, *_tests("tests/test_ring.py", "test_push[\\xfc/x]", "test_later")],
    ),
    "workers": Planted(
        _FLAT | {"tests/test_ring.py": WORKERS},
        f"{_PYTEST} -n 2",
        [f"tests/test_ring.py::test_push[{n}]" for n in range(40)],
        [f"tests/test_ring.py::test_pop[{n}]" for n in range(40)],
    ),
    "conda": Planted(
        _FLAT | {"tests/test_ring.py": FUNCTIONS.format(module="ring")},
        "[ $CONDA_PREFIX = /opt/conda/envs/testbed ] && pytest-of-the-environment -rA",
        _tests("tests/test_ring.py", "test_push"),
        _tests("tests/test_ring.py", "test_pop"),
        fields={"activate": "conda:testbed"},
        image={
            "opt/conda/bin/activate": ACTIVATE,
            "opt/conda/envs/testbed/bin/pytest-of-the-environment": RUNNER,
        },
    ),
    "compiled": Planted(
        {"ring.c": C_RING, "tests/test_ring.py": C_TESTS},
        _PYTEST,
        _tests("tests/test_ring.py", "test_oldest"),
        _tests("tests/test_ring.py", "test_newest"),
        source="ring.c",
        bug=("return ring[0]", "return ring[1]"),
        wrong=("ring[count - 1]", "ring[count - 2]"),
        fields={"build": "gcc -shared -fPIC -o libring.so ring.c", "build_if": ["*.c"]},
        builds=True,
    ),
    "junit": Planted(
        _FLAT | {"checks.py": WRITES_XML},
        "python3 checks.py",
        ["ring.push"],
        ["ring.pop"],
        report={"junit": ["report.xml"]},
    ),
    "node": Planted(
        {"ring.js": NODE_RING, "test/ring.test.js": NODE_TESTS},
        "node --test test/",
        ["ring > push > drops the oldest"],
        ["ring > pops the oldest [first]"],
        source="ring.js",
        bug=(".slice(-3)", ".slice(0, 3)"),
        wrong=("ring[0]", "ring[1]"),
        report="node",
    ),
}
"""By name; the repository lies in the image's `/NAME_project`."""
