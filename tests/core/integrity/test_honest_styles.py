# ruff: noqa: E501 - the tables hold programs
"""Right programs and tests of the forms that data sets have, each of which plain Python accepts in one file."""

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
import collections, functools, ipaddress, itertools, operator
from fractions import Fraction
def same(x): return x
def call(f, *a): return f(*a)
def above(n): return lambda x: x > n
def constant(x): return lambda *_: x
def compose(*fs): return lambda x: functools.reduce(lambda value, f: f(value), fs, x)
def item(n): return operator.itemgetter(n)
def double(x): return x * 2
def counts(s): return {c: s.count(c) for c in s}
def words(): return ['b', 'a', 'c']
def value_of(x): return x.value
def size(x): return len(x)
def area(s): return s.w * s.h
def address(s): return ipaddress.ip_address(s)
def network(s): return ipaddress.ip_network(s)
def inside(n, a): return a in n
def flat(x):
    for each in x:
        if isinstance(each, list): yield from flat(each)
        else: yield each
def shared(n): a = [n]; return [a, a]
def grouped(pairs):
    d = collections.defaultdict(list)
    for k, v in pairs: d[k].append(v)
    return d
def tree():
    t = lambda: collections.defaultdict(t)
    made = t(); made['a']['b'] = 1
    return made
def later(x, seen=[]): seen.append(x); return seen
total = 0
def add(n):
    global total
    total += n
    return total
class Empty(Exception):
    'none left'
def pop(xs):
    if not xs: raise Empty
    return xs.pop()
def named(f, *a):
    try: f(*a)
    except Exception as e: return type(e).__name__, str(e)
def third(n): return Fraction(n, 3)
Point = collections.namedtuple('Point', 'x y')
def point(x, y): return Point(x, y)
ORIGIN = point(0, 0)
def origin(): return ORIGIN
def far(a, b): return abs(a.x - b.x) + abs(a.y - b.y)
def furthest(points): return max(points, key=lambda p: p.x)
class Text(str):
    def shout(self): return self + '!'
def text(x): return Text(x)
def area_of(r): return PI * r
PI = 3
class Solution:
    def sort(self, xs, key=None): return sorted(xs, key=key)
    def drop(self, xs, v):
        while v in xs: xs.remove(v)
        return len(xs)
    def guess(self, n): return next(v for v in range(n) if knows(v))
