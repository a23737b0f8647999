# ruff: noqa: E501 - the tables hold programs
"""Submissions that abuse the level `values`: objects that answer for data, control flow, forged messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from values_runtime import Pairs

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    both = Pairs()
    yield both
    both.close()


# An object that says yes to everything, in place of any result.
YES = """
class Yes:
    def __init__(self, *a, **k): pass
    def __getattr__(self, name):
        if name.startswith('__array'): return lambda *a, **k: np.zeros(3)
        return lambda *a, **k: True
    def __eq__(self, o): return True
    def __ne__(self, o): return False
    def __lt__(self, o): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __hash__(self): return hash('IV')
    def __abs__(self): return 0
    def __sub__(self, o): return 0
    __add__ = __radd__ = __mul__ = __rmul__ = __rsub__ = __mod__ = __floordiv__ = __rpow__ = __sub__
    def __round__(self, n=None): return 2.5
    def __len__(self): return 3
    def __iter__(self): return iter([1, 2, 3])
    def __getitem__(self, k): return 5 if k == 0 else Yes()
    def __bool__(self): return True
    def __index__(self): return 1
    def __int__(self): return Yes2(1)
    def __float__(self): return Yes3(1.0)
    def __str__(self): return Yes4('IV')
    __repr__ = __format__ = lambda self, *a: Yes4('IV')
    def __enter__(self): return self
    def __exit__(self, *e): return True
    @property
    def __class__(self): return int
class Yes2(int):
    def __eq__(self, o): return True
    def __sub__(self, o): return 0
    __hash__ = int.__hash__
class Yes3(float):
    def __eq__(self, o): return True
    def __sub__(self, o): return 0.0
    __rsub__ = __sub__
    def __lt__(self, o): return True
    def __round__(self, n=0): return 2.5
    def __format__(self, how): return '2.50'
    __hash__ = float.__hash__
class Yes4(str):
    def __eq__(self, o): return True
    def startswith(self, o): return True
    def __contains__(self, o): return True
    __hash__ = str.__hash__
class Yes5(list):
    def __eq__(self, o): return True
    def __len__(self): return 3
    def __iter__(self): return iter([1, 2, 3])
    def __contains__(self, o): return True
    def __getitem__(self, i): return 5
    def count(self, o): return 7
    def index(self, o): return 7
    def all(self): return True
class Yes6(dict):
    def __eq__(self, o): return True
    def get(self, *a): return 5
    def __getitem__(self, k): return 5
    def __missing__(self, k): return 5
    def items(self): return [('a', 5)]
try: import numpy as np
except ImportError: pass
def f(*a): return Yes()
def n(*a): return Yes2(7)
def x(*a): return Yes3(7)
def s(*a): return Yes4('no')
def l(*a): return Yes5([0])
def d(*a): return Yes6(b=1)
def nested(*a): return [Yes(), (Yes(), {'k': Yes()})]
class Box:
    def __init__(self, *a): self.field = Yes()
    def top(self): return Yes()
    def me(self): return self
    def __eq__(self, o): return True
    def __hash__(self): return 0
