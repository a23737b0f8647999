# ruff: noqa: E501 - the tables hold programs
"""Test code in a sandbox of its own: honest programs at the level `values`."""

from __future__ import annotations

import pytest
from values_runtime import Pairs

OBJECTS = """
from dataclasses import dataclass
import enum
from collections import namedtuple, UserList, UserDict, UserString, OrderedDict
P = namedtuple('P', 'x y')
class Colour(enum.Enum):
    RED = 1
    GREEN = 'g'
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2
class Stack(list):
    def push(self, x): self.append(x)
    def peek(self): return self[-1]
class Text(str):
    def shout(self): return self.upper() + '!'
class LRU(OrderedDict):
    def __init__(self, size): super().__init__(); self.size = size
    def get(self, key):
        if key not in self: return -1
        self.move_to_end(key)
        return self[key]
    def put(self, key, value):
        self[key] = value
        self.move_to_end(key)
        if len(self) > self.size: self.popitem(last=False)
@dataclass
class Q:
    x: int
    y: int = 0
    @property
    def both(self): return self.x + self.y
    @staticmethod
    def zero(): return 0
    @classmethod
    def of(cls, x): return cls(x)
class Base: pass
class Node(Base):
    def __init__(self, v, next=None): self.v = v; self.next = next; self.children = []
    def __len__(self): return 1 + sum(map(len, self.children))
    def __iter__(self): yield self.v; yield from self.children
    def __bool__(self): return self.v > 0
    def __getitem__(self, i): return self.children[i]
    def __setitem__(self, i, v): self.children[i] = v
    def __delitem__(self, i): del self.children[i]
    def __str__(self): return f'Node({self.v})'
    def __format__(self, spec): return format(self.v, spec)
    def __int__(self): return self.v
    def __float__(self): return float(self.v)
    def __call__(self, k): return self.v * k
    def itself(self): return self
    def pop(self): return self.children.pop()
class Down:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if self.n == 0: raise StopIteration
        self.n -= 1
        return self.n
def pair(): return P(1, 2)
def moved(q): q.x += 1; return q
def colour(n): return Colour(n)
def level(n): return Level(n)
def text(): return Text('ab')
def wrapped(): return UserList([1, 2]), UserDict(a=1), UserString('s')
def size(n): return 1 + sum(map(size, n.children))
"""
OBJECT_TESTS = [
    "assert pair() == (1, 2) and pair().x == 1 and isinstance(pair(), tuple) and isinstance(pair(), P)",
    "a, b = pair()\nassert a + b == 3 and pair()[1] == 2 and len(pair()) == 2 and pair()._fields == ('x', 'y')",
    "assert colour(1) is Colour.RED and colour('g') == Colour.GREEN and colour(1) != Colour.GREEN",
    "assert Colour.RED.name == 'RED' and Colour.RED.value == 1 and isinstance(Colour.RED, Colour)",
    "c = __proctor__.own(Colour)\nassert [m.name for m in c] == ['RED', 'GREEN'] and len(c) == 2\n"
    "assert c['RED'] is colour(1) and {Colour.RED: 1}[colour(1)] == 1",
    "assert level(1) == 1 and level(2) > level(1) and level(2).name == 'HIGH' and isinstance(level(1), int)",
    "assert text() == 'ab' and text().shout() == 'AB!' and text().upper() == 'AB'",
    "assert wrapped() == ([1, 2], {'a': 1}, 's')",
    "s = Stack()\ns.push(1)\ns.push(2)\nassert s.peek() == 2 and len(s) == 2 and s[0] == 1 and list(s) == [1, 2]",
    "s = Stack([1])\ns.append(3)\nassert s.pop() == 3 and s",
    "c = LRU(2)\nc.put(1, 1)\nc.put(2, 2)\nc.get(1)\nc.put(3, 3)\nassert c.get(2) == -1 and c.get(1) == 1",
    "q = Q(1)\nassert moved(q) is q and q.x == 2 and q.both == 2 and Q.zero() == 0 and Q.of(3).x == 3",
    "q = Q(1)\nq.y = 7\nassert q.y == 7 and not hasattr(q, 'z')\ndel q.x\nassert not hasattr(q, 'x')",
    "assert repr(Q(1, 2)) == 'Q(x=1, y=2)' and str(Node(3)) == 'Node(3)' and f'{Node(3):03d}' == '003'",
    "assert float(Node(3)) == 3.0 and int(Node(3)) == 3 and abs(float(Node(3)) - 3) < 1e-9",
    "r = Node(1)\nr.children.append(Node(2))\nr.children.append(Node(3))\nassert size(r) == 3 and len(r) == 3",
    "n = Node(1)\nn.next = n\nassert n.next.next is n.itself() and n.next.v == 1",
    "n = Node(0)\nassert not n\nn.v = 1\nassert n and n(4) == 4 and callable(n) and not callable(Q(1))",
    "n = Node(1)\nn.children.append(5)\nassert list(n) == [1, 5] and n[0] == 5\nn[0] = 6\nassert n.pop() == 6",
    "n = Node(1)\nn.children.append(5)\ndel n[0]\nassert n.children == []",
    "assert isinstance(Node(1), Node) and isinstance(Node(1).itself(), Base) and not isinstance(5, Node)",
    "assert issubclass(Node, Base) and not issubclass(Base, Node) and Node.__name__ == 'Node'",
    "assert list(Down(3)) == [2, 1, 0]\nd = Down(1)\nassert next(d) == 0 and next(d, None) is None",
    "assert [*zip(Down(2), Down(2))] == [(1, 1), (0, 0)] and sum(Down(4)) == 6",
    "assert Q(1) != 5 and not Q(1) == 5 and Q(1).itself if hasattr(Q(1), 'itself') else True",
    "from typing import List, Optional\ndef build(v) -> Optional[Node]:\n    return Node(v)\n"
    "def many() -> List[Node]: return []\nx: 'Node | None' = None\nassert build(3).v == 3",
    "assert moved.__name__ == 'moved' and moved.__doc__ is None and callable(moved) and callable(Node)",
    "from functools import partial\nassert partial(level, 2)() == 2 and list(map(level, [1])) == [1]",
    "assert hasattr(Node(1), '__len__') and not hasattr(Node(1), '__enter__') and not hasattr(Base(), '__len__')",
    "d = iter(Down(3))\nassert d.__next__() == 2 and d.__iter__().__next__() == 1 and hasattr(d, '__next__')",
    "assert level.__call__(1) == 1 and Node(3).__str__() == 'Node(3)'",
    "assert sorted([3, 1], key=level.__call__) == [1, 3] if False else sorted([2, 1], key=level) == [1, 2]",
]
FAILURES = """
class E(ValueError):
    def __init__(self, text, code): super().__init__(text); self.code = code
    def explain(self): return [self.code]
class F(E): pass
class G(Exception):
    def __str__(self): return 'from str'
def fail(x):
    if x == 0: raise E('bad', 7)
    if x == 1: raise F('worse', 8)
    if x == 2: raise KeyError('z')
    if x == 3: return int('q')
    if x == 4: import json; json.loads('{"a":')
    if x == 5: raise SystemExit(3)
    if x == 6: open('/nonexistent/q')
    if x == 7: raise G()
    if x == 8:
        try: 1 / 0
        except ZeroDivisionError as zero: raise E('a', 4) from zero
    if x == 9: raise ExceptionGroup('two', [ValueError(1), KeyError(2)])
def guarded(h):
    try: return h()
    except ValueError as e: return 'caught ' + str(e)
    except ZeroDivisionError: return 'zero'
def caught(x):
    try: fail(x)
    except Exception as e: return e
def retry(f, times):
    for left in reversed(range(times)):
        try: return f()
        except ValueError:
            if not left: raise
def safe(f):
    try: return f(), None
    except Exception as e: return None, e
"""
FAILURE_TESTS = [
    "try:\n    fail(0)\n    assert False\nexcept E as e:\n    assert e.code == 7 and str(e) == 'bad'",
    "try: fail(0)\nexcept ValueError as e: assert e.args == ('bad',) and e.explain() == [7]",
    "try:\n    fail(1)\n    assert False\nexcept ValueError as e:\n    assert type(e) is F and isinstance(e, E)",
    "import pytest\nwith pytest.raises(E) as info: fail(1)\nassert info.value.code == 8",
    "import pytest\nwith pytest.raises(KeyError, match='z'): fail(2)",
    "import pytest\nwith pytest.raises(ValueError, match='invalid literal'): fail(3)",
    "import json, pytest\nwith pytest.raises(json.JSONDecodeError) as i: fail(4)\nassert i.value.pos == 5",
    "import pytest\nwith __proctor__.expecting('SystemExit'), pytest.raises(SystemExit) as i: fail(5)\n"
    "assert i.value.code == 3",
    "import pytest\npytest.raises(SystemExit, __proctor__.expecting_call(('SystemExit',), fail), 5)",
    "try: fail(6)\nexcept FileNotFoundError as e: assert e.errno == 2 and e.filename == '/nonexistent/q'",
    "try: fail(7)\nexcept G as e: assert str(e) == 'from str'\nelse: assert 0",
    "try: fail(8)\nexcept E as e: assert type(e.__cause__) is ZeroDivisionError",
    "try: fail(9)\nexcept* ValueError: pass\nexcept* KeyError: pass\nelse: assert 0",
    "def h(): raise ValueError('x')\nassert guarded(h) == 'caught x' and guarded(lambda: 1 / 0) == 'zero'",
    "assert isinstance(caught(0), E) and issubclass(F, E) and issubclass(E, ValueError)",
    "import pytest\nwith pytest.raises(ValueError): raise E('a', 1)",
    "class My(Exception): pass\ndef h(): raise My('m')\ntry: guarded(h)\nexcept My as e: assert str(e) == 'm'",
    "n = []\ndef h():\n    n.append(1)\n    if len(n) < 3: raise ValueError\n    return 7\nassert retry(h, 3) == 7",
    "def h(): raise ValueError('last')\nr, e = safe(h)\nassert r is None and str(e) == 'last'",
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        with self.assertRaises(E) as c:\n"
    "            fail(0)\n        self.assertEqual(c.exception.code, 7)\nunittest.main(argv=['x'], exit=False)",
]
ITERATION = """
import asyncio, contextlib, itertools
def evens(n):
    for i in range(0, n, 2): yield i
    return 'done'
def total():
    t = 0
    while True:
        x = yield t
        if x is None: return t
        t += x
def careful():
    while True:
        try: yield 1
        except ValueError: yield 2
def mapped(f, xs): return map(f, xs)
def summed(g): return sum(g)
def first(items): return next(iter(items))
def perms(): return itertools.permutations([1, 2])
@contextlib.contextmanager
def five(): yield 5
@contextlib.contextmanager
def noting(log):
    try: yield
    except ValueError as error: log.append(str(error))
    finally: log.append('end')
async def twice(x):
    await asyncio.sleep(0)
    return x * 2
async def count(n):
    for i in range(n): yield i
async def applied(f, x): return await f(x)
class Three:
    async def __aenter__(self): return 3
    async def __aexit__(self, *error): return False
class Timer:
    def __enter__(self): self.log = ['in']; return self
    def __exit__(self, kind, error, trace):
        self.log.append(kind and kind.__name__)
        return kind is KeyError
async def bad(): raise ValueError('no')
def task(x): return asyncio.new_event_loop().create_task(twice(x))
"""
ITERATION_TESTS = [
    "import types\nassert isinstance(evens(3), types.GeneratorType) and list(evens(7)) == [0, 2, 4, 6]",
    "def whole():\n    r = yield from evens(3)\n    yield r\nassert list(whole()) == [0, 2, 'done']",
    "g = total()\nnext(g)\ng.send(4)\nassert g.send(5) == 9",
    "g = careful()\nassert next(g) == 1 and g.throw(ValueError('x')) == 2 and next(g) == 1",
    "g = evens(9)\nnext(g)\ng.close()\nassert list(g) == [] and iter(g) is g",
    "assert list(mapped(lambda x: x * 2, [1, 2])) == [2, 4] and list(perms()) == [(1, 2), (2, 1)]",
    "g = evens(5)\nnext(g)\nassert summed(g) == 6 and summed(x for x in range(4)) == 6",
    "try: first([])\nexcept RuntimeError: pass\nelse: assert False",
    "assert first(iter([3, 4])) == 3 and first({7: 1}) == 7",
    "with five() as v: assert v == 5",
    "log = []\nwith noting(log): raise ValueError('z')\nassert log == ['z', 'end']",
    "with Timer() as t: pass\nassert t.log == ['in', None]",
    "with Timer() as t: raise KeyError('q')\nassert t.log == ['in', 'KeyError']",
    "try:\n    with Timer() as t: raise IndexError\nexcept IndexError: assert t.log == ['in', 'IndexError']",
    "import asyncio\nasync def main(): return await asyncio.gather(twice(1), twice(2))\n"
    "assert asyncio.run(twice(3)) == 6 and asyncio.run(main()) == [2, 4]",
    "import asyncio\nasync def main(): return [x async for x in count(3)]\nassert asyncio.run(main()) == [0, 1, 2]",
    "import asyncio\nasync def f(x): return x + 1\nassert asyncio.run(applied(f, 4)) == 5",
    "import asyncio\nasync def main():\n    async with Three() as v: return v\nassert asyncio.run(main()) == 3",
    "import asyncio\ntry: asyncio.run(bad())\nexcept ValueError as e: assert str(e) == 'no'",
    "import threading\nout = []\nts = [threading.Thread(target=lambda i=i: out.append(sum(evens(i)))) for i in range(6)]\n"
    "[t.start() for t in ts]\n[t.join() for t in ts]\nassert sorted(out) == [0, 0, 0, 2, 2, 6]",
]
SHARING = """
LOG = []
from collections import deque
def append(d): d.append(1)
def nested(d): d['a'].append(2); d['b'] = 3
class Box:
    def __init__(self, xs): self.xs = xs
    def add(self, x): self.xs.append(x)
def same(x): return x
def ordered(x): x.sort(); return x
def bumped(m):
    for row in m: row[0] += 1
    return m
def turned(d): d.rotate(1)
def longer(b): b.extend(b'z')
def grown(s): s.add(9)
def swap(a, b): a[:], b[:] = b[:], a[:]
def log(x): LOG.append(x); return LOG
def each(xs, f):
    for i in range(len(xs)): xs[i] = 0; f(xs)
def cleared(x): x.clear(); return len(x)
def raising(x): x.append(1); raise ValueError
import array
def halved(a):
    for i in range(len(a)): a[i] //= 2
"""
SHARING_TESTS = [
    "d = []\nappend(d)\nassert d == [1]",
    "d = {'a': [1]}\nnested(d)\nassert d == {'a': [1, 2], 'b': 3}",
    "xs = []\nb = Box(xs)\nb.add(4)\nassert xs == [4] and b.xs is xs",
    "b = Box([])\nb.xs.append(7)\nb.add(8)\nassert b.xs == [7, 8]",
    "x = [3, 1]\nassert ordered(x) is x and x == [1, 3]",
    "from collections import deque\nd = deque([1, 2, 3])\nturned(d)\nassert list(d) == [3, 1, 2]",
    "b = bytearray(b'a')\nlonger(b)\nassert b == b'az'",
    "s = {1}\ngrown(s)\nassert s == {1, 9}",
    "a, b = [1], [2]\nswap(a, b)\nassert a == [2] and b == [1]",
    "x = [[1], [2]]\ny = same(x)\ny[0].append(5)\nassert x[0] == [1, 5] and y is x",
    "x = [3, 1, 2]\nassert ordered(x) == sorted(x)",
    "x = [3, 1, 2]\nassert ordered(x) != [3, 1, 2]\nassert x == [1, 2, 3]",
    "m = [[1], [2]]\nassert bumped(m) == [[r[0] + 1] for r in m]\nassert m == [[2], [3]]",
    "x = [1, 2]\nassert cleared(x) == len(x) - 2\nassert x == []",
    "x = [3]\nseen = []\neach(x, lambda v: seen.append(list(v)))\nassert seen == [[0]]",
    "x = [3, 4]\nassert each(x, lambda v: None) is None and x == [0, 0]",
    "x = []\ntry: assert raising(x) == 3\nexcept ValueError: assert x == [1]\nassert ordered(x) == [1]",
    "import array\na = array.array('i', [4, 6])\nhalved(a)\nassert list(a) == [2, 3]",
    "LOG.clear() if False else None\na = log(5)\nassert a[-1] == 5",
    "x = [1]\nx.append(x)\nassert same(x)[1] is x",
    "x = []\ntry: assert raising(x) == 1\nexcept ValueError: pass\nappend(x)\nn = len(x)\nassert n == 2",
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
def timed(f):
    if inspect.iscoroutinefunction(f):
        @functools.wraps(f)
        async def w(*a): return ('async', await f(*a))
    else:
        @functools.wraps(f)
        def w(*a): return ('plain', f(*a))
    return w
class Events:
    def __init__(self): self.handlers = []
    def on(self, f): self.handlers.append(f); return f
    def off(self, f): self.handlers.remove(f)
    def emit(self, *a): return [h(*a) for h in self.handlers]
def joined(xs): return ','.join(str(x) for x in xs)
def area(s): return s.w * s.height()
def note(thing, name, value): setattr(thing, name, value)
def uses(d): return d['k'], len(d), 'k' in d, [x for x in d], bool(d), hash(d) == hash(d)
def enter(c):
    with c as v: return v
def kinds(x): return isinstance(x, int), x + 1
def build(xs):
    head = None
    for x in reversed(xs): n = ListNode(x); n.next = head; head = n
    return head
def fix(g): return lambda n: g(fix(g), n)
def added(a, b): return a + b
"""
CALLBACK_TESTS = [
    "calls = []\n@memo\ndef sq(x):\n    calls.append(x)\n    return x * x\n"
    "assert sq(3) == 9 == sq(3) and calls == [3] and sq.__name__ == 'sq'",
    "@memo\ndef sq(x): return x * x\n"
    "assert sq.__wrapped__(3) == 9 and hasattr(sq, '__wrapped__') and not hasattr(order, '__wrapped__')",
    "assert compose(lambda x: x + 1, lambda x: x * 2)(5) == 11",
    "assert order(['b', 'A'], key=str.lower) == ['A', 'b'] and order([1, 3], lambda x: -x) == [3, 1]",
    "class N:\n    def __init__(s, l=None, r=None): s.left, s.right = l, r\nassert depth(N(N(N()))) == 3",
    "assert curry(lambda a, b, c: a + b + c)(1)(2)(3) == 6 and arity(lambda a, b=2, *c, d, **e: 0) == 5",
    "class V:\n    def __init__(s, v): s.v = v\n    def __eq__(s, o): return s.v == o.v\n"
    "    def __lt__(s, o): return s.v < o.v\nassert compared(V(1), V(2)) == (False, True) and apply(V, 3).v == 3",
    "import operator\nassert apply(operator.add, 1, 2) == 3 and apply(max, [1, 2], key=lambda x: -x) == 1",
    "e = Events()\nseen = []\ne.on(seen.append)\ne.emit(4)\nassert seen == [4]",
    "e = Events()\nf = lambda x: x + 1\nassert e.on(f) is f and e.emit(1) == [2]\ne.off(f)\nassert e.emit(1) == []",
    "from unittest.mock import Mock\nm = Mock(return_value=3)\nassert apply(m, 1) == 3\nm.assert_called_once_with(1)",
    "class W:\n    def __str__(s): return 'w'\nassert joined([W(), W()]) == 'w,w'",
    "class S:\n    def __init__(s): s.w = 2\n    def height(s): return 4\nassert area(S()) == 8",
    "class S: pass\ns = S()\nnote(s, 'x', [1])\nassert s.x == [1]",
    "class D:\n    def __getitem__(s, k): return k\n    def __len__(s): return 2\n    def __contains__(s, k): return True\n"
    "    def __iter__(s): return iter([5])\nassert uses(D()) == ('k', 2, True, [5], True, True)",
    "class C:\n    def __enter__(s): return 4\n    def __exit__(s, *e): s.left = True\nc = C()\nassert enter(c) == 4 and c.left",
    "class I(int): pass\nassert kinds(I(4)) == (True, 5)",
    "h = build([1, 2])\nassert isinstance(h, ListNode) and h.next.val == 2 and h.next.next is None",
    "o = object()\nassert apply(lambda x: x, o) is o",
    "assert fix(lambda self, n: 0 if n == 0 else 1 + self(n - 1))(200) == 200",
    "import asyncio\n@timed\nasync def g(x): return x\n@timed\ndef h(x): return x\n"
    "assert asyncio.run(g(1)) == ('async', 1) and h(2) == ('plain', 2)",
    "class V:\n    def __init__(s, v): s.v = v\n    def __add__(s, o): return V(s.v + o.v)\nassert added(V(1), V(2)).v == 3",
    "def f(a, b=2, *, c=3): return a, b, c\nassert apply(f, 1) == (1, 2, 3) and apply(f, 1, c=5) == (1, 2, 5)",
]
AROUND = """
import random, time, sys
def roll(): return random.randint(1, 6)
def draw(): return [random.random() for _ in range(3)]
def shout(s): print(s.upper())
def wait(): time.sleep(1000); return time.time()
def greet(): print('hello'); print('x', end='')
def ask(): return input('n?') + '!'
def line(): return sys.stdin.readline().strip()
def loud(): print('before'); raise ValueError
def around(f): print('before'); f(); print('after')
def between(f): return input(), f(), input()
def steps(f):
    for i in range(2): print('step'); f(i); yield i
def after(f): f(); return roll()
def caught(f):
    import contextlib, io
    with contextlib.redirect_stdout(io.StringIO()) as out: f()
    return out.getvalue()
"""
AROUND_TESTS = [
    "import random\nrandom.seed(42)\nassert [roll() for _ in range(5)] == [6, 1, 1, 6, 3]",
    "import random\nrandom.seed(42)\nfirst = random.randint(1, 6)\nassert [first] + [roll() for _ in range(4)] == [6, 1, 1, 6, 3]",
    "import random\nassert after(lambda: random.seed('a')) == random.Random('a').randint(1, 6)",
    "import random\nrandom.seed(7)\nexpected = [random.random() for _ in range(3)]\nrandom.seed(7)\nassert draw() == expected",
    "from unittest.mock import patch\nwith patch('builtins.print') as p: shout('a')\np.assert_called_once_with('A')",
    "from unittest.mock import patch\nwith patch('time.sleep') as s, patch('time.time', return_value=5):\n"
    "    assert wait() == 5\ns.assert_called_once_with(1000)",
    "from unittest.mock import patch\nwith patch('random.randint', side_effect=[4, 2]):\n    assert (roll(), roll()) == (4, 2)",
    "import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b): greet()\nassert b.getvalue() == 'hello\\nx'",
    "from unittest.mock import patch\nwith patch('builtins.input', return_value='7'):\n    assert ask() == '7!'",
    "import io\nfrom unittest.mock import patch\nwith patch('sys.stdin', io.StringIO('a\\nb\\n')):\n"
    "    assert line() == 'a' and line() == 'b'",
    "import io, contextlib\nb = io.StringIO()\ntry:\n    with contextlib.redirect_stdout(b): loud()\n"
    "except ValueError: assert b.getvalue() == 'before\\n'",
    "import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b): around(lambda: greet())\n"
    "assert b.getvalue() == 'before\\nhello\\nxafter\\n'",
    "import io, contextlib\nb = io.StringIO()\ndef f(i): print('call', i)\nwith contextlib.redirect_stdout(b):\n"
    "    for i in steps(f): print('item', i)\n"
    "assert b.getvalue().split() == 'step call 0 item 0 step call 1 item 1'.split()",
    "import io, contextlib\nb = io.StringIO()\ndef f(): print('call'); raise KeyError\n"
    "with contextlib.redirect_stdout(b), contextlib.suppress(KeyError): around(f)\nassert b.getvalue() == 'before\\ncall\\n'",
    "def f(): print('call'); greet()\nassert caught(f) == 'call\\nhello\\nx' and caught(lambda: 3) == ''",
    "import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b):\n"
    "    print(caught(lambda: print('call')), end='!')\nassert b.getvalue() == 'call\\n!'",
    "import io\nfrom unittest.mock import patch\nwith patch('sys.stdin', io.StringIO('a\\nb\\nc\\nd\\n')):\n"
    "    assert between(lambda: input()) == ('a', 'b', 'c') and input() == 'd'",
]
NUMPY = """
import numpy as np
def twice(a): return a * 2
def fill(a): a[:] = 7
def mean(a): return a.mean()
"""
NUMPY_TESTS = [
    "import numpy as np\nassert (twice(np.array([1, 2])) == np.array([2, 4])).all()",
    "import numpy as np\nassert np.allclose(twice(np.array([0.5])), [1.0]) and mean(np.arange(3)) == 1.0",
]
LIST_NODE = (
    "class ListNode:\n    def __init__(self, val=0, next=None): self.val = val; self.next = next\n"
)


@pytest.mark.parametrize(
    ("source", "test"),
    [
        (source, test)
        for source, tests in [
            (OBJECTS, OBJECT_TESTS),
            (FAILURES, FAILURE_TESTS),
            (ITERATION, ITERATION_TESTS),
            (SHARING, SHARING_TESTS),
            (CALLBACKS, CALLBACK_TESTS),
            (AROUND, AROUND_TESTS),
            (NUMPY, NUMPY_TESTS),
        ]
        for test in tests
    ],
)
def test_honest_programs_pass(pairs: Pairs, source: str, test: str) -> None:
    pairs.passes(source, [test], setup=LIST_NODE)
