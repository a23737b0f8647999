"""Tests as people write them, of which one right and one wrong program are judged."""

from __future__ import annotations

from harness import Service
from judging import judge

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
STACK = """
class Stack:
    def __init__(self, items=()): self.items = list(items)
    def pop(self): return self.items.pop() {wrong}
    def __len__(self): return len(self.items)
    def __iter__(self): return (each {wrong} for each in self.items)
"""
FIB = """
class Fib:
    def __init__(self): self.a, self.b = 0, 1
    def __iter__(self): return self
    def __next__(self):
        found = self.a
        self.a, self.b = self.b, found + self.b
        return found {wrong}
def numbers():
    return Fib()
"""
LOGGED = """
import functools
def logged(function):
    @functools.wraps(function)
    def around(*args):
        print('before')
        result = function(*args)
        print('after{wrong}')
        return result
    return around
"""
BETWEEN = "def between(function):\n    return input(), function(), input() {wrong}"
CAUGHT = """
import contextlib, io
def caught(function):
    def around():
        with contextlib.redirect_stdout(io.StringIO()) as out:
            function()
        return out.getvalue() {wrong}
    return around
@contextlib.contextmanager
def catching():
    found = []
    with contextlib.redirect_stdout(io.StringIO()) as out:
        yield found
    found.append(out.getvalue() {wrong})
"""
QUEUE = """
import queue
class Box:
    def __init__(self): self.queue = queue.Queue()
    def put_one(self, x): self.queue.put(x {wrong})
    def get_one(self): return self.queue.get()
"""
ENFORCED = """
import functools
def enforce(function):
    hints = function.__annotations__
    @functools.wraps(function)
    def around(*args):
        for value, kind in zip(args, hints.values()):
            if not isinstance(value, kind) {wrong}:
                raise TypeError(kind)
        return function(*args)
    return around
"""
NAMED = """
def named(cls):
    cls.__repr__ = lambda self: cls.__name__ {wrong}
    return cls
class Container:
    def __init__(self): self.classes = {}
    def register(self, cls): self.classes[cls.__name__ {wrong}] = cls
    def make(self, name): return self.classes[name]()
"""
DICE = "import random\ndef roll():\n    return random.randint(1, 6) {wrong}"
IO = "import contextlib, io, sys\n"
ADDING = "def add(a: int, b: int):\n    return a + b\n"
REFUSED = "try:\n    add('a', 'b')\nexcept TypeError:\n    pass\nelse:\n    assert False"
TICKER = "class Ticker:\n    n = {wrong}\n    def tick(self):\n        self.n += 1\n        return self.n"
SAME = "def f(x):\n    return x {wrong}"
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
    "a text that asks an object": (STACK, "", "+ 1",
        "s = Stack([1])\nassert f'{len(s)} {s.pop()!r:>{len(s) + 3}}' == '1   1'"),
    "a message that asks an object": (STACK, "", "+ 1",
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n"
        "        s = Stack([1])\n        self.assertEqual(s.pop(), 1, f'{len(s)} items')\n"),
    "an object as iterator for the library": (FIB, "", "+ 1",
        "from itertools import islice\nassert list(islice(Fib(), 5)) == [0, 1, 1, 2, 3]"),
    "an object as content for the library": (STACK, "", "* 2",
        "from collections import Counter, deque\ns = Stack(['a', 'b'])\n"
        "assert '-'.join(s) == 'a-b' and Counter(s)['a'] == 1 and list(deque(s)) == ['a', 'b']"),
    "an object as arguments": (STACK, "", "* 2",
        "s = Stack([[1, 2], [3, 4]])\nassert list(zip(*s)) == [(1, 3), (2, 4)]"),
    "text around a function of the tests": (LOGGED, "", "!",
        IO + "@logged\ndef work():\n    print('work')\nout = io.StringIO()\n"
        "with contextlib.redirect_stdout(out):\n    work()\n"
        "assert out.getvalue() == 'before\\nwork\\nafter\\n'"),
    "input around a function of the tests": (BETWEEN, "", "+ '!'",
        IO + "sys.stdin = io.StringIO('a\\nb\\nc\\n')\n"
        "assert between(lambda: sys.stdin.readline().strip()) == ('a', 'b', 'c')"),
    "output that a decorator catches": (CAUGHT, "", "+ '!'",
        "@caught\ndef work():\n    print('work')\nassert work() == 'work\\n'"),
    "output that a context catches": (CAUGHT, "", "+ '!'",
        "with catching() as out:\n    print('work')\nassert out[0] == 'work\\n'"),
    "two threads on one object": (QUEUE, "", "+ 1",
        "import threading, time\nq = Box()\nout = []\n"
        "t = threading.Thread(target=lambda: out.append(q.get_one()))\nt.start()\n"
        "time.sleep(.1)\nq.put_one(5)\nt.join()\nassert out == [5]"),
    "special methods by name": (FIB, "", "+ 1",
        "found = numbers()\nassert hasattr(found, '__next__') and not hasattr(found, '__len__')\n"
        "it = iter(Fib())\nassert [it.__next__(), it.__next__(), it.__next__()] == [0, 1, 1]"),
    "a wrapped function": (RETRY, "", " + 1",
        "@retry(2)\ndef add(a, b):\n    return a + b\n"
        "assert (add(1, 2), add.__wrapped__(1, 2)) == (3, 3)"),
    "an attribute of a decorated function": (
        "def counted(f):\n    def again(*args):\n        again.count += 1\n"
        "        return f(*args)\n    again.count = 0 {wrong}\n    return again",
        "",
        "+ 1",
        "@counted\ndef f(x):\n    return x\nassert (f(1), f(2), f.count) == (1, 2, 2)",
    ),
    "the fields of a decorated function": (RETRY, "", " + 1",
        "@retry(2)\ndef f(x):\n    return x\nassert '__wrapped__' in f.__dict__ and f(1) == 1"),
    "a decorator that reads annotations": (ENFORCED, "", "and kind is not int",
        "@enforce\n" + ADDING + "assert add(1, 2) == 3\n" + REFUSED),
    "a function that reads annotations": (ENFORCED, "", "and kind is not int",
        ADDING + "add = enforce(add)\nassert add(1, 2) == 3\n" + REFUSED),
    "a decorator that changes a class": (NAMED, "", "+ '!'",
        "@named\nclass P:\n    pass\nassert repr(P()) == 'P'"),
    "a function that changes a class": (NAMED, "", "+ '!'",
        "class P:\n    pass\nP = named(P)\nassert repr(P()) == 'P'"),
    "a container for classes of the tests": (NAMED, "", "+ '!'",
        "class Car:\n    wheels = 4\nc = Container()\nc.register(Car)\n"
        "assert c.make('Car').wheels == 4"),
    "an object that a library function keeps": (STACK, "", "+ 1",
        "import typing\ns = Stack([1])\nd = dict.fromkeys(['a'], s)\nl = []\nlist.append(l, s)\n"
        "assert d['a'] is s and l[0] is s and typing.cast(int, s) is s\nassert s.pop() == 1"),
    "random numbers of both": (DICE, "", "- 1",
        "import random\nrandom.seed(42)\nfirst = random.randint(1, 6)\n"
        "assert [first] + [roll() for _ in range(4)] == [6, 1, 1, 6, 3]"),
    "a helper's parameter named like a variable": (SAME, "", "+ 3",
        "def even(x):\n    return x % 2 == 0\nx = 4\nassert even(f(x))"),
    "a helper's parameters named like variables": (SAME, "", "+ 97.0",
        "def close(a, b):\n    return abs(a - b) < 1e-6\na = 2.0\nb = 2.0\nassert close(f(a), b)"),
    "a call with a helper's parameter": (SAME, "", "if x == 2 else 0",
        "def same(x):\n    return f(x) == x\nx = 2\nassert same(3)"),
    "a helper with a parameter by keyword": (SAME, "", "+ 3",
        "tol = 5\ndef close(a, b, *, tol=1e-6):\n    return abs(a - b) < tol\nassert close(f(1), 1)"),
    "a helper beside its caller's variable": (SAME, "", "+ 3",
        "eps = 1e-6\ndef close(a, b):\n    return abs(a - b) < eps\n"
        "def test_it():\n    eps = 5\n    assert close(f(1), 1)"),
    "rows that the expected value shares": (
        "def f(n):\n    return [[0] * n for _ in range(n {wrong})]", "", "- 1",
        "assert f(200) == [[0] * 200] * 200"),
    "a set with many removed items": (
        "def f(n):\n    found = set(range(n))\n    for each in range(n):\n"
        "        if each not in (1, 8 {wrong}): found.discard(each)\n    return found", "", ", 9",
        "assert f(5000) == {1, 8}"),
    "a name for a method of a new object": (TICKER, "0", "1",
        "tick = Ticker().tick\nassert tick() == 1\nassert tick() == 2"),
    "a method of a new object each time": (TICKER, "0", "1",
        "assert Ticker().tick() == 1\nassert Ticker().tick() == 1"),
    "the value of `and`": ("def f(x):\n    return {wrong}", "x if x == 1 else 5", "True",
        "assert (f(1) and f(2)) == 5"),
    "a call that `and` leaves out": ("def f(x):\n    return {wrong}", "x if x == 0 else 1 / 0",
        "x + 1", "assert not (f(0) and f(1))"),
    "an assertion in a later statement on an earlier test's variable": (SAME, "", "+ 3",
        "r = f(3)\nassert r == 3\nassert f(1) == 1"),
    "a local import beside the program's own function": (
        "def floor(x):\n    return x + 1 {wrong}\ndef f(x):\n    return floor(x)", "", "+ 1",
        "def check(candidate):\n    from math import floor\n    assert candidate(1) == 2\ncheck(f)"),
}  # fmt: skip


def test_the_right_program_passes_and_the_wrong_one_fails(service: Service) -> None:
    items = [
        {
            "completion": program.replace("{wrong}", part),
            "grader": {"kind": "asserts", "tests": [tests], "reveal": True},
        }
        for program, right, wrong, tests in SUITES.values()
        for part in (right, wrong)
    ]
    results = judge(service, *items)
    for name, right, wrong in zip(SUITES, results[::2], results[1::2], strict=True):
        assert (right["reward"], wrong["reward"]) == (1.0, 0.0), (name, right, wrong)