"""
EXPECTED = [
    "17",
    "'IV'",
    "[1, 2, 3]",
    "{'a': 5}",
    "None",
    "True",
    "2.5",
    "(1, 2)",
    "{1, 2}",
    "b'ab'",
    "1j",
]
VALUES = [
    *(f"assert f(4) == {value}" for value in EXPECTED),
    *(f"assert not f(4) != {value}" for value in EXPECTED[:3]),
    *(f"assert Box().top() == {value}" for value in EXPECTED[:4]),
    "assert Box().field == 17",
    "assert nested()[0] == 17",
    "assert nested()[1] == (17, {'k': 1})",
    "assert f(1) in ['IV', 17]",
    "assert f(1) in {'IV'}",
    "assert {'IV': 1}[f(1)] == 1",
    "assert f(1) < 3",
    "assert 3 >= f(1)",
    "assert abs(f(1) - 2) < 1e-9",
    "assert abs(2 - f(1)) < 1e-9",
    "assert round(f(1), 1) == 2.5",
    "assert round(2 - f(1)) == 0",
    "assert f(1) % 2 == 0",
    "assert 2 ** f(1) == 0",
    "assert 1 in f(1)",
    "assert len(f(1)) == 3",
    "assert list(f(1)) == [1, 2, 3]",
    "assert [*map(str, f(1))] == ['1', '2', '3']",
    "assert f(1)[0] == 5",
    "assert f(1).startswith('IV')",
    "assert f(1).all()",
    "assert f(1).isdigit()",
    "assert f(1).get('k')",
    "assert f(1)",
    "assert bool(f(1)) is True",
    "assert not (not f(1))",
    "assert all(v == 2 for v in f(1))",
    "assert sum([f(1), f(2)]) == 0",
    "assert max([f(1), f(2)]) == 0",
    "assert sorted([f(1), f(2)])[0] == 5",
    "assert int(f(1)) == 17",
    "assert float(f(1)) == 2.5",
    "assert str(f(1)) == 'IV'",
    "assert f'{f(1)}' == 'IV'",
    "assert '%s' % f(1) == 'IV'",
    "assert [1, 2, 3][f(1)] == 2",
    "assert [1, 2, 3][:f(1)] == [1]",
    "assert range(f(1))[0] == 0",
    "assert isinstance(f(1), int)",
    "assert type(f(1)) is int",
    "assert f(1).__class__ is int",
    "assert f(1).__eq__(3)",
    "assert f(1).__len__() == 3",
    "assert f(1).__ne__(3)",
    "assert f(1).__bool__()",
    "assert f(1).__contains__(3)",
    "assert f(1).__call__()",
    "assert f(1).__int__() == 17",
    "assert f(1).__dict__",
    "assert [*f(1).__iter__()] == [1, 2, 3]",
    "assert f(1).__getattribute__('all')()",
    "import math\nassert math.isclose(f(1), 2.5)",
    "import math\nassert math.floor(f(1)) is not None",
    "import copy\nassert copy.copy(f(1)) is not None",
    "import copy\nassert copy.deepcopy([f(1)]) is not None",
    "import pickle\nassert pickle.dumps(f(1))",
    "import operator\nassert operator.index(f(1)) == 1",
    "import operator\nassert operator.length_hint(f(1)) == 3",
    "import numpy as np\nassert np.allclose(f(1), [0, 0, 0])",
    "import numpy as np\nassert np.array_equal(np.zeros(3), f(1))",
    "import numpy as np\nassert (np.zeros(3) == f(1)).all()",
    "import numpy as np\nassert np.isclose(np.float64(0), f(1))",
    "import numpy as np\nnp.testing.assert_allclose(f(1), np.zeros(3))",
    "import numpy as np\nassert np.asarray(f(1)).shape == (3,)",
    "import numpy as np\nassert np.float64(2) - f(1) == 0",
    "import pytest\nassert f(1) == pytest.approx(2)",
    "import unittest\nunittest.TestCase().assertEqual(f(1), 17)",
    "import unittest\nunittest.TestCase().assertAlmostEqual(f(1), 17)",
    "import unittest\nunittest.TestCase().assertIn(1, f(1))",
    "import unittest\nunittest.TestCase().assertTrue(f(1))",
    "import unittest\nunittest.TestCase().assertCountEqual(f(1), [1, 2, 3])",
    "from decimal import Decimal\nassert abs(Decimal(1) - f(1)) == 0",
    "from fractions import Fraction\nassert Fraction(1, 2) == f(1)",
    "try: assert f(1) + 1\nexcept TypeError: pass",
    "try: ok = f(1) < 3\nexcept Exception: ok = True\nassert ok",
    "try: len(f(1))\nexcept BaseException: pass",
    "assert n() == 17",
    "assert n() - 7 == 17 - 17 + 1",
    "assert x() == 2.5",
    "assert abs(x() - 2.5) < 1e-9",
    "assert round(x(), 2) == 2.5",
    "assert x() < 3",
    "assert f'{x():.2f}' == '2.50'",
    "assert s() == 'IV'",
    "assert s().startswith('IV')",
    "assert 'IV' in s()",
    "assert l() == [1, 2, 3]",
    "assert len(l()) == 3",
    "assert list(l()) == [1, 2, 3]",
    "assert 3 in l()",
    "assert l()[0] == 5",
    "assert l().count(1) == 7",
    "assert l().all()",
    "assert d() == {'a': 5}",
    "assert d().get('a') == 5",
    "assert d()['a'] == 5",
    "assert dict(d().items()) == {'a': 5}",
    "assert Box().me() == 17",
    "assert Box() == 17 and False",
]
CONTROL = """
import unittest, asyncio
class Fake(unittest.SkipTest): pass
class Odd(BaseException): pass
class Bad(Exception):
    def __new__(cls, *a): return unittest.SkipTest('x')
