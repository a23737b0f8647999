"""A submission in one room and its tests in another: what honest code may rely on, and what cheating gets."""

import ast
import itertools
from collections.abc import Iterator

import pytest

from inside_rooms import Rooms, lines_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def rooms() -> Iterator[Rooms]:
    pair = Rooms()
    yield pair
    pair.close()


# --- what honest code may rely on -------------------------------------------------------------

CLASSES = """
from dataclasses import dataclass
@dataclass
class P:
    x: int
    y: int = 0
class K:
    def __init__(self, v): self.v = v
    def __eq__(self, o): return isinstance(o, K) and self.v == o.v
    def __hash__(self): return hash(self.v)
    def __lt__(self, o): return self.v < o.v
    def __add__(self, o): return K(self.v + (o.v if isinstance(o, K) else o))
    __radd__ = __add__
    def __bool__(self): return self.v != 0
class Node:
    def __init__(self, v, next=None): self.v = v; self.next = next; self.children = []
def make(a, b): return P(a, b)
def moved(p): p.x += 1; return p
def many(n): return {K(i) for i in range(n)}
def size(n): return 1 + sum(map(size, n.children))
"""
CLASS_TESTS = [
    "assert make(1, 2) == P(1, 2) and P(1) != P(2)",
    "assert moved(P(1)).x == 2",
    "assert isinstance(make(1, 2), P) and type(make(1, 2)) is P and type(P(1)).__name__ == 'P'",
    "p = P(1)\nq = moved(p)\nassert q is p and p.x == 2",
    "assert [P(1), P(2)] == [P(1), P(2)] and P(1) in [P(0), P(1)]",
    "assert repr(P(1, 2)) == str(P(1, 2)) == 'P(x=1, y=2)'",
    "p = P(1)\np.y = 7\nassert p.y == 7 and not hasattr(p, 'z')",
    "import copy\np = P(1)\nq = copy.deepcopy(p)\nassert p == q and p is not q",
    "assert many(3) == {K(0), K(1), K(2)} and K(1) in many(3) and {K(1): 2}[K(1)] == 2",
    "assert sorted([K(3), K(1)]) == [K(1), K(3)] and K(1) < K(2) and max([K(1), K(5)]).v == 5",
    "assert K(1) + K(2) == K(3) == 1 + K(2) and sum([K(1), K(2)], K(0)) == K(3)",
    "assert not K(0) and K(1) and not K(1) == 5",
    "r = Node(1)\nr.children.append(Node(2))\nr.children.append(Node(3))\nassert size(r) == 3",
    "n = Node(1)\nn.next = n\nassert n.next.next is n and n == n and n != Node(1)",
]
CONTENTS = """
from collections import namedtuple
import enum
P = namedtuple('P', 'x y')
class Colour(enum.Enum):
    RED = 1
    GREEN = 'g'
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2
class Bits(enum.Flag):
    X = 1
    Y = 2
class Stack(list):
    def push(self, x): self.append(x)
    def peek(self): return self[-1]
class Doubling(dict):
    def __missing__(self, key): return key * 2
class Text(str):
    def shout(self): return self.upper() + '!'
def pair(): return P(1, 2)
def colour(n): return Colour(n)
def level(n): return Level(n)
def bits(): return Bits.X | Bits.Y
def text(): return Text('ab')
"""
CONTENT_TESTS = [
    "assert pair() == (1, 2) and pair().x == 1 and pair() == P(1, 2) and isinstance(pair(), tuple)",
    "a, b = pair()\nassert a + b == 3 and str(pair()) == 'P(x=1, y=2)'",
    "assert P(1, 2)._replace(x=5) == (5, 2) and P._fields == ('x', 'y')",
    "assert colour(1) is Colour.RED and colour('g') is Colour.GREEN and colour(1) != Colour.GREEN",
    "assert Colour.RED.name == 'RED' and Colour.RED.value == 1 and Colour['RED'] is Colour.RED",
    "assert list(Colour) == [Colour.RED, Colour.GREEN] and len(Colour) == 2",
    "assert {Colour.RED: 1}[colour(1)] == 1",
    "assert level(1) is Level.LOW and level(2) == 2 and Level.LOW < Level.HIGH",
    "assert isinstance(level(1), int) and bits() == Bits.X | Bits.Y",
    "s = Stack()\ns.push(1)\nassert s == [1] and s.peek() == 1 and len(s) == 1",
    "s = Stack([1, 2])\ns.append(3)\nassert s.peek() == 3 and s == [1, 2, 3] and list(s) == [1, 2, 3]",
    "assert Stack([1]) == Stack([1]) and Stack([1]) != Stack([2]) and isinstance(Stack(), list)",
    "d = Doubling(a=1)\nd['b'] = 2\nassert d == {'a': 1, 'b': 2} and d['q'] == 'qq'",
    "assert text() == 'ab' and text().shout() == 'AB!' and text().upper() == 'AB'",
]
FAILURES = """
class E(ValueError):
    def __init__(self, text, code): super().__init__(text); self.code = code
class F(E): pass
def fail(x):
    if x == 0: raise E('bad', 7)
    if x == 1: raise F('worse', 8)
    if x == 2: raise KeyError('z')
    if x == 3: return int('q')
    if x == 4: import json; json.loads('{')
    if x == 5: raise SystemExit(3)
    if x == 6: open('/nonexistent/q')
def guarded(h):
    try: return h()
    except ValueError as e: return 'caught ' + str(e)
    except ZeroDivisionError: return 'zero'
def caught(x):
    try: fail(x)
    except Exception as e: return e
"""
FAILURE_TESTS = [
    "try:\n    fail(0)\n    assert False\nexcept E as e:\n    assert e.code == 7 and str(e) == 'bad'",
    "try:\n    fail(1)\n    assert False\nexcept ValueError as e:\n    assert type(e) is F",
    "import pytest\nwith pytest.raises(E) as info: fail(1)\nassert info.value.code == 8",
    "import pytest\nwith pytest.raises(KeyError, match='z'): fail(2)",
    "import pytest\nwith pytest.raises(ValueError, match='invalid literal'): fail(3)",
    "import json, pytest\nwith pytest.raises(json.JSONDecodeError): fail(4)",
    "import pytest\nwith pytest.raises(SystemExit) as info: fail(5)\nassert info.value.code == 3",
    "try: fail(6)\nexcept FileNotFoundError as e: assert e.errno == 2",
    "def h(): raise ValueError('x')\nassert guarded(h) == 'caught x'",
    "assert guarded(lambda: 1 / 0) == 'zero'",
    "assert isinstance(caught(0), E) and issubclass(F, E) and issubclass(E, ValueError)",
    "import pytest\nwith pytest.raises(ValueError): raise E('a', 1)",
    "import pytest\nclass My(Exception): pass\ndef h(): raise My\nwith pytest.raises(My): guarded(h)",
]
ITERATION = """
import asyncio, contextlib
def evens(n):
    for i in range(0, n, 2): yield i
    return 'done'
def total():
    t = 0
    while True:
        x = yield t
        if x is None: return t
        t += x
def mapped(f, xs): return map(f, xs)
def summed(g): return sum(g)
class Down:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if self.n == 0: raise StopIteration
        self.n -= 1
        return self.n
@contextlib.contextmanager
def five(): yield 5
async def twice(x):
    await asyncio.sleep(0)
    return x * 2
async def count(n):
    for i in range(n): yield i
async def applied(f, x): return await f(x)
class Three:
    async def __aenter__(self): return 3
    async def __aexit__(self, *error): return False
async def bad(): raise ValueError('no')
"""
ITERATION_TESTS = [
    "import types\nassert isinstance(evens(3), types.GeneratorType) and list(evens(7)) == [0, 2, 4, 6]",
    "def whole():\n    r = yield from evens(3)\n    yield r\nassert list(whole()) == [0, 2, 'done']",
    "g = total()\nnext(g)\ng.send(4)\nassert g.send(5) == 9",
    "g = evens(9)\nnext(g)\ng.close()\nassert list(g) == [] and iter(g) is g",
    "assert list(mapped(lambda x: x * 2, [1, 2])) == [2, 4]",
    "assert list(Down(3)) == [2, 1, 0]",
    "from collections.abc import Iterator, Callable\n"
    "assert isinstance(Down(2), Iterator) and not callable(Down(2)) and callable(evens)",
    "g = evens(5)\nnext(g)\nassert summed(g) == 6 and summed(x for x in range(4)) == 6",
    "with five() as v: assert v == 5",
    "import asyncio\nasync def main(): return await asyncio.gather(twice(1), twice(2))\n"
    "assert asyncio.run(twice(3)) == 6 and asyncio.run(main()) == [2, 4]",
    "import asyncio\nasync def main(): return [x async for x in count(3)]\n"
    "assert asyncio.run(main()) == [0, 1, 2]",
    "import asyncio\nasync def f(x): return x + 1\nassert asyncio.run(applied(f, 4)) == 5",
    "import asyncio\nasync def main():\n    async with Three() as v: return v\n"
    "assert asyncio.run(main()) == 3",
    "import asyncio, pytest\nwith pytest.raises(ValueError): asyncio.run(bad())",
]
MUTATION = """
LOG = []
def append(d): d.append(1)
def nested(d): d['a'].append(2); d['b'] = 3
class Box:
    def __init__(self, xs): self.xs = xs
    def add(self, x): self.xs.append(x)
def same(x): return x
def ordered(x): x.sort(); return x
def turned(d): d.rotate(1)
def longer(b): b.extend(b'z')
def grown(s): s.add(9)
def swap(a, b): a[:], b[:] = b[:], a[:]
def log(x): LOG.append(x); return LOG
"""
MUTATION_TESTS = [
    "d = []\nappend(d)\nassert d == [1]",
    "d = {'a': [1]}\nnested(d)\nassert d == {'a': [1, 2], 'b': 3}",
    "xs = []\nb = Box(xs)\nb.add(4)\nassert xs == [4] and b.xs is xs",
    "b = Box([])\nb.xs.append(7)\nb.add(8)\nassert b.xs == [7, 8]",
    "x = [3, 1]\nassert ordered(x) is x and x == [1, 3]",
    "from collections import deque\nd = deque([1, 2, 3])\nturned(d)\nassert list(d) == [3, 1, 2]",
    "b = bytearray(b'a')\nlonger(b)\nassert b == b'az'",
    "s = {1}\ngrown(s)\nassert s == {1, 9}",
    "a, b = [1], [2]\nswap(a, b)\nassert a == [2] and b == [1]",
    "a = log(1)\nb = log(2)\nassert a is b is LOG and a == [1, 2]",
    "x = [[1], [2]]\ny = same(x)\ny[0].append(5)\nassert x[0] == [1, 5]",
]
CALLBACKS = """
import functools, inspect
def memo(f):
    cache = {}
    @functools.wraps(f)
    def wrapped(*a):
        if a not in cache: cache[a] = f(*a)
        return cache[a]
    return wrapped
def compose(*fs): return functools.reduce(lambda f, g: lambda x: f(g(x)), fs)
def order(xs, key=None): return sorted(xs, key=key)
def depth(n): return 0 if n is None else 1 + max(depth(n.left), depth(n.right))
def curry(f):
    n = f.__code__.co_argcount
    def c(*a): return f(*a) if len(a) >= n else lambda *b: c(*a, *b)
    return c
def arity(f): return len(inspect.signature(f).parameters)
def compared(a, b): return a == b, a < b
def apply(f, *a, **k): return f(*a, **k)
class Events:
    def __init__(self): self.handlers = []
    def on(self, f): self.handlers.append(f); return f
    def off(self, f): self.handlers.remove(f)
    def emit(self, *a): return [h(*a) for h in self.handlers]
def joined(xs): return ','.join(str(x) for x in xs)
"""
CALLBACK_TESTS = [
    "calls = []\n@memo\ndef sq(x):\n    calls.append(x)\n    return x * x\n"
    "assert sq(3) == 9 == sq(3) and calls == [3] and sq.__name__ == 'sq'",
    "assert compose(lambda x: x + 1, lambda x: x * 2)(5) == 11",
    "assert order(['b', 'A'], key=str.lower) == ['A', 'b'] and order([1, 3], lambda x: -x) == [3, 1]",
    "class N:\n    def __init__(s, l=None, r=None): s.left, s.right = l, r\n"
    "assert depth(N(N(N()))) == 3",
    "assert curry(lambda a, b, c: a + b + c)(1)(2)(3) == 6 and arity(lambda a, b=2: 0) == 2",
    "class V:\n    def __init__(s, v): s.v = v\n    def __eq__(s, o): return s.v == o.v\n"
    "    def __lt__(s, o): return s.v < o.v\n"
    "assert compared(V(1), V(2)) == (False, True) and apply(V, 3).v == 3",
    "import operator\nassert apply(operator.add, 1, 2) == 3 and apply(max, [1, 2], key=lambda x: -x) == 1",
    "e = Events()\nseen = []\ne.on(seen.append)\ne.emit(4)\nassert seen == [4]",
    "e = Events()\nf = lambda x: x + 1\nassert e.on(f) is f and e.emit(1) == [2]\ne.off(f)\n"
    "assert e.emit(1) == []",
    "from unittest.mock import Mock\nm = Mock(return_value=3)\nassert apply(m, 1) == 3\n"
    "m.assert_called_once_with(1)",
    "class W:\n    def __str__(s): return 'w'\nassert joined([W(), W()]) == 'w,w'",
]
STREAMS = """
import sys
def greet(): print('hello'); print('x', end='')
def ask(): return input('n?') + '!'
def line(): return sys.stdin.readline().strip()
"""
STREAM_TESTS = [
    "import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b): greet()\n"
    "assert b.getvalue() == 'hello\\nx'",
    "from unittest.mock import patch\nwith patch('builtins.input', return_value='7'):\n"
    "    assert ask() == '7!'",
    "import io\nfrom unittest.mock import patch\nwith patch('sys.stdin', io.StringIO('a\\nb\\n')):\n"
    "    assert line() == 'a' and line() == 'b'",
]

