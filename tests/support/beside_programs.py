"""Honest programs and their tests in one process: what plain Python accepts must pass.

Each is a source, names that the tests import from it, the tests, and a setup. Each one does something
that a protection of the tests might take for an attack.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    source: str
    tests: str
    names: str = "f"
    setup: str = ""

    @property
    def plain(self) -> str:
        """One file with setup, submission and tests."""
        return "\n".join((self.setup, self.source, self.tests))

    @property
    def test_file(self) -> str:
        """A file for pytest with the same tests."""
        body = "".join(f"    {line}\n" for line in self.tests.strip().split("\n"))
        names = f"from solution import {self.names}\n" if self.names else ""
        return f"{self.setup}\n{names}def test_it():\n{body}"


HONEST = {
    "equal to what is alike": Program(
        """
class Word:
    def __init__(self, text): self.text = text
    def __eq__(self, other): return str(getattr(other, "text", other)).lower() == self.text.lower()
    def __hash__(self): return hash(self.text.lower())
def f(text): return Word(text)
""",
        "assert f('Ab') == 'aB' and f('Ab') == f('AB') and f('a') != 'b'",
    ),
    "equal to everything": Program(
        """
class Anything:
    def __eq__(self, other): return True
ANY = Anything()
""",
        "assert ANY == 3 and [1, ANY] == [1, 2] and {'at': ANY} == {'at': object()}",
        names="ANY",
    ),
    "a lazy value": Program(
        """
class Lazy:
    def __init__(self, make): self.make, self.times = make, 0
    @property
    def value(self):
        self.times += 1
        return self.make()
    def __eq__(self, other): return self.value == other
    def __sub__(self, other): return self.value - other
    def __hash__(self): return 1
def f(n): return Lazy(lambda: n * n)
""",
        """
lazy = f(3)
assert lazy == 9
assert lazy.times == 1
assert abs(lazy - 9.0) < 1e-9
assert lazy.times == 2
""",
    ),
    "counts its comparisons": Program(
        """
import functools
@functools.total_ordering
class Counted:
    asked = 0
    def __init__(self, n): self.n = n
    def __eq__(self, other):
        Counted.asked += 1
        return self.n == other.n
    def __lt__(self, other):
        Counted.asked += 1
        return self.n < other.n
""",
        """
a, b = Counted(1), Counted(2)
assert a < b
assert Counted.asked == 1
assert not a == b
assert Counted.asked == 2
""",
        names="Counted",
    ),
    "compares with its own kind alone": Program(
        """
class Metre:
    def __init__(self, n): self.n = n
    def __eq__(self, other):
        if not isinstance(other, Metre): raise TypeError("metres only")
        return self.n == other.n
    def __hash__(self): return hash(self.n)
""",
        "assert Metre(1) == Metre(1) and Metre(1) != Metre(2) and Metre(1) in [Metre(2), Metre(1)]",
        names="Metre",
    ),
    "infinity": Program(
        """
class Infinity:
    def __sub__(self, other): return self
    def __rsub__(self, other): return self
    def __abs__(self): return float("inf")
    def __gt__(self, other): return True
    def __lt__(self, other): return False
INFINITY = Infinity()
""",
        """
assert INFINITY > 10 ** 9 and not INFINITY < 3
assert abs(INFINITY - 5) == float('inf')
""",
        names="INFINITY",
    ),
    "a discrete distance": Program(
        """
class Discrete:
    def __init__(self, n): self.n = n
    def __sub__(self, other): return int(self.n != other)
""",
        "assert abs(Discrete(3) - 5) == 1 and Discrete(3) - 3 == 0",
        names="Discrete",
    ),
    "an array that counts": Program(
        """
import numpy as np
class Logged(np.ndarray):
    log = []
    def __array_function__(self, func, types, args, kwargs):
        Logged.log.append(func.__name__)
        return super().__array_function__(func, types, args, kwargs)
def f(xs): return np.asarray(xs).view(Logged)
""",
        """
import numpy as np
assert np.allclose(f([1, 2]), [1, 2])
assert f([1]).log[0] == 'allclose'
""",
    ),
    "units through ufuncs": Program(
        """
import numpy as np
class Length:
    def __init__(self, n): self.n = n
    def __array_ufunc__(self, ufunc, method, *inputs, **more):
        return Length(getattr(ufunc, method)(*(getattr(each, "n", each) for each in inputs), **more))
    def __array_function__(self, func, types, args, kwargs): return func(*(getattr(a, "n", a) for a in args))