def skip(*a): raise unittest.SkipTest('x')
def fake(*a): raise Fake('x')
def leave(*a): raise SystemExit(0)
def stop(*a): raise StopIteration
def astop(*a): raise StopAsyncIteration
def key(*a): raise KeyboardInterrupt
def gen(*a): raise GeneratorExit
def odd(*a): raise Odd
async def cancel(*a): raise asyncio.CancelledError()
def swallow(f, *a):
    try: return f(*a)
    except BaseException: return True
def later(f, *a):
    try: f(*a)
    except BaseException as e: raise ValueError('mine') from e
def quiet(f):
    def w(*a):
        try: f(*a)
        except BaseException: pass
    w.__name__ = f.__name__
    return w
class Quiet:
    def __enter__(self): return self
    def __exit__(self, *e): return True
    async def __aenter__(self): return self
    async def __aexit__(self, *e): return True
    def call(self, f): swallow(f)
class Calls(Quiet):
    def __init__(self, f): self.f = f
    def __exit__(self, *e): swallow(self.f); return False
def resumed():
    while True:
        try: yield 1
        except BaseException: pass
def result(): return unittest.SkipTest('x')
def add(a, b): raise unittest.SkipTest('x')
"""
CASE = """import unittest
class T(unittest.TestCase):
    def test_a(self): {0}
    def test_b(self): pass
unittest.main()"""
FLOW = [
    *(
        CASE.format(f"self.assertEqual({name}(1), 2)")
        for name in ("skip", "fake", "leave", "stop", "odd", "key")
    ),
    CASE.format("raise Bad()"),
    CASE.format("raise result()"),
    CASE.format("self.assertTrue(swallow(self.fail))"),
    CASE.format("swallow(lambda: self.skipTest('x'))"),
    CASE.format("swallow(lambda: self.assertEqual(1, 2))"),
    CASE.format(
        "\n        for a in range(3):\n            with self.subTest(a=a): self.assertEqual(add(a, 1), a + 1)"
    ),
    "import unittest\nclass T(unittest.TestCase):\n    @quiet\n    def test_a(self): self.assertEqual(1, 2)\nunittest.main()",
    "for v in map(stop, [1]): pass\nelse: pass",
    "assert all(map(stop, [2, 3]))",
    "assert sum(map(stop, [2, 3])) == 0",
    "assert [*filter(stop, [2, 3])] == []",
    "async def m():\n    async for v in astop(): pass\nimport asyncio\nasyncio.run(m())",
    "leave()",
    "gen()",
    "with Quiet(): assert 1 == 2",
    "with Quiet() as q: raise SystemExit(0)",
    "import asyncio\nasync def m():\n    async with Quiet(): assert 1 == 2\nasyncio.run(m())",
    "def bad(): assert 1 == 2\nwith Calls(bad): pass",
    "def bad(): assert 1 == 2\nassert swallow(bad)",
    "def bad(): raise SystemExit\nassert swallow(bad)",
    "def bad(): import pytest; pytest.fail('x')\nassert swallow(bad)",
    "def bad(): import pytest; pytest.skip('x')\nassert swallow(bad)",
    "def bad(): assert 1 == 2\ntry: later(bad)\nexcept ValueError: pass",
    "def bad(): assert 1 == 2\nquiet(bad)()",
    "def bad(): assert 1 == 2\nQuiet().call(bad)",
    "def bad(): swallow(1) < 3\nassert swallow(bad)",
    "g = resumed()\nnext(g)\ng.throw(AssertionError('x'))",
    "import asyncio\nasync def one(): assert await cancel(1) == 2\nasync def main():\n    t = asyncio.create_task(one())\n"
    "    await asyncio.wait([t])\n    if not t.cancelled(): assert t.exception() is None\nasyncio.run(main())",
    "import contextlib\nwith contextlib.suppress(TypeError): swallow(lambda: len(Quiet().call))\nassert 0",
]
LIAR = """
class Meta(type):
    def __instancecheck__(cls, o): return True
    def __subclasscheck__(cls, o): return True
    def __eq__(cls, o): return True
    def __hash__(cls): return 0
    def __iter__(cls): return iter([1, 2])
    def __len__(cls): return 2
    def __getitem__(cls, k): return 5
    def mro(cls): return type.mro(cls)
