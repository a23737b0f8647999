# ruff: noqa: E501 - the tables hold programs
"""Tests apart from the submission: what data carry in both directions, and what a submission gains by lying."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import Service, running_service
from judging import ask
from optional_programs import skip_without
from visible_folder import visible_python

from proctor_service.settings import Settings

PROGRAM = """
import array, asyncio, collections, functools, itertools, json, sys, types
class E(ValueError):
    def __init__(self, text, code): super().__init__(text); self.code = code
class G(Exception):
    def __str__(self): return 'from str'
def fail(x):
    if x == 0: raise E('bad', 7)
    if x == 1: raise KeyError('z')
    if x == 2: return int('q')
    if x == 3: json.loads('{"a":')
    if x == 4: open('/nonexistent/q')
    if x == 5: raise G()
    if x == 6: raise ExceptionGroup('two', [ValueError(1), KeyError(2)])
def guarded(h):
    try: return h()
    except ValueError as e: return 'caught ' + str(e)
    except ZeroDivisionError: return 'zero'
def retry(f, times):
    for left in reversed(range(times)):
        try: return f()
        except ValueError:
            if not left: raise
def safe(f):
    try: return f(), None
    except Exception as e: return None, e
def evens(n):
    for i in range(0, n, 2): yield i
    return 'done'
def mapped(f, xs): return map(f, xs)
def summed(g): return sum(g)
def first(items): return next(iter(items))
def perms(): return itertools.permutations([1, 2])
class Down:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if self.n == 0: raise StopIteration
        self.n -= 1
        return self.n
def down(n): return Down(n)
async def twice(x):
    await asyncio.sleep(0)
    return x * 2
async def count(n):
    for i in range(n): yield i
async def applied(f, x): return await f(x)
async def bad(): raise ValueError('no')
def append(d): d.append(1)
def nested(d): d['a'].append(2); d['b'] = 3
def same(x): return x
def ordered(x): x.sort(); return x
def turned(d): d.rotate(1)
def longer(b): b.extend(b'z')
def grown(s): s.add(9)
def swap(a, b): a[:], b[:] = b[:], a[:]
def each(xs, f):
    for i in range(len(xs)): xs[i] = 0; f(xs)
def raising(x): x.append(1); raise ValueError
def halved(a):
    for i in range(len(a)): a[i] //= 2
def compose(*fs): return functools.reduce(lambda f, g: f(g), fs)
def order(xs, key=None): return sorted(xs, key=key)
def apply(f, *a, **k): return f(*a, **k)
class Thing:
    def __init__(self, x): self.x = x
def make(x): return Thing(x)
def content(thing): return thing.x
class Money(float): pass
def money(x): return Money(x)
class Solution:
    made = 0
    def __init__(self, n=0): self.n = n; Solution.made += 1
    def f(self, x): self.n += 1; return x + self.n