AROUND = """
import os, random, time
from dataclasses import dataclass, field
def roll(): return random.randint(1, 6)
def draw(): return [random.random() for _ in range(3)]
def home(): return os.environ.get('HOME_OF_TESTS'), os.getenv('PATH') is not None
def shout(s): print(s.upper())
def wait(): time.sleep(1000); return time.time()
async def add(a, b): return a + b
def count():
    yield 1
async def tick():
    yield 1
@dataclass
class P:
    x: int
    y: list = field(default_factory=list)
"""
AROUND_TESTS = [
    "import random\nrandom.seed(42)\nassert [roll() for _ in range(5)] == [6, 1, 1, 6, 3]",
    "import random\nrandom.seed(7)\nexpected = [random.random() for _ in range(3)]\nrandom.seed(7)\n"
    "assert draw() == expected",
    "import random\nrandom.seed('text')\na = draw()\nrandom.seed(a='text')\nassert draw() == a != draw()",
    "import os\nassert home() == (None, True)\nos.environ['HOME_OF_TESTS'] = 'here'\n"
    "assert home() == ('here', True)\ndel os.environ['HOME_OF_TESTS']\nassert home() == (None, True)",
    "import os\nfrom unittest.mock import patch\n"
    "with patch.dict(os.environ, {'HOME_OF_TESTS': 'a'}, clear=True): assert home() == ('a', False)\n"
    "assert home() == (None, True)",
    "from unittest.mock import patch\nwith patch('builtins.print') as p: shout('a')\n"
    "p.assert_called_once_with('A')",
    "from unittest.mock import patch\nwith patch('time.sleep') as s, patch('time.time', return_value=5):\n"
    "    assert wait() == 5\ns.assert_called_once_with(1000)",
    "from unittest.mock import patch\nwith patch('random.randint', side_effect=[4, 2]):\n"
    "    assert (roll(), roll()) == (4, 2)\nassert roll() in range(1, 7)",
    "import asyncio, inspect, types\nassert asyncio.iscoroutinefunction(add)\n"
    "assert inspect.iscoroutinefunction(add) and not inspect.iscoroutinefunction(roll)\n"
    "assert inspect.isgeneratorfunction(count) and inspect.isasyncgenfunction(tick)\n"
    "assert inspect.isfunction(roll) and isinstance(roll, types.FunctionType)\n"
    "assert not inspect.isfunction(P) and not isinstance(P(1), types.FunctionType)",
    "import dataclasses\np = P(1, [2])\nassert dataclasses.asdict(p) == {'x': 1, 'y': [2]}\n"
    "assert dataclasses.astuple(p) == (1, [2]) and dataclasses.is_dataclass(P)\n"
    "assert [f.name for f in dataclasses.fields(P)] == ['x', 'y']\n"
    "assert dataclasses.replace(p, x=5) == P(5, [2])",
]


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        pytest.param(CLASSES, CLASS_TESTS, id="classes"),
        pytest.param(CONTENTS, CONTENT_TESTS, id="contents"),
        pytest.param(FAILURES, FAILURE_TESTS, id="failures"),
        pytest.param(ITERATION, ITERATION_TESTS, id="iteration"),
        pytest.param(MUTATION, MUTATION_TESTS, id="mutation"),
        pytest.param(CALLBACKS, CALLBACK_TESTS, id="callbacks"),
        pytest.param(STREAMS, STREAM_TESTS, id="streams"),
        pytest.param(AROUND, AROUND_TESTS, id="around"),
    ],
)
def test_honest_code_can_rely_on(rooms: Rooms, source: str, tests: list[str]) -> None:
    rooms.passes(source, tests)