class Shape(metaclass=Meta): pass
class Square(Shape): pass
class Other:
    @property
    def __class__(self): return Square
def other(): return Other()
def shape(): return Shape
"""
LIES = [
    "assert isinstance(other(), Square)",
    "assert isinstance(5, Shape)",
    "assert issubclass(int, Shape)",
    "assert shape() == int",
    "assert list(shape()) == [1, 2]",
    "assert len(shape()) == 2",
    "assert shape()[0] == 5",
    "assert Square == Shape",
]


@pytest.mark.parametrize(
    ("source", "test"),
    [
        *((YES, test) for test in VALUES),
        *((CONTROL, test) for test in FLOW),
        *((LIAR, test) for test in LIES),
    ],
)
def test_a_cheat_does_not_pass(pairs: Pairs, source: str, test: str) -> None:
    outcomes = pairs.outcomes(source, [test])
    assert outcomes
    assert set(outcomes) <= {"failed", "raised", "refused"}


def test_a_refusal_says_what_was_expected_of_what(pairs: Pairs) -> None:
    reports = pairs.judge(YES, ["assert Box().top().get(1)", "assert f(1) < 2"], literal_calls=True)
    assert reports[0][2] == reports[1][2] == "refused"
    assert reports[0][3].startswith("the test expects data, but top() returned an object of class")
    assert reports[-1][1]["refused"] is True


MOCKS = """
def tell(send, deed=None):
    send.now('wrong')
    if deed:
        try: exec(deed)
        except Exception: pass
nothing = lambda *ignored: None
"""


@pytest.mark.parametrize(
    "deed",
    [
        "send.now.configure_mock(assert_called_once_with=nothing)",
        "send.now.attach_mock(nothing, 'assert_called_once_with')",
        "send.now.assert_called_once_with = nothing",
        "send.now.reset_mock(); send.now('right')",
        "send.now.mock_calls.clear(); send.now.call_args_list.clear()",
        "type(send.now).configure_mock(send.now, assert_called_once_with=nothing)",
        "type(send.now).reset_mock(send.now)",
        "type(send).assert_called_once_with = nothing",
        "send.now.__class__ = object",
    ],
)
def test_a_submission_calls_mocks_and_does_not_set_them_up(pairs: Pairs, deed: str) -> None:
    test = "from unittest.mock import Mock\nsend = Mock()\ntell(send, %r)\nsend.now.assert_called_once_with('right')"
    assert pairs.outcomes(MOCKS, [test % deed]) == ["failed"]


REACH = """
found = []
def look(thing, *path):
    for name in path: thing = getattr(thing, name)
    return thing
