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
        "class Anything:\n    def __eq__(self, other): return True\nANY = Anything()",
        "assert ANY == 3 and [1, ANY] == [1, 2] and {'at': ANY} == {'at': object()}",
        "ANY",
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
        "lazy = f(3)\nassert lazy == 9\nassert lazy.times == 1\nassert abs(lazy - 9.0) < 1e-9\nassert lazy.times == 2",
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
        "a, b = Counted(1), Counted(2)\nassert a < b\nassert Counted.asked == 1\nassert not a == b\nassert Counted.asked == 2",
        "Counted",
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
        "Metre",
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
        "assert INFINITY > 10 ** 9 and not INFINITY < 3\nassert abs(INFINITY - 5) == float('inf')",
        "INFINITY",
    ),
    "a discrete distance": Program(
        """
class Discrete:
    def __init__(self, n): self.n = n
    def __sub__(self, other): return int(self.n != other)
""",
        "assert abs(Discrete(3) - 5) == 1 and Discrete(3) - 3 == 0",
        "Discrete",
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
        "import numpy as np\nassert np.allclose(f([1, 2]), [1, 2])\nassert f([1]).log[0] == 'allclose'",
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
        "import numpy as np\nassert (np.add(f(1), 2).n == 3).all()\nassert np.sum(f(4)) == 8",
    ),
    "its own len": Program("def len(xs): return 7", "assert len([]) == 7", "len"),
    "its own sum beside another function": Program(
        "def sum(*xs):\n    total = 0\n    for x in xs: total += x\n    return total\ndef f(x): return sum(x, x)",
        "assert f(2) == 4 and sum(1, 2, 3) == 6",
        "f, sum",
    ),
    "its own print": Program(
        "log = []\ndef print(*words): log.append(words)\ndef f(x):\n    print(x)\n    return log",
        "assert f(1) == [(1,)]",
    ),
    "a built-in that it wraps": Program(
        "import builtins, functools\nopened = []\nplain = builtins.open\n"
        "def note(path, *more, **named):\n    opened.append(path)\n    return plain(path, *more, **named)\n"
        "builtins.open = note\ndef f(path):\n    with open(path) as file: return file.read()",
        "assert f('/dev/null') == '' and opened == ['/dev/null']",
        "f, opened",
    ),
    "a rounder round": Program(
        "import builtins\nplain = builtins.round\nbuiltins.round = lambda x, n=0: plain(x + 1e-9, n)\n"
        "def f(x): return round(x, 2)",
        "assert f(2.675) == 2.68 and round(0.125, 2) == 0.13",
    ),
    "a built-in of its own": Program(
        "import builtins\nbuiltins.reversed_text = lambda s: s[::-1]\ndef f(s): return reversed_text(s)",
        "assert f('ab') == 'ba' and reversed_text('abc') == 'cba'",
    ),
    "patches json": Program(
        "import functools, json\njson.dumps = functools.partial(json.dumps, sort_keys=True)\n"
        "def f(x): return json.dumps(x)",
        "import json\nassert f({'b': 1, 'a': 2}) == '{\"a\": 2, \"b\": 1}' == json.dumps({'b': 1, 'a': 2})",
    ),
    "patches the clock": Program(
        "import time\nnow = [0.0]\ndef sleep(seconds): now[0] += seconds\ntime.sleep = sleep\n"
        "time.monotonic = lambda: now[0]\ndef f(n):\n    time.sleep(n)\n    return time.monotonic()",
        "import time\nassert f(3600) == 3600 == time.monotonic()",
    ),
    "patches math": Program(
        "import math\nmath.isclose = lambda a, b, rel_tol=1e-9, abs_tol=1e-9: abs(a - b) <= max(rel_tol * max(abs(a), abs(b)), abs_tol)\n"
        "def f(x): return x * 0.1",
        "import math\nassert math.isclose(f(3), 0.3) and not math.isclose(f(3), 0.4)",
    ),
    "patches unittest": Program(
        "import unittest\nunittest.TestCase.shortDescription = lambda self: None\n"
        "unittest.TestCase.assertClose = lambda self, a, b: self.assertAlmostEqual(a, b, places=3)\n"
        "def f(x): return x + 1e-9",
        "import unittest\nclass Close(unittest.TestCase):\n    def test_close(self): self.assertClose(f(1), 1)\n"
        "run = unittest.TestResult()\nClose('test_close').run(run)\nassert run.wasSuccessful() and run.testsRun == 1",
    ),
    "names like those of the tests": Program(
        "def helper(x): return x + 1\nexpected = [1, 2]\ndef f(x): return helper(x) + len(expected)",
        "assert f(1) == 4\nassert helper(1) == 2 and expected == [1, 2]",
        "f, helper, expected",
    ),
    "defines what the setup defines": Program(
        "class Node:\n    def __init__(self, value, next=None): self.value, self.next = value, next\n"
        "def f(node):\n    total = 0\n    while node: total, node = total + node.value, node.next\n    return total",
        "assert f(Node(1, Node(2))) == 3",
        "f",
        "class Node:\n    def __init__(self, value, next=None):\n        self.value = value\n        self.next = next",
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
        "calls = []\n@retry(3)\ndef flaky():\n    calls.append(1)\n    assert len(calls) == 3\n    return 'done'\n"
        "assert flaky() == 'done' and len(calls) == 3",
        "retry",
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
        "def good(): assert 1 + 1 == 2\ndef bad(): assert 1 + 1 == 3\nassert run(good, bad) == ['bad']",
        "run",
    ),
    "suppresses errors": Program(
        """
class ignoring:
    def __init__(self, *kinds): self.kinds = kinds
    def __enter__(self): return self
    def __exit__(self, kind, error, traceback): return kind is not None and issubclass(kind, self.kinds)
""",
        "with ignoring(AssertionError, KeyError):\n    assert 1 == 2\nwith ignoring(KeyError):\n    {}['a']\nreached = True\nassert reached",
        "ignoring",
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
        "import unittest\nclass Some(unittest.TestCase):\n    @needs(False)\n    def test_off(self): self.fail()\n"
        "    @needs(True)\n    def test_on(self): pass\n"
        "result = unittest.TestResult()\nunittest.TestSuite(map(Some, ['test_off', 'test_on'])).run(result)\n"
        "assert len(result.skipped) == 1 and result.wasSuccessful()",
        "needs",
    ),
    "catches exits": Program(
        "import sys\ndef f(function):\n    try: function()\n    except SystemExit as left: return left.code\n"
        "def leave(code): sys.exit(code)",
        "assert f(lambda: leave(3)) == 3 and f(lambda: leave(0)) == 0 and f(lambda: None) is None",
        "f, leave",
    ),
    "exits as it must": Program(
        "import sys\ndef f(argv):\n    if not argv: sys.exit(2)\n    return argv[0]",
        "try: f([])\nexcept SystemExit as left: code = left.code\nassert code == 2 and f(['a']) == 'a'",
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
        "import asyncio\nasync def main():\n    try: await f(1)\n    except asyncio.CancelledError: return 'cancelled'\n"
        "assert asyncio.run(main()) == 'cancelled'",
    ),
    "has tests of its own": Program(
        "import unittest\ndef f(x): return 2 * x\nclass Own(unittest.TestCase):\n    def test_f(self): self.assertEqual(f(1), 2)\n"
        "if __name__ == '__main__':\n    unittest.main(argv=['x'], exit=False)",
        "import io, unittest\nassert f(2) == 4\nloaded = unittest.defaultTestLoader.loadTestsFromTestCase(Own)\n"
        "assert unittest.TextTestRunner(stream=io.StringIO()).run(loaded).wasSuccessful()",
        "f, Own",
    ),
    "says goodbye": Program(
        "import atexit\nlog = []\natexit.register(log.append, 'bye')\ndef f(): return log",
        "assert f() == []",
    ),
    "works in threads": Program(
        "import threading\nfound = []\ndef f(n):\n    threads = [threading.Thread(target=found.append, args=(i,)) for i in range(n)]\n"
        "    for each in threads: each.start()\n    for each in threads: each.join()\n    return sorted(found)\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "assert f(4) == [0, 1, 2, 3]",
    ),
    "handles a signal": Program(
        "import os, signal\nseen = []\nsignal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))\n"
        "def f():\n    os.kill(os.getpid(), signal.SIGUSR1)\n    return seen",
        "import signal\nassert f() == [signal.SIGUSR1]",
    ),
    "turns warnings into errors": Program(
        "import warnings\nwarnings.simplefilter('error')\ndef f():\n    try: warnings.warn('x')\n    except UserWarning: return 'raised'",
        "import warnings\nwarnings.simplefilter('error')\nassert f() == 'raised'",
    ),
    "a locale and a context": Program(
        "import decimal, locale\nlocale.setlocale(locale.LC_ALL, 'C')\ndecimal.getcontext().prec = 4\n"
        "def f(): return decimal.Decimal(1) / 3",
        "import decimal\nassert str(f()) == '0.3333'",
    ),
    "recurses deep": Program(
        "import sys\nsys.setrecursionlimit(20000)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)",
        "assert f(3000) == 3000",
    ),
    "runs up to the limit": Program(
        "def depth():\n    try: return 1 + depth()\n    except RecursionError: return 1\ndef f():\n    return depth()",
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
        "assert Box(3).side == 3\ntry: Box(-1)\nexcept ValueError as error: assert error.args == (-1,)\nelse: assert False",
        "Box",
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
        "assert Animal == 'Animal' and isinstance(Animal(), Animal) and not isinstance(3, Animal)\n"
        "class Dog(Animal): pass\nassert Dog == 'Dog' and issubclass(Dog, Animal)",
        "Animal",
    ),
    "attributes of the module": Program(
        "def __getattr__(name):\n    if name == 'answer': return 42\n    raise AttributeError(name)\ndef f(): return 1",
        "import solution\nassert solution.answer == 42 and f() == 1 and not hasattr(solution, 'other')",
    ),
    "redirects output": Program(
        "import contextlib, io\ndef f(function):\n    with contextlib.redirect_stdout(io.StringIO()) as out: function()\n    return out.getvalue()",
        "assert f(lambda: print('hi')) == 'hi\\n'",
    ),
    "replaces its own module": Program(
        "import sys, types\nclass Module(types.ModuleType):\n    @property\n    def now(self): return 7\n"
        "sys.modules[__name__].__class__ = Module\ndef f(): return sys.modules[f.__module__]",
        "assert f() is not None",
    ),
    "traces itself": Program(
        "import sys\nlines = []\ndef trace(frame, event, arg):\n    lines.append(event)\n    return trace\n"
        "def f(x):\n    before = sys.gettrace()\n    sys.settrace(trace)\n    try: y = g(x)\n    finally: sys.settrace(before)\n    return y\ndef g(x): return x + 1",
        "assert f(1) == 2 and 'return' in lines",
        "f, lines",
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
        "assert Money(1, 2) + 1 == 1.5 and repr(Money(1, 2)) == '0.50'\nassert Mod(8) == 1 == Mod(15) and abs(Mod(9) - 2) == 0",
        "Money, Mod",
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
    def __init__(self, left, right, sign="=="): self.text = f"{left.text} {sign} {getattr(right, 'text', right)}"
    def __bool__(self): return True
""",
        "x = Symbol('x')\nassert (x + 1 == 3).text == 'x + 1 == 3' and (x < 2).text == 'x < 2'\nassert x == 3",
        "Symbol",
    ),
}