def f(n): return Length(np.array([n, n]))
""",
        """
import numpy as np
assert (np.add(f(1), 2).n == 3).all()
assert np.sum(f(4)) == 8
""",
    ),
    "its own len": Program(
        "def len(xs): return 7",
        "assert len([]) == 7",
        names="len",
    ),
    "its own sum beside another function": Program(
        """
def sum(*xs):
    total = 0
    for x in xs: total += x
    return total
def f(x): return sum(x, x)
""",
        "assert f(2) == 4 and sum(1, 2, 3) == 6",
        names="f, sum",
    ),
    "its own print": Program(
        """
log = []
def print(*words): log.append(words)
def f(x):
    print(x)
    return log
""",
        "assert f(1) == [(1,)]",
    ),
    "a built-in that it wraps": Program(
        """
import builtins, functools
opened = []
plain = builtins.open
def note(path, *more, **named):
    opened.append(path)
    return plain(path, *more, **named)
builtins.open = note
def f(path):
    with open(path) as file: return file.read()
""",
        "assert f('/dev/null') == '' and opened == ['/dev/null']",
        names="f, opened",
    ),
    "a rounder round": Program(
        """
import builtins
plain = builtins.round
builtins.round = lambda x, n=0: plain(x + 1e-9, n)
def f(x): return round(x, 2)
""",
        "assert f(2.675) == 2.68 and round(0.125, 2) == 0.13",
    ),
    "a built-in of its own": Program(
        """
import builtins
builtins.reversed_text = lambda s: s[::-1]
def f(s): return reversed_text(s)
""",
        "assert f('ab') == 'ba' and reversed_text('abc') == 'cba'",
    ),
    "patches json": Program(
        """
import functools, json
json.dumps = functools.partial(json.dumps, sort_keys=True)
def f(x): return json.dumps(x)
""",
        """
import json
assert f({'b': 1, 'a': 2}) == '{"a": 2, "b": 1}' == json.dumps({'b': 1, 'a': 2})
""",
    ),
    "patches the clock": Program(
        """
import time
now = [0.0]
def sleep(seconds): now[0] += seconds
time.sleep = sleep
time.monotonic = lambda: now[0]
def f(n):
    time.sleep(n)
    return time.monotonic()
""",
        """
import time
assert f(3600) == 3600 == time.monotonic()
""",
    ),
    "patches math": Program(
        """
import math
def isclose(a, b, rel_tol=1e-9, abs_tol=1e-9):
    return abs(a - b) <= max(rel_tol * max(abs(a), abs(b)), abs_tol)
math.isclose = isclose
def f(x): return x * 0.1
""",
        """
import math
assert math.isclose(f(3), 0.3) and not math.isclose(f(3), 0.4)
""",
    ),
    "patches unittest": Program(
        """
import unittest
unittest.TestCase.shortDescription = lambda self: None
unittest.TestCase.assertClose = lambda self, a, b: self.assertAlmostEqual(a, b, places=3)
def f(x): return x + 1e-9
""",
        """
import unittest
class Close(unittest.TestCase):
    def test_close(self): self.assertClose(f(1), 1)
run = unittest.TestResult()
Close('test_close').run(run)
assert run.wasSuccessful() and run.testsRun == 1
""",
    ),
    "names like those of the tests": Program(
        """
def helper(x): return x + 1
expected = [1, 2]
def f(x): return helper(x) + len(expected)
""",
        """
assert f(1) == 4
assert helper(1) == 2 and expected == [1, 2]
""",
        names="f, helper, expected",
    ),
    "defines what the setup defines": Program(
        """
class Node:
    def __init__(self, value, next=None): self.value, self.next = value, next
def f(node):
    total = 0
    while node: total, node = total + node.value, node.next
    return total
""",
        "assert f(Node(1, Node(2))) == 3",
        setup="""
class Node:
    def __init__(self, value, next=None):
        self.value = value
        self.next = next
""",
    ),
    "tries again": Program(
        """
import functools
def retry(times):
    def decorate(function):
        @functools.wraps(function)
        def again(*args):
            for left in reversed(range(times)):
                try: return function(*args)
                except Exception:
                    if not left: raise
        return again
    return decorate