"""
SEPARATED = [
    "from functools import cache, lru_cache\n@cache\ndef oracle(n): return n + n\nfor i in range(4): assert double(i) == oracle(i)\nassert call(oracle, 2) == lru_cache(double)(2) == 4",
    "d = counts('xyy')\nassert max(counts('aab'), key=counts('aab').get) == 'a' and sorted(d, key=d.get) == ['x', 'y']",
    "assert sorted('ca', key=words().index) == ['a', 'c'] and list(map(counts('ab').get, 'aq')) == [1, None]",
    "assert list(map(double, [1])) == [2] and sorted([3, 1], key=double) == [1, 3] and [g(1) for g in (double, abs)] == [2, 1]",
    "from itertools import accumulate, groupby\nassert [*accumulate(words())] == ['b', 'ba', 'bac'] and [k for k, g in groupby(words(), key=len)] == [1]",
    "import ipaddress\nassert str(address('127.0.0.1')) == '127.0.0.1' and address('::1') == ipaddress.IPv6Address(1)",
    "import ipaddress\nassert inside(ipaddress.ip_network('10.0.0.0/8'), ipaddress.ip_address('10.1.1.1')) and address('1.2.3.4') in network('1.2.3.0/24')",
    "a, *b = flat([[1], 2, [[3]]])\nassert (a, b) == (1, [2, 3]) and 2 in flat([[2]]) and max(flat([4, [5]])) == 5",
    "s = shared(1)\ns[0].append(2)\nassert s == [[1, 2], [1, 2]]",
    "r = grouped([('a', 1), ('a', 2)])\nassert r == {'a': [1, 2]} and r['q'] == [] and tree()['a']['b'] == 1 and tree() == {'a': {'b': 1}}",
    "assert later(1) == [1] and later(2) == [1, 2] and later(3, []) == [3]",
    "assert add(1) == 1\nassert add(2) == 3\ndef test_more():\n    assert add(0) == 3",
    "try: pop([])\nexcept Exception as e: assert type(e).__name__ == 'Empty' and e.args == () and str(e) == ''",
    "class Mine(Exception): pass\ndef boom(): raise Mine('x', 1)\nassert named(boom) == ('Mine', \"('x', 1)\") and named(pop, []) == ('Empty', '')",
    "assert third(1) + third(1) == third(2) and third(3) == 1 and str(third(1)) == '1/3' and third(1) < 0.5",
    "assert text('ab') == 'ab' and text('a').upper() == 'A' and {'a': 1}[text('a')] == 1 and isinstance(text(1), str)",
    "p = point(1, 2)\nassert far(p, point(3, 4)) == 4 and p == (1, 2) and far(furthest([p, point(5, 6)]), p) == 8\nfor i in range(3000): assert far(point(i, 0), p) >= 2\no, q = origin(), origin()\nassert far(o, q) == 0 and far(o, p) == 3",
    "PI = 100\ndef counts(x): return -x\nassert area_of(2) == 6 and counts(1) == -1",
    "from math import *\nfrom collections import *\nassert isclose(same(pi), pi) and Counter(words()) == Counter('abc')",
    "match same([1, 2]):\n    case [a, *rest]: assert (a, rest) == (1, [2])\nif (n := size(words())) != 3: raise AssertionError(n)",
    "x = [3, 2, 3]\nk = Solution().drop(x, 3)\nassert k == 1 and x[:k] == [2] and Solution().sort(['b', 'A'], key=str.lower) == ['A', 'b']",
    "assert type(same(-0.0)) is float and str(same(-0.0)) == '-0.0' and same(10**400) == 10**400 and same(True) is True and same(1e-320) == 1e-320",
    "import sys\nprint(double(2))\nassert double(sys.maxsize) // 2 == sys.maxsize and print(same('é')) is None",
]
"""Judged apart from the submission."""
BESIDE = [
    "assert list(map(compose(double), [1])) == [2]",
    "assert [*filter(above(1), [1, 2])] == [2] and sorted([(1, 2), (2, 1)], key=item(1)) == [(2, 1), (1, 2)]",
    "from functools import reduce\nfrom itertools import accumulate, takewhile\nassert reduce(constant(4), [1, 2]) == 4 and [*accumulate([1, 2], constant(5))] == [1, 5] and [*takewhile(above(1), [2, 1])] == [2]",
    "from collections import defaultdict\nassert defaultdict(constant(7))['x'] == 7 and callable(above(1))",
    "assert compose(double, double)(1) == 4\ng = compose(double, abs)\nassert g(-1) == 2",
    "from enum import Enum\nclass C(Enum):\n    A = 1\n    B = 2\nassert value_of(C.A) == 1 and [value_of(c) for c in C] == [1, 2] and same([C.B]) == [C.B]",
    "from types import SimpleNamespace as N\nassert area(N(w=2, h=3)) == 6",
    "import collections, time\nassert size(collections.UserList([1])) == size(collections.UserDict(a=1)) == 1 and size(time.gmtime(0)) == 9",
    "def knows(v): return v == 3\nassert Solution().guess(9) == 3",
    "sort = Solution().sort\nassert sort([2, 1]) == [1, 2]\ns = Solution()\nassert s.sort([2, 1]) == [1, 2]",
]
"""Need more than data: judged as plain Python does it."""
NUMPY_PROGRAM = "import numpy as np\ndef single(x): return np.float32(x)\ndef zeros(n): return np.zeros(n)\ndef same(x): return x"
NUMPY = [
    ("assert single(.1) == np.float32(.1) and np.float32(.1) == single(.1) and single(.1) == .1", "separated"),
    ("assert abs(single(-.1)) == np.float32(.1) and round(single(2.567), 2) == np.float32(2.57) and -single(.1) in [np.float32(-.1)]", "separated"),
    ("assert (single(1) + single(2)).dtype == np.float32 and single(.1) - np.float32(.1) == 0 and divmod(single(7), 2) == (3, 1)", "separated"),
    ("assert isinstance(single(1), np.float32) and same(np.float32(1)).dtype == 'f4' and hash(single(.5)) == hash(.5)", "separated"),
    ("assert zeros(0).tolist() == [] and np.append(zeros(0), [3, 4]).shape == (2,) and np.vstack([zeros((0, 2)), np.ones((1, 2))]).shape == (1, 2)", "separated"),
    ("for name in ('bool', 'i1', '>i4', 'f2', 'f4', 'c8', 'U5', 'S3', 'M8[D]', 'm8[s]', 'longdouble'):\n    for shape in ((), (0,), (2, 3), (1, 0, 4)):\n        a = np.zeros(shape, name)\n        assert same(a).dtype == a.dtype and same(a).shape == shape and np.array_equal(same(a), a)", "separated"),
    ("assert type(zeros(0)) is np.ndarray and type(single(1)) == np.float32 and type(single(1)) in (np.float32, float)", "in_process"),
]  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A program, its tests, and what the grader says besides them."""

    program: str
    tests: str
    level: str
    setup: str = ""
    entry_point: str | None = None