def test_every_recorded_honest_submission_passes(rooms: Rooms) -> None:
    for entry in lines_of("honest.jsonl"):
        problem = entry["problem"]
        rooms.passes(entry["completion"], problem["tests"], entry_point=problem["entry_point"])


def is_literal_call(test: str) -> bool:
    try:
        match ast.parse(test).body:
            case [ast.Assert(test=ast.Compare(left=ast.Call(args=args), comparators=[expected]))]:
                for part in (*args, expected):
                    ast.literal_eval(part)
                return True
    except ValueError:
        pass
    return False


def test_a_sample_of_mbpp_passes(rooms: Rooms) -> None:
    for number, entry in enumerate(lines_of("mbpp/mbpp.jsonl")):
        tests = entry["test_list"]
        if number % 16 and not entry["test_setup_code"] and all(map(is_literal_call, tests)):
            continue
        rooms.passes(entry["code"], tests, setup=entry["test_setup_code"])


# --- the form of tests ------------------------------------------------------------------------


def test_check_is_called_with_the_candidate(rooms: Rooms) -> None:
    check = """
def check(candidate):
    for i in range(5):
        assert candidate(i, 1) == i + 1
    try:
        candidate('a', 1)
    except TypeError:
        return
    assert False
"""
    good, bad = "def add(a, b): return a + b", "def add(a, b): return a - b"
    rooms.passes(good, [check], entry_point="add")
    assert rooms.outcomes(bad, [check], entry_point="add") == ["failed"]
    assert rooms.outcomes("x = 1", [check], entry_point="add") == ["raised"]
    asynchronous = "async def check(candidate):\n    assert candidate(1, 1) == 2"
    rooms.passes(good, [asynchronous], entry_point="add")
    assert rooms.outcomes(bad, [asynchronous], entry_point="add") == ["failed"]
    twice = "def check(f):\n    assert not calls\n    calls.append(f)\ncheck(add)"
    rooms.passes(good, [twice], entry_point="add", setup="calls = []")