""",
        """
calls = []
@retry(3)
def flaky():
    calls.append(1)
    assert len(calls) == 3
    return 'done'
assert flaky() == 'done' and len(calls) == 3
""",
        names="retry",
    ),
    "a small runner of tests": Program(
        """
def run(*tests):
    failed = []
    for test in tests:
        try: test()
        except AssertionError: failed.append(test.__name__)
    return failed
""",
        """
def good(): assert 1 + 1 == 2
def bad(): assert 1 + 1 == 3
assert run(good, bad) == ['bad']
""",
        names="run",
    ),
    "suppresses errors": Program(
        """
class ignoring:
    def __init__(self, *kinds): self.kinds = kinds
    def __enter__(self): return self
    def __exit__(self, kind, *rest): return kind is not None and issubclass(kind, self.kinds)
""",
        """
with ignoring(AssertionError, KeyError):
    assert 1 == 2
with ignoring(KeyError):
    {}['a']
reached = True
assert reached
""",
        names="ignoring",
    ),
    "skips where it must": Program(
        """
import functools, unittest
def needs(flag):
    def decorate(function):
        @functools.wraps(function)
        def checked(*args):
            if not flag: raise unittest.SkipTest("off")
            return function(*args)
        return checked
    return decorate
""",
        """
import unittest
class Some(unittest.TestCase):
    @needs(False)
    def test_off(self): self.fail()
    @needs(True)
    def test_on(self): pass
result = unittest.TestResult()
unittest.TestSuite(map(Some, ['test_off', 'test_on'])).run(result)
assert len(result.skipped) == 1 and result.wasSuccessful()
""",
        names="needs",
    ),
    "catches exits": Program(
        """
import sys
def f(function):
    try: function()
    except SystemExit as left: return left.code
def leave(code): sys.exit(code)
""",
        "assert f(lambda: leave(3)) == 3 and f(lambda: leave(0)) == 0 and f(lambda: None) is None",
        names="f, leave",
    ),
    "exits as it must": Program(
        """
import sys
def f(argv):
    if not argv: sys.exit(2)
    return argv[0]
""",
        """
try: f([])
except SystemExit as left: code = left.code
assert code == 2 and f(['a']) == 'a'
""",
    ),
    "cancels its own tasks": Program(
        """
import asyncio
async def f(seconds):
    task = asyncio.ensure_future(asyncio.sleep(100))
    await asyncio.sleep(0)
    task.cancel()
    await task
""",
        """
import asyncio
async def main():
    try: await f(1)
    except asyncio.CancelledError: return 'cancelled'
assert asyncio.run(main()) == 'cancelled'
""",
    ),
    "has tests of its own": Program(
        """
import unittest
def f(x): return 2 * x
class Own(unittest.TestCase):
    def test_f(self): self.assertEqual(f(1), 2)
if __name__ == '__main__':
    unittest.main(argv=['x'], exit=False)
""",
        """
import io, unittest
assert f(2) == 4
loaded = unittest.defaultTestLoader.loadTestsFromTestCase(Own)
assert unittest.TextTestRunner(stream=io.StringIO()).run(loaded).wasSuccessful()
""",
        names="f, Own",
    ),
    "says goodbye": Program(
        """
import atexit
log = []
atexit.register(log.append, 'bye')
def f(): return log
""",
        "assert f() == []",
    ),
    "works in threads": Program(
        """
import threading
found = []
def f(n):
    threads = [threading.Thread(target=found.append, args=(i,)) for i in range(n)]
    for each in threads: each.start()
    for each in threads: each.join()
    return sorted(found)
threading.Thread(target=threading.Event().wait, daemon=True).start()
""",
        "assert f(4) == [0, 1, 2, 3]",
    ),
    "handles a signal": Program(
        """
import os, signal
seen = []
signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
def f():
    os.kill(os.getpid(), signal.SIGUSR1)
    return seen
""",
        """
import signal
assert f() == [signal.SIGUSR1]
""",
    ),
    "turns warnings into errors": Program(
        """
import warnings
warnings.simplefilter('error')
def f():
    try: warnings.warn('x')
    except UserWarning: return 'raised'
""",
        """
import warnings
warnings.simplefilter('error')
assert f() == 'raised'
""",
    ),
    "a locale and a context": Program(
        """