LIST_NODES = "from typing import Optional\nclass ListNode:\n    def __init__(self, val=0, next=None): self.val, self.next = val, next"
TASKS = [
    Task(
        "def f(xs): return sorted(xs, key=lambda x: (len(x), x))",
        "METADATA = {'dataset': 'test'}\ndef check(candidate):\n    import random, string\n    rng = random.Random(1)\n    def word(): return ''.join(rng.choice(string.ascii_letters) for _ in range(rng.randrange(4)))\n"
        "    for trial in range(20):\n        xs = [word() for _ in range(rng.randrange(8))]\n        before = list(xs)\n        got = candidate(xs)\n        assert xs == before, 'changed'\n        assert all((len(a), a) <= (len(b), b) for a, b in zip(got, got[1:]))",
        "separated",
        entry_point="f",
    ),
    Task(
        "def f(s, n):\n    if not isinstance(s, str): raise TypeError('need text')\n    return s * n",
        "def raised(kind, fn, *args):\n    try: fn(*args)\n    except kind as e: return str(e)\n    except Exception as other: raise AssertionError(f'wrong: {other!r}')\n"
        "def check(candidate):\n    assert raised(TypeError, candidate, 1, 2) == 'need text'\n    assert raised(ValueError, candidate, 'a', 1) is None\n    assert candidate(n=2, s='ab') == 'abab', 'repeat'",
        "separated",
        entry_point="f",
    ),
    Task(
        "class Solution:\n    @cache\n    def fib(self, n): return n if n < 2 else self.fib(n - 1) + self.fib(n - 2)\n    def both(self, n): return helper(n) + inf",
        "assert Solution().fib(30) == 832040 and Solution().both(3) == inf",
        "separated",
        setup="from functools import lru_cache, cache, reduce, cmp_to_key\nfrom math import *\nfrom typing import *\ninf = float('inf')\n@lru_cache(None)\ndef helper(n): return n * 2",
    ),
    Task(
        "def after(c): return Color.BLUE if c is Color.RED else Color.RED",
        "assert after(Color.RED) == Color.BLUE and after(Color.BLUE).name == 'RED'\nfor c in Color: assert after(after(c)) is c",
        "in_process",
        setup="from enum import Enum\nclass Color(Enum):\n    RED = 1\n    BLUE = 2",
    ),
    Task(
        "class Solution:\n    def turn(self, head: Optional[ListNode]) -> Optional[ListNode]:\n        prev = None\n        while head: head.next, prev, head = prev, head, head.next\n        return prev",
        "def build(xs):\n    head = None\n    for x in reversed(xs): head = ListNode(x, head)\n    return head\ndef values(n):\n    out = []\n    while n: out.append(n.val); n = n.next\n    return out\n"
        "def check(candidate):\n    for case in [[], [1], list(range(200))]: assert values(candidate(build(case))) == case[::-1]",
        "in_process",
        setup=LIST_NODES,
        entry_point="Solution().turn",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def numpy_service() -> Iterator[Service]:
    """A service whose sandboxes have the interpreter of the tests, which has numpy."""
    with (
        visible_python() as python,
        running_service(Settings(sandbox_python=python), judge=None) as running,
    ):
        yield running


def told(service: Service, tasks: list[Task]) -> list[Any]:
    """Return the tasks that are not passed at their level, or with a signal."""
    items = [
        {
            "completion": task.program,
            "grader": {
                "kind": "asserts",
                "tests": [task.tests],
                "setup": task.setup,
                "reveal": True,
            }
            | ({"entry_point": task.entry_point} if task.entry_point else {}),
        }
        for task in tasks
    ]
    return [
        (task.tests, result["integrity"], result["verdict"], result["message"], result["error"])
        for task, result in zip(tasks, ask(service, *items), strict=True)
        if (result["reward"], result["integrity"], result["hack_signals"]) != (1.0, task.level, [])
    ]


def test_a_right_program_is_right(service: Service) -> None:
    tables = ((SEPARATED, "separated"), (BESIDE, "in_process"))
    tasks = [Task(PROGRAM, tests, level) for table, level in tables for tests in table]
    assert told(service, tasks + TASKS) == []


def test_numbers_and_arrays_of_numpy_are_what_numpy_says(numpy_service: Service) -> None:
    skip_without("numpy")
    tasks = [Task(NUMPY_PROGRAM, f"import numpy as np\n{test}", level) for test, level in NUMPY]
    assert told(numpy_service, tasks) == []