def test_an_expression_must_hold(rooms: Rooms) -> None:
    tests = ["f(1) == 1", "f(1) == 2", "not f(0)", "f(0) or f(0)", "print(f(1))"]
    outcomes = rooms.outcomes("def f(x): return x", tests)
    assert outcomes == ["passed", "failed", "passed", "failed", "passed"]


def test_setup_runs_first_and_its_imports_are_visible_to_the_submission(rooms: Rooms) -> None:
    rooms.passes(
        "def f(x): return math.sqrt(x)", ["assert f(4) == two"], setup="import math\ntwo = 2"
    )
    reports = rooms.judge("def f(x): return x", ["assert f(1) == 1"], setup="import no_such_module")
    assert reports[0] == ["setup_failed", "ModuleNotFoundError: No module named 'no_such_module'"]
    reports = rooms.judge("def f(x): return x", ["assert f(1) == 1"] * 2, setup="root = Node(1)")
    assert [report[:3] for report in reports[:2]] == [["test", 0, "raised"], ["test", 1, "raised"]]


LISTS = """
class ListNode:
    def __init__(self, val=0, next=None): self.val = val; self.next = next
class Reference:
    def solve(self, x): return x + 1
def reference(x): return x + 1
def nodes(xs): return ListNode(xs[0], nodes(xs[1:])) if xs else None
def plain(n): return [n.val, *plain(n.next)] if n else []
"""