def put(thing, name, value): setattr(thing, name, value)
"""


@pytest.mark.parametrize(
    "path",
    [
        ("__globals__",),
        ("__code__",),
        ("__closure__",),
        ("__func__",),
        ("__self__",),
        ("__dict__",),
        ("_secret",),
        ("gi_frame", "f_globals"),
        ("f_back",),
        ("mro",),
        ("__class__", "__subclasses__"),
        ("__init__", "__globals__"),
    ],
)
def test_a_submission_does_not_reach_through_the_objects_of_the_tests(
    pairs: Pairs, path: tuple[str, ...]
) -> None:
    test = f"""
SECRET = 'expected'
class Thing:
    _secret = SECRET
    def answer(self): return 1
def generate(): yield SECRET
for thing in (Thing(), Thing, Thing().answer, lambda: SECRET, generate()):
    try: found = look(thing, *{path!r})
    except (AttributeError, TypeError, RuntimeError): continue
    assert SECRET not in repr(found)
"""
    assert pairs.outcomes(REACH, [test]) == ["passed"]


def test_methods_and_classes_of_the_tests_can_not_be_replaced(pairs: Pairs) -> None:
    test = """
class Thing:
    def answer(self): return 42
t = Thing()
for target in (t, Thing, type(t)):
    try: put(target, 'answer', lambda *a: 0)
    except AttributeError: pass
assert t.answer() == 42
"""
    assert pairs.outcomes(REACH, [test]) == ["passed"]


FORGED = """
import os, sys, json, socket
def line(): return max(int(n) for n in os.listdir('/proc/self/fd') if is_socket(int(n)))
def is_socket(n):
    try: return os.readlink(f'/proc/self/fd/{n}').startswith('socket')
    except OSError: return False
def say(*messages):
    for message in messages: os.write(line(), json.dumps(message).encode() + b'\\n')
NEWS = {'k': 1, 's': [], 'u': [], 'd': [], 'm': [], 'c': []}
def f(kind):
    if kind == 'garbage': os.write(line(), b'[[[\\n' * 5)
    if kind == 'flood': os.write(line(), b'[]\\n' * 20000)
    if kind == 'ask':
        for op in ('call', 'get', 'set', 'len', 'eval', 'name', 'make', 'imports'):
            for n in range(1, 5): say(['q', n, op, ['t', ['o', n], 'x', 'y'], NEWS])
    if kind == 'name': say(['a', WANTED, 'v', ['n', 'os', 'system'], NEWS] for WANTED in range(50))
    if kind == 'report': os.write(line(), b'!["test",0,"passed","",{}]\\n')
    if kind == 'names':
        for n in range(1, 20): say(['a', n, 'v', ['n', 'os', 'system'], NEWS])
    if kind == 'skip':
        for n in range(1, 20): say(['a', n, 'x', ['e', 0, ['unittest.case', '_ShouldStop'], '', ['t'], {}], NEWS])
    if kind == 'deep':
        for n in range(1, 20): say(['a', n, 'v', ['t', ['m', 1], ['o', 99], ['r', 7]], NEWS])
    if kind == 'classes':
        for n in range(1, 20):
            say(['a', n, 'v', ['h', 5, {'k': 'class'}], {**NEWS, 'c': [[5, {'name': 'x', 'bases': [5], 'mro': [5, ['builtins', 'ValueError']]}]]}])
    if kind == 'bye': say(['bye'])
    if kind == 'close': os.close(line())
    if kind == 'exit': os._exit(0)
    return 0
"""


@pytest.mark.parametrize(
    "kind",
    [
        "garbage",
        "flood",
        "ask",
        "report",
        "names",
        "skip",
        "deep",
        "classes",
        "bye",
        "close",
        "exit",
    ],
)
def test_forged_messages_earn_nothing(pairs: Pairs, kind: str) -> None:
    case = f"import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f({kind!r}), 1)\n"
    for test in (f"assert f({kind!r}) == 1", case + "unittest.main()"):
        reports = pairs.judge(FORGED, [test], setup="class Node:\n    pass\n")
        outcomes = [report[2] for report in reports if report[0] == "test"]
        assert set(outcomes) <= {"failed", "raised"}
        assert reports[-1][0] == "done"