def made(): return Solution.made
def view(d): return types.MappingProxyType(d)
def chain(*m): return collections.ChainMap(*m)
def pattern(p): import re; return re.compile(p)
def large(n): return list(range(n))
def moved(p): return type(p)(p.x + 1, p.y)
def step(n): return P(n, PI)
"""

SETUP = "from collections import namedtuple\nP = namedtuple('P', 'x y')\nPI = 3\ndef is_bad(v): return v > 4"
RAISES = "import pytest\nwith pytest.raises({}) as info:\n    fail({})\n"
HONEST = [
    RAISES.format("ValueError, match='bad'", 0) + "assert info.value.args == ('bad',) and info.value.code == 7",
    RAISES.format("KeyError, match='z'", 1),
    RAISES.format("ValueError, match='invalid literal'", 2),
    "import json\n" + RAISES.format("json.JSONDecodeError", 3) + "assert info.value.pos == 5",
    "try: fail(4)\nexcept FileNotFoundError as e: assert e.errno == 2 and e.filename == '/nonexistent/q'",
    "try: fail(5)\nexcept Exception as e: assert str(e) == 'from str' and type(e).__name__ == 'G'",
    "try: fail(6)\nexcept* ValueError: pass\nexcept* KeyError: pass\nelse: assert 0",
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        with self.assertRaises(ValueError) as c:\n"
    "            fail(0)\n        self.assertEqual(str(c.exception), 'bad')\nunittest.main(argv=['x'], exit=False)",
    "def h(): raise ValueError('x')\nassert guarded(h) == 'caught x' and guarded(lambda: 1 / 0) == 'zero'",
    "class My(Exception): pass\ndef h(): raise My('m')\ntry: guarded(h)\nexcept My as e: assert str(e) == 'm'",
    "n = []\ndef h():\n    n.append(1)\n    if len(n) < 3: raise ValueError\n    return 7\nassert retry(h, 3) == 7",
    "def h(): raise ValueError('last')\nr, e = safe(h)\nassert r is None and str(e) == 'last'",
    "import types\nassert isinstance(evens(3), types.GeneratorType) and list(evens(7)) == [0, 2, 4, 6]",
    "def whole():\n    r = yield from evens(3)\n    yield r\nassert list(whole()) == [0, 2, 'done']",
    "assert list(mapped(lambda x: x * 2, [1, 2])) == [2, 4] and list(perms()) == [(1, 2), (2, 1)]",
    "g = evens(5)\nnext(g)\nassert summed(g) == 6 and summed(x for x in range(4)) == 6",
    "assert first(iter([3, 4])) == 3 and first({7: 1}) == 7 and list(down(3)) == [2, 1, 0]",
    "import asyncio\nassert asyncio.run(twice(3)) == 6\nasync def test_a(): assert await twice(2) == 4",
    "import asyncio\nasync def main(): return [x async for x in count(3)]\nassert asyncio.run(main()) == [0, 1, 2]",
    "import asyncio\nasync def f(x): return x + 1\nassert asyncio.run(applied(f, 4)) == 5",
    "import asyncio\ntry: asyncio.run(bad())\nexcept ValueError as e: assert str(e) == 'no'",
    "d = []\nappend(d)\nassert d == [1]",
    "d = {'a': [1]}\nnested(d)\nassert d == {'a': [1, 2], 'b': 3}",
    "from collections import deque\nd = deque([1, 2, 3])\nturned(d)\nassert list(d) == [3, 1, 2]",
    "b = bytearray(b'a')\nlonger(b)\ns = {1}\ngrown(s)\nassert b == b'az' and s == {1, 9}",
    "a, b = [1], [2]\nswap(a, b)\nassert a == [2] and b == [1]",
    "x = [[1], [2]]\ny = same(x)\ny[0].append(5)\nassert x[0] == [1, 5]",
    "x = [3, 1, 2]\nassert ordered(x) == sorted(x)\nassert x == [1, 2, 3]",
    "x = [3]\nseen = []\neach(x, lambda v: seen.append(list(v)))\nassert seen == [[0]]",
    "x = []\ntry: raising(x)\nexcept ValueError: assert x == [1]\nassert ordered(x) == [1]",
    "import array\na = array.array('i', [4, 6])\nhalved(a)\nassert list(a) == [2, 3]",
    "x = [1]\nx.append(x)\ny = same(x)\nassert y[0] == 1 and len(y) == 2",
    "assert order(['b', 'A'], key=str.lower) == ['A', 'b'] and order([1, 3], lambda x: -x) == [3, 1]",
    "import operator\nassert apply(operator.add, 1, 2) == 3 and apply(max, [1, 2], key=lambda x: -x) == 1",
    "def f(a, b=2, *, c=3): return a, b, c\nassert apply(f, 1) == (1, 2, 3) and apply(f, 1, c=5) == (1, 2, 5)",
    "for i in range(3):\n    assert content(make(i)) == i and content(apply(make, i)) == i",
    "for x in (1, 2):\n    assert money(x) == x and isinstance(money(x), float)",
    "for i in range(3):\n    assert Solution().f(i) == i + 1\nassert made() == 3",
    "for d in ({'a': 1}, {}):\n    assert view(d) == d and dict(chain(d, {'b': 2})) == {'b': 2, **d}",
    "for t in ('a,b', 'x'):\n    assert pattern(',').split(t) == t.split(',')",
    "for n in (3 * 10**6,):\n    assert len(large(n)) == n",
    "for i in range(3):\n    assert moved(P(i, 2)) == P(i + 1, 2) == (i + 1, 2) and step(i) == (i, 3)",
    "assert same(float('nan')) != same(float('nan')) and same('\\ud800\\x00é') == '\\ud800\\x00é'",
]  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """Tests, a right program and wrong ones; a wrong one gets 0.0 and these signals."""

    tests: str
    right: str
    wrong: tuple[str, ...]
    signals: tuple[str, ...] = ()


SQUARE = "for n in (2, 3):\n    assert f(n) == n * n"
RIGHT = "def f(n): return n * n"
CATCHES = "try:\n    f(0)\n    ok = False\nexcept:\n    ok = True\nassert ok\nassert f(2) == 4"
DENIES = "def f(n):\n    if n == 0: raise ValueError\n    return n * n"
EXITS = (
    "SystemExit(0)",
    "SystemExit(3)",
    "KeyboardInterrupt",
    "GeneratorExit",
    "type('B', (BaseException,), {})()",
)
ATTACKS = [
    Attack(
        SQUARE,
        RIGHT,
        tuple(
            f"class Y:\n    __eq__ = __bool__ = __le__ = lambda *a: True\n    def __hash__(s): return 4\ndef f(n): return {made}"
            for made in ("Y()", "Y", "lambda: 4", "f")
        ),
        ("object_for_data",),
    ),
    Attack(
        SQUARE,
        RIGHT,
        tuple(
            f"class Y({kind}):\n    def __eq__(s, o): return True\n    __ne__ = lambda s, o: False\n    __hash__ = {kind}.__hash__\n"
            f"def f(n): return Y({value})"
            for kind, value in (("int", "0"), ("str", "''"), ("float", "0"), ("tuple", "()"))
        ),
    ),
    Attack(
        "for n in (7, 11):\n    assert is_prime(n)",
        "import re\ndef is_prime(n): return re.match('.', 'x')",
        ("class Y:\n    __bool__ = lambda s: True\ndef is_prime(n): return Y()",),
        ("object_for_data",),
    ),
    Attack(CATCHES, DENIES, tuple(f"def f(n): raise {each}" for each in EXITS[:2]), ("early_exit",)),
    Attack(
        CATCHES,
        DENIES,
        (*(f"def f(n): raise {each}" for each in EXITS[2:]), "import os\ndef f(n): os._exit(0) if n else 1 / 0"),
    ),
    Attack(
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        for n in (2, 3):\n"
        "            with self.subTest(n):\n                self.assertEqual(f(n), n * n)",
        RIGHT,
        (
            "import unittest\ndef f(n): raise unittest.SkipTest('no')",
            "import unittest.case\ndef f(n): raise unittest.case._ShouldStop",
            "import unittest.case\ndef f(n): raise unittest.case._UnexpectedSuccess",
            "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef f(n): return 0",
        ),
    ),
    Attack(
        "def gen():\n    for n in (2, 3):\n        yield f(n) == n * n\nassert all(gen())\nassert all(map(lambda n: f(n) == n * n, (2, 3)))",
        RIGHT,
        ("def f(n): raise StopIteration", "def f(n): raise StopAsyncIteration"),
    ),
    Attack(
        "from unittest import TestCase\nfor n in (2, 3):\n    assert f(n) == n * n",
        RIGHT,
        tuple(
            f"import builtins\nbuiltins.{name} = lambda *a: True\ndef f(n): return 0"
            for name in ("isinstance", "abs", "len", "type", "all")
        ),
    ),
    Attack(
        "import random\nr = random.Random(5)\nfor _ in range(3):\n    n = r.randint(1, 10**9)\n"
        "    assert f(lambda x: (x > n) - (x < n)) == n",
        "def f(c):\n    a, b = 0, 10**9\n    while a < b:\n        m = (a + b) // 2\n        if c(m) >= 0: b = m\n        else: a = m + 1\n    return a",
        (
            "import random\ndef f(c): return random.Random(5).randint(1, 10**9)",
            "def f(c): return c.__closure__[0].cell_contents",
            "def f(c): return c.__globals__['n']",
            "import gc\ndef f(c): return next((o['n'] for o in gc.get_objects() if type(o) is dict and 'n' in o and 'r' in o), 0)",
        ),
    ),
    Attack(
        "import numpy as np\nassert f(10) == 3628800\nassert abs(f(10) - 3628800) < 1",
        "def f(n): return 3628800",
        (
            "import numpy as np\ndef f(n): return np.float16('inf')",
            "import numpy as np\ndef f(n): return np.array(np.float16('inf'))[()]",
            "import numpy as np\ndef f(n): return np.complex64(np.inf)",
        ),
    ),
    Attack(
        "import numpy as np\nassert np.isclose(f(3), [1, 4, 9]).all()\nassert np.all(np.abs(f(3) - np.array([1, 4, 9])) < 1e-9)",
        "import numpy as np\ndef f(n): return np.array([1, 4, 9])",
        ("import numpy as np\ndef f(n): return np.empty((0, 1))", "import numpy as np\ndef f(n): return np.empty((0, 3))"),
    ),
]  # fmt: skip
LATER = "import sys\ndef seen(frame):\n    while frame:\n        yield from frame.f_locals.values()\n        frame = frame.f_back\n"


@pytest.fixture(scope="module")
def numpy_service() -> Iterator[Service]:
    """A service whose sandboxes have the interpreter of the tests, which has numpy."""
    with (
        visible_python() as python,
        running_service(Settings(sandbox_python=python), judge=None) as running,
    ):
        yield running


def judged(service: Service, *items: tuple[str, str], **fields: Any) -> list[dict[str, Any]]:
    """The results of programs and their tests."""
    found = []
    for start in range(0, len(items), 40):
        part = [
            {"completion": program, "grader": {"kind": "asserts", "tests": [tests], **fields}}
            for program, tests in items[start : start + 40]
        ]
        found += ask(service, *part)
    return found


def test_a_right_program_is_right(service: Service) -> None:
    results = judged(service, *((PROGRAM, tests) for tests in HONEST), setup=SETUP, reveal=True)
    told = [
        (tests, result["verdict"], result["integrity"], result["message"], result["error"])
        for tests, result in zip(HONEST, results, strict=True)
        if (result["reward"], result["integrity"], result["hack_signals"]) != (1.0, "separated", [])
    ]
    assert told == []


def test_a_wrong_program_gains_nothing(numpy_service: Service) -> None:
    skip_without("numpy")
    items = [(attack, program) for attack in ATTACKS for program in (attack.right, *attack.wrong)]
    results = judged(numpy_service, *((program, attack.tests) for attack, program in items))
    told = []
    for (attack, program), result in zip(items, results, strict=True):
        want = 1.0 if program == attack.right else 0.0
        signals = set() if want else set(attack.signals)
        if (result["reward"], result["integrity"]) != (want, "separated") or not signals <= set(
            result["hack_signals"]
        ):
            told.append((attack.tests, program, result))
    assert told == []


def test_nothing_of_the_tests_is_there_before_its_call(service: Service) -> None:
    """A plan of calls hands over one call at a time; a program that knows a later one would answer."""
    program = LATER + (
        "def f(n):\n    for value in seen(sys._getframe()):\n        if str(700 + 77) in repr(value): return n * n\n    return 0"
    )
    tests = ["assert f(5) == 25", "assert f(777) == 777 * 777"]
    (result,) = ask(service, {"completion": program, "grader": {"kind": "asserts", "tests": tests}})
    assert result["tests"]["passed"] == 1, result
    assert [each["index"] for each in result["tests"]["failures"]] == [0]


def test_an_answer_that_is_no_data_is_said_in_plain_words(service: Service) -> None:
    program = "class Box: pass\ndef f(n): return Box()"
    shown, hidden = (
        judged(service, (program, SQUARE), reveal=reveal)[0]["message"] for reveal in (True, False)
    )
    assert "the submission returned an object; these tests need data" in shown
    assert "Box" in shown
    assert "Box" not in hidden


def test_a_missing_function_is_a_failure_though_python_has_one_by_its_name(
    service: Service,
) -> None:
    for name, tests in (
        ("sorted", "assert sorted([2, 1]) == [1, 2]"),
        ("max", "for x in [[1, 2]]:\n    assert max(x) == 2"),
    ):
        (result,) = judged(service, ("def other(a): return a", tests), entry_point=name)
        assert (result["reward"], result["verdict"], result["integrity"]) == (
            0.0,
            "runtime_error",
            "separated",
        )