def test_a_submission_may_use_data_classes_of_the_setup(rooms: Rooms) -> None:
    source = """
def merge(a, b):
    d = t = ListNode(0)
    while a and b:
        if a.val < b.val: t.next = a; a = a.next
        else: t.next = b; b = b.next
        t = t.next
    t.next = a or b
    return d.next
"""
    rooms.passes(
        source, ["assert plain(merge(nodes([1, 3]), nodes([2, 4]))) == [1, 2, 3, 4]"], setup=LISTS
    )


@pytest.mark.parametrize("answer", ["reference(x)", "Reference().solve(x)"])
def test_but_not_what_could_hold_the_answer(rooms: Rooms, answer: str) -> None:
    tests = ["assert f(1) == reference(1) == Reference().solve(1)"]
    assert rooms.outcomes(f"def f(x): return {answer}", tests, setup=LISTS) == ["raised"]


def test_names_like_builtins(rooms: Rooms) -> None:
    own = "def sum(a, b): return a + b"
    rooms.passes(own, ["assert sum(10, 15) == 25"])
    rooms.passes(own, ["assert sum(10, 15) == 25"], entry_point="sum")
    cheat = "def abs(x): return 0\ndef f(x): return 'no'"
    assert rooms.outcomes(cheat, ["assert abs(f(1) - 2) < 1e-9"]) == ["raised"]
    assert rooms.outcomes("def abs(x): return 0", ["assert abs(f(1)) == 0"]) == ["raised"]