import decimal, locale
locale.setlocale(locale.LC_ALL, 'C')
decimal.getcontext().prec = 4
def f(): return decimal.Decimal(1) / 3
""",
        """
import decimal
assert str(f()) == '0.3333'
""",
    ),
    "recurses deep": Program(
        """
import sys
sys.setrecursionlimit(20000)
def f(n): return 0 if n == 0 else 1 + f(n - 1)
""",
        "assert f(3000) == 3000",
    ),
    "runs up to the limit": Program(
        """
def depth():
    try: return 1 + depth()
    except RecursionError: return 1
def f():
    return depth()
""",
        "assert f() > 100",
    ),
    "descriptors": Program(
        """
class Positive:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, thing, owner=None): return self if thing is None else getattr(thing, self.name)
    def __set__(self, thing, value):
        if value <= 0: raise ValueError(value)
        setattr(thing, self.name, value)
class Box:
    side = Positive()
    def __init__(self, side): self.side = side
""",
        """
assert Box(3).side == 3
try: Box(-1)
except ValueError as error: assert error.args == (-1,)
else: assert False
""",
        names="Box",
    ),
    "a metaclass that compares": Program(
        """
class Named(type):
    def __eq__(cls, other): return cls.__name__ == getattr(other, "__name__", other)
    def __hash__(cls): return hash(cls.__name__)
    def __instancecheck__(cls, thing): return hasattr(thing, "name")
class Animal(metaclass=Named):
    name = "x"
""",
        """
assert Animal == 'Animal' and isinstance(Animal(), Animal) and not isinstance(3, Animal)
class Dog(Animal): pass
assert Dog == 'Dog' and issubclass(Dog, Animal)
""",
        names="Animal",
    ),
    "attributes of the module": Program(
        """
def __getattr__(name):
    if name == 'answer': return 42
    raise AttributeError(name)
def f(): return 1
""",
        """
import solution
assert solution.answer == 42 and f() == 1 and not hasattr(solution, 'other')
""",
    ),
    "redirects output": Program(
        """
import contextlib, io
def f(function):
    with contextlib.redirect_stdout(io.StringIO()) as out: function()
    return out.getvalue()
""",
        r"""
assert f(lambda: print('hi')) == 'hi\n'
""",
    ),
    "replaces its own module": Program(
        """
import sys, types
class Module(types.ModuleType):
    @property
    def now(self): return 7
sys.modules[__name__].__class__ = Module
def f(): return sys.modules[f.__module__]
""",
        "assert f() is not None",
    ),
    "traces itself": Program(
        """
import sys
lines = []
def trace(frame, event, arg):
    lines.append(event)
    return trace
def f(x):
    before = sys.gettrace()
    sys.settrace(trace)
    try: y = g(x)
    finally: sys.settrace(before)
    return y
def g(x): return x + 1
""",
        "assert f(1) == 2 and 'return' in lines",
        names="f, lines",
    ),
    "numbers of its own": Program(
        """
from fractions import Fraction
class Money(Fraction):
    def __add__(self, other): return Money(super().__add__(other))
    def __repr__(self): return f"{float(self):.2f}"
class Mod:
    def __init__(self, n): self.n = n % 7
    def __eq__(self, other): return self.n == (other.n if isinstance(other, Mod) else other % 7)
    def __sub__(self, other): return Mod(self.n - getattr(other, "n", other))
    def __abs__(self): return self.n
""",
        """
assert Money(1, 2) + 1 == 1.5 and repr(Money(1, 2)) == '0.50'
assert Mod(8) == 1 == Mod(15) and abs(Mod(9) - 2) == 0
""",
        names="Money, Mod",
    ),
    "symbols": Program(
        """
class Symbol:
    def __init__(self, text): self.text = text
    def __eq__(self, other): return Equation(self, other)
    def __lt__(self, other): return Equation(self, other, "<")
    def __hash__(self): return hash(self.text)
    def __add__(self, other): return Symbol(f"{self.text} + {getattr(other, 'text', other)}")
class Equation:
    def __init__(self, left, right, sign="=="):
        self.text = f"{left.text} {sign} {getattr(right, 'text', right)}"
    def __bool__(self): return True
""",
        """
x = Symbol('x')
assert (x + 1 == 3).text == 'x + 1 == 3' and (x < 2).text == 'x < 2'
assert x == 3
""",
        names="Symbol",
    ),
}