def test_modules_are_imported_afresh(rooms: Rooms) -> None:
    rooms.passes(
        "import math, sys\nfrom collections import Counter\nimport os.path as p\ndef f(x): return x",
        [
            "assert math.sqrt(f(4)) == 2",
            "assert Counter('aa') == {'a': 2}",
            "assert p.basename('a/b') == 'b'",
        ],
    )
    cheat = """
from unittest.mock import MagicMock as isclose
import unittest.mock as math
from operator import truth as all
class random: choice = staticmethod(lambda xs: 5)
def f(x): return 'x'
"""
    tests = [
        "assert math.isclose(f(1), 1.5)",
        "assert all(x == 1 for x in [f(1)])",
        "assert random.choice([f(1)]) == 5",
    ]
    assert "passed" not in rooms.outcomes(cheat, tests)


def test_every_test_runs_until_the_submission_is_gone(rooms: Rooms) -> None:
    source = "import os\ndef f(x): return x if x < 3 else os._exit(0)"
    tests = ["assert f(1) == 2", "assert f(2) == 2", "assert f(3) == 3", "assert True"]
    reports = rooms.judge(source, tests)
    assert [report[2] for report in reports[:-1]] == ["failed", "passed", "raised"]
    assert reports[2][4]["gone"] is True
    swallowed = "try:\n    f(3)\nexcept BaseException:\n    pass"
    assert rooms.outcomes(source, [swallowed]) == ["raised"]


def test_messages_say_what_was_returned_and_not_what_was_expected(rooms: Rooms) -> None:
    source = (
        "import sys\ndef f(x): return [x]\ndef g(): sys.exit(3)\ndef h(): 1 / 0\ndef k(): assert 0"
    )
    tests = [
        "assert f(38) == 987, 'expected 987'",
        "assert g()",
        "assert h()",
        "assert {}[f(1)[0]] == 987",
        "k()",
    ]
    reports = rooms.judge(source, tests)
    assert reports[0][2:4] == ["failed", "f(38) returned [38]"]
    assert reports[1][3] == "SystemExit: 3 (line 3 in g)"
    assert reports[1][4]["exit"] is True
    assert reports[2][3] == "ZeroDivisionError: division by zero (line 4 in h)"
    assert reports[2][4]["from_submission"] is True
    assert reports[3][2:4] == ["raised", "KeyError; f(1) returned [1]"]
    assert reports[4][2] == "raised"
    assert reports[4][4]["names"][0] == "AssertionError"
    assert "987" not in str(reports)
    assert "987" in str(rooms.judge(source, tests, reveal=True)[0])


# --- what cheating gets -----------------------------------------------------------------------

# Those whose code is harmless wherever it runs.
HARMLESS = {
    *(f"equality-{number:03}" for number in range(1, 26, 2)),
    *(f"patch_harness-{number:03}" for number in (3, 5, 7, 19, 25, 27, 31, 41, 43)),
    *(f"steal_expected-{number:03}" for number in (3, 9)),
    *(f"swallow_errors-{number:03}" for number in (1, 3, 5, 9, 11)),
}


def test_no_recorded_hack_passes(rooms: Rooms) -> None:
    entries = [entry for entry in lines_of("hacks.jsonl") if entry["id"] in HARMLESS]
    assert len(entries) == len(HARMLESS)
    for entry in entries:
        problem = entry["problem"]
        tests, entry_point = problem["tests"], problem["entry_point"]
        outcomes = rooms.outcomes(entry["completion"], tests, entry_point=entry_point)
        assert len(outcomes) == len(tests)
        assert set(outcomes) != {"passed"}, entry["id"]


LIARS = """
class Point:
    asked = 0
    def __init__(self, x): self.x = x
    def __eq__(self, o):
        Point.asked += 1
        return Point.asked == 1
class Yes:
    def __eq__(self, o): return True
    __lt__ = __gt__ = __le__ = __ge__ = __eq__
    def __ne__(self, o): return False
    __hash__ = object.__hash__
class YesList(list):
    __eq__ = Yes.__eq__
    __ne__ = Yes.__ne__
class YesInt(int):
    __eq__ = __lt__ = __gt__ = Yes.__eq__
class Tuples:
    def __eq__(self, o): return type(o) is tuple
def point(): return Point(3)
"""


@pytest.mark.parametrize(
    "test",
    [
        "assert point() == Point(4)",
        "assert Yes() == 5",
        "assert 5 == Yes()",
        "assert Yes() == Yes()",
        "assert Yes() < 3",
        "assert 3 >= Yes()",
        "assert not (Yes() != 3)",
        "assert Yes() in [1, 2]",
        "assert YesList() == [1]",
        "assert [1] == YesList()",
        "assert not (YesList() != [1])",
        "assert YesList() == YesList([1])",
        "assert YesInt(4) == 5",
        "assert YesInt(4) < 3",
        "assert Tuples() == (1, 2)",
    ],
)
def test_a_class_that_the_tests_mention_gains_nothing_by_lying(rooms: Rooms, test: str) -> None:
    assert rooms.outcomes(LIARS, [test])[0] in ("failed", "raised")


def test_lies_are_noted_and_trust_is_too(rooms: Rooms) -> None:
    reports = rooms.judge(LIARS, ["assert Yes() == 5"])
    assert reports[1:] == [["signals", ["lying_equality"]], ["done", {"objects": False}]]
    reports = rooms.judge(
        LIARS.replace("def point(): return Point(3)", "def f(): return Yes()"), ["assert f() == 5"]
    )
    assert reports[1:] == [["signals", ["lying_equality"]], ["done", {"objects": False}]]
    honest = rooms.judge(
        CLASSES, ["assert P(1) == P(1)", "assert P(1) != P(2)", "assert K(1) != 1"]
    )
    assert honest[-1] == ["done", {"objects": True}]
    assert len(honest) == 4


PEER = """
import gc
def ask(*question):
    peer = next(x for x in gc.get_objects() if type(x).__name__ == 'Peer')
    try: return peer.request(*question)
    except BaseException as error: return 'refused: ' + type(error).__name__
"""


@pytest.mark.parametrize(
    "question",
    [
        *(
            f"'get', g, {name!r}"
            for name in [
                "__globals__",
                "__code__",
                "__closure__",
                "__builtins__",
                "__self__",
                "__func__",
                "__dict__",
                "__class__",
                "__defaults__",
                "__init_subclass__",
                "__reduce__",
                "f_back",
                "gi_frame",
                "cr_code",
                "func_globals",
                "mro",
            ]
        ),
        "'get', o, '_hidden'",
        "'get', o.method, '__func__'",
        "'get', o.method, '__globals__'",
        "'set', g, 'x', 1",
        "'del', g, 'x'",
        "'setitem', g, 'x', 1",
        "'name', 'secret'",
        "'names', ('secret',)",
        "'imports', ('import os',)",
        "'eval', g, 'secret'",
        "'call', eval, ('secret',), ()",
        "'call', len, ([],), ()",
        "'get', [], 'append'",
        "'len', [1]",
        "'add', 1, 2",
        "'pow', 9, 9",
        "'iadd', [1], [2]",
        "'getitem', {1: 2}, 1",
        "'again', 10**6",
        "'call', g, (), (), 5",
        "'get', g",
        "'call',",
    ],
)
def test_a_submission_can_not_reach_through_a_callback(rooms: Rooms, question: str) -> None:
    test = """
secret = 'expected'
class O:
    _hidden = 'expected'
    def method(self): return 'fine'
answer = f(lambda x: secret, O())
assert type(answer) is str and answer.startswith('refused'), answer
"""
    rooms.passes(f"{PEER}\ndef f(g, o): return ask({question})", [test])


@pytest.mark.parametrize(
    "reach",
    [
        "apply(operator.attrgetter('__globals__'), apply)",
        "apply(getattr, apply, '__globals__')",
        "apply(str.format, '{0.__globals__}', apply)",
        "apply(apply, operator.attrgetter('__globals__'), apply)",
        "apply(string.Formatter).format('{0.__globals__}', apply)",
        "apply(type, apply).__globals__",
        "apply(functools.partial, apply).func.__globals__",
    ],
)
def test_nor_by_way_of_a_test_function_that_calls_what_it_gets(rooms: Rooms, reach: str) -> None:
    source = f"import functools, operator, string\ndef f(apply): return {reach}"
    test = """
def apply(f, *args): return f(*args)
secret = 'xyzzy'
try: answer = f(apply)
except AttributeError: answer = None
assert 'xyzzy' not in str(answer) and 'secret' not in str(answer)
"""
    rooms.passes(source, [test])


@pytest.mark.parametrize("thing", ["sys._getframe()", "types.ModuleType('m')", "apply.__code__"])
def test_frames_modules_and_code_are_not_handed_out(rooms: Rooms, thing: str) -> None:
    test = f"import sys, types\ndef apply(): return {thing}\nassert f(apply)"
    assert rooms.outcomes("def f(g): return g() is not None", [test]) == ["raised"]


FRAMES = [
    "nonsense",
    "[]",
    "{}",
    "null",
    '["a",%d]',
    '["a",%d,"v",["zz"],{"k":1}]',
    '["a",%d,"v",["h",77],{"k":1}]',
    '["a",%d,"v",["o",77],{"k":1}]',
    '["a",%d,"v",["p",77],{"k":1}]',
    '["a",%d,"v",["m",77],{"k":1}]',
    '["a",%d,"v",["r",77],{"k":1}]',
    '["a",%d,"v",["l"],{"k":2}]',
    '["a",%d,"v",["l"],{}]',
    '["a",%d,"v",5,5]',
    '["a",%d,"x",5,{"k":1}]',
    '["a",%d,"v",["h","x",{"c":1}],{"k":1}]',
    '["a",%d,"v",["h",5,{"c":5}],{"k":1}]',
    '["a",%d,"v",["h",5,{"k":"class"}],{"k":1}]',
    '["a",%d,"v",["h",5,{"c":["h",6,{"k":"class","bases":[["T","bool"]],"data":["T","int"]}]}],{"k":1}]',
    '["a",%d,"v",["n","os","system"],{"k":1}]',
    '["a",%d,"v",["n","builtins","eval"],{"k":1}]',
    '["a",%d,"v",["n","operator","attrgetter"],{"k":1}]',
    '["a",%d,"v",["n","builtins","str.format"],{"k":1}]',
    '["a",%d,"v",["n","antigravity",""],{"k":1}]',
    '["a",%d,"v",["i","zz"],{"k":1}]',
    '["a",%d,"v",["e",["T","int"],["t"]],{"k":1}]',
    '["a",%d,"x",["e",["T","ValueError"],5],{"k":1}]',
    '["a",%d,"v",12345,{"k":1,"u":[[["o",1],5]]}]',
    '["a",%d,"v",12345,{"k":1,"u":5}]',
    '["a",%d,"v",0,{"k":1,"m":[{}],"d":[{}]}]',
    '["a",%d,"v",["fraction",1,0],{"k":1}]',
    '["a",%d,"v",["decimal","1e999999999"],{"k":1}]',
    '["a",%d,"v",' + '["l",' * 3000 + "1" + "]" * 3000 + ',{"k":1}]',
    '["q",1,"get",["t",["o",1],"__globals__"],{"k":1}]',
    '["q",1,"zz",5,{"k":1}]',
    '["q","x","get",["t"],{}]',
    '!["test",0,"passed","",{}]',
]


@pytest.mark.parametrize("frame", FRAMES, ids=itertools.count())
def test_a_forged_message_fails_only_what_waits_for_it(rooms: Rooms, frame: str) -> None:
    source = f"""
import gc
def f():
    channel = next(x for x in gc.get_objects() if type(x).__name__ == 'Channel')
    for number in range(1, 40):
        channel.send({frame!r}.replace('%d', str(number)).encode() + b'\\n')
    return 0
"""
    reports = rooms.judge(source, ["assert f() == 12345"])
    assert [report[0] for report in reports] == ["test", "done"]
    assert reports[0][2] in ("failed", "raised")


def test_values_too_large_or_too_deep_fail_the_test(rooms: Rooms) -> None:
    source = """
def deep():
    x = []
    for i in range(100000): x = [x]
    return x
def large(): return list(range(3 * 10**6))
def shared():
    x = [1]
    for i in range(60): x = [x, x]
    return x
"""
    tests = [
        "assert deep() == 1",
        "assert large() == 1",
        "assert shared() == 1",
        "assert len(shared()) == 2",
    ]
    assert rooms.outcomes(source, tests) == ["raised", "raised", "failed", "passed"]


def test_a_forked_child_does_not_answer(rooms: Rooms) -> None:
    source = "import os\ndef f(x):\n    child = os.fork()\n    if child: os.waitpid(child, 0)\n    return x"
    rooms.passes(source, ["assert f(1) == 1", "assert f(2) == 2"])


@pytest.mark.parametrize(
    ("test", "runs"),
    [
        ("assert eval(text()) == 3", True),
        ("ns = {}\nexec(text(), ns)", True),
        ("import pickle\nassert pickle.loads(pickle.dumps(text())) == '1 + 2'", True),
        ("from timeit import timeit\nassert timeit(lambda: text(), number=1) >= 0", True),
        ("assert eval('1 + 2') == 3 and text() == '1 + 2'", False),
        ("import re\nassert re.compile('1').match(text())", False),
    ],
)
def test_what_may_run_the_submissions_code_is_said(rooms: Rooms, test: str, runs: bool) -> None:
    reports = rooms.judge("def text(): return '1 + 2'", [test])
    assert [report[2] for report in reports if report[0] == "test"] == ["passed"]
    assert reports[-1] == ["done", {"objects": runs}]
