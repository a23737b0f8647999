# ruff: noqa: E501 - the tables hold programs
"""Ways around the statements of tests: exceptions, generators, callbacks, names, the channel."""

from __future__ import annotations

from level_attacks.task import Task

FIVE = "def f(n):\n    return 5"
TABLE = "for n in [3]:\n    assert f(n) == 5"
FRAMES = """
import gc, json, sys, threading
def channel(): return [o for o in gc.get_objects() if type(o).__name__ == 'Channel'][0]
def send(*frame): channel().send((json.dumps(frame) + '\\n').encode())
"""


def _raising(*errors: str, header: str = "") -> dict[str, str]:
    return {f"raises_{i}": f"{header}\ndef f(*a):\n    raise {e}" for i, e in enumerate(errors)}


SKIPS = _raising(
    "SystemExit(0)",
    "KeyboardInterrupt",
    "GeneratorExit",
    "StopIteration",
    "StopIteration(5)",
    "unittest.SkipTest('x')",
    "asyncio.CancelledError()",
    "AssertionError",
    "MemoryError",
    header="import unittest, asyncio",
)
CONTROL_FLOW = [
    Task("statements", TABLE, FIVE, SKIPS),
    Task(
        "case",
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(f(3), 5)\nunittest.main(argv=['x'], exit=False)",
        FIVE,
        SKIPS,
    ),
    Task(
        "sub_tests",
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        for n in (3, 4):\n            with self.subTest(n=n):\n                self.assertEqual(f(n), 5)\nr = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T))\nassert not r.failures and not r.errors and not r.skipped",
        FIVE,
        SKIPS,
    ),
    Task(
        "generator_stops",
        "def every():\n    for n in (3, 4):\n        yield f(n) == 5\nassert list(every()) == [True, True]\nassert all(f(n) == 5 for n in (3, 4))",
        FIVE,
        SKIPS,
    ),
    Task(
        "raises",
        "try:\n    f(-1)\nexcept ValueError as e:\n    assert str(e) == 'negative' and e.args == ('negative',)\nelse:\n    raise AssertionError('no error')",
        "def f(n): raise ValueError('negative')",
        {
            "same_name": "class ValueError(Exception): pass\ndef f(n): raise ValueError('negative')",
            "lying_text": "class V(ValueError):\n    def __str__(self): return S('x')\nclass S(str):\n    __eq__ = lambda s, o: True\n    __hash__ = str.__hash__\ndef f(n): raise V('x')",
            "lying_args": "class V(ValueError):\n    args = property(lambda s: ('negative',))\n    def __str__(self): return 'negative'\ndef f(n): raise V('other')",
            "instance_check": "class M(type):\n    def __instancecheck__(c, o): return True\n    def __subclasscheck__(c, o): return True\nclass V(Exception, metaclass=M): pass\ndef f(n): raise V('negative')",
            "kind_property": "class V(Exception):\n    __class__ = ValueError\ndef f(n): raise V('negative')",
        },
    ),
    Task(
        "raises_unittest",
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        with self.assertRaisesRegex(ValueError, '^negative number$'):\n            f(-1)\n        self.assertRaises(KeyError, f, 1)\nunittest.main(argv=['x'], exit=False)",
        "def f(n):\n    if n > 0: raise KeyError(n)\n    raise ValueError('negative number')",
        {
            "always": "class Both(ValueError, KeyError): pass\ndef f(n): raise Both('number')",
            "nothing": "def f(n): return None",
            "leave": "def f(n): raise SystemExit",
            "lying": "class V(ValueError, KeyError):\n    def __str__(self): return R()\nclass R(str): pass\ndef f(n): raise V('z')",
        },
    ),
    Task(
        "raises_own",
        "try:\n    f(-1)\nexcept Negative as e:\n    assert e.code == 7\nelse:\n    assert False",
        "class Negative(Exception):\n    code = 7\ndef f(n): raise Negative()",
        {
            "every_class": "class M(type):\n    def __instancecheck__(c, o): return True\nclass Negative(Exception, metaclass=M):\n    code = 8\ndef f(n): raise Negative()",
            "assertion": "class Negative(AssertionError):\n    code = 8\ndef f(n): return 1",
        },
    ),
    Task(
        "context",
        "with C(3) as c:\n    assert c.get() == 3",
        "class C:\n    def __init__(self, n): self.n = n\n    def __enter__(self): return self\n    def __exit__(self, *e): return False\n    def get(self): return self.n",
        {
            "swallows": "class C:\n    def __init__(self, n): pass\n    def __enter__(self): return self\n    def __exit__(self, *e): return True\n    def get(self): return 0",
            "raises_other": "class C:\n    def __init__(self, n): pass\n    def __enter__(self): return self\n    def __exit__(self, *e): raise StopIteration\n    def get(self): return 0",
        },
    ),
    Task(
        "decorator",
        "@retry(2)\ndef g():\n    g.calls = getattr(g, 'calls', 0) + 1\n    return 5\nassert g() == 5\nran = []\n@retry(2)\ndef h():\n    ran.append(1)\n    assert len(ran) < 5\n    raise ValueError\ntry:\n    h()\nexcept ValueError:\n    pass\nassert len(ran) == 2",
        "def retry(n):\n    def d(f):\n        def w(*a):\n            for i in range(n):\n                try: return f(*a)\n                except ValueError:\n                    if i == n - 1: raise\n        return w\n    return d",
        {
            "never_calls": "def retry(n):\n    return lambda f: lambda *a: 5",
            "swallows": "def retry(n):\n    def d(f):\n        def w(*a):\n            try: return f(*a)\n            except BaseException: return 5\n        return w\n    return d",
        },
    ),
    Task(
        "callback",
        "seen = []\ndef note(x):\n    assert x in (1, 2)\n    seen.append(x)\nf([1, 2], note)\nassert seen == [1, 2]",
        "def f(xs, note):\n    for x in xs: note(x)",
        {
            "none": "def f(xs, note): pass",
            "swallows": "def f(xs, note):\n    for x in (3, 1, 2):\n        try: note(x)\n        except BaseException: pass",
            "closure": "def f(xs, note):\n    try: note.__closure__[0].cell_contents.extend(xs)\n    except Exception: pass",
            "globals": "def f(xs, note):\n    try: note.__globals__['seen'] = xs\n    except Exception: pass",
        },
    ),
    Task(
        "mock",
        "from unittest import mock\nm = mock.Mock(return_value=3)\nassert f(m) == 3\nm.assert_called_once_with(7)\nassert m.call_count == 1",
        "def f(m): return m(7)",
        {
            "set_count": "def f(m):\n    for name in ('call_count', 'called', 'call_args', 'return_value'):\n        try: setattr(m, name, 1)\n        except Exception: pass\n    return 3",
            "replace": "def f(m):\n    try: m.assert_called_once_with = lambda *a: None\n    except Exception: pass\n    return 3",
            "none": "def f(m): return 3",
        },
    ),
    Task(
        "tests_class",
        "class Node:\n    def __init__(self, v): self.v = v\n    def same(self, o): return self.v == o\nn = Node(3)\nf(n)\nassert n.same(4) and not n.same(5)",
        "def f(n): n.v = 4",
        {
            "replaces_method": "def f(n):\n    try: n.same = lambda o: o == 4\n    except Exception: pass",
            "class_method": "def f(n):\n    try: type(n).same = lambda s, o: o == 4\n    except Exception: pass",
            "lying_field": "class Y:\n    __eq__ = lambda s, o: o == 4\ndef f(n): n.v = Y()",
        },
    ),
    Task(
        "builtins_rebound",
        "for n in [3]:\n    assert sorted(f(n)) == [1, 2, 3] and len(f(n)) == 3 and isinstance(f(n), list)",
        "def f(n): return [3, 1, 2]",
        {
            "rebinds": "import builtins\nfor name in ('sorted', 'len', 'isinstance', 'all', 'abs'):\n    globals()[name] = lambda *a, **k: [1, 2, 3]\n    setattr(builtins, name, globals()[name])\ndef f(n): return [0]"
        },
    ),
    Task(
        "implied_names",
        "assert math.isclose(f(3), math.pi)\nassert Counter(f2(3)) == Counter([1, 2])",
        "import math\ndef f(n): return math.pi\ndef f2(n): return [2, 1]",
        {
            "own_modules": "import math as real\nclass math:\n    pi = 0\n    isclose = staticmethod(lambda a, b: True)\nclass Counter:\n    def __init__(self, x): pass\n    def __eq__(self, o): return True\ndef f(n): return 0\ndef f2(n): return [7]",
            "patched": "import math, collections\nmath.isclose = lambda a, b: True\nmath.pi = 0\ncollections.Counter.__eq__ = lambda s, o: True\ndef f(n): return 0\ndef f2(n): return [7]",
        },
    ),
    Task(
        "capital_function",
        "assert Total(1, 2) == 3\nassert Total(2, 2) == 4",
        "def Total(a, b): return a + b",
        {
            "class": "class Total:\n    def __init__(self, *a): pass\n    def __eq__(self, o): return True"
        },
    ),
    Task(
        "helper_overridden",
        "def verify(a, b):\n    assert a == b\nfor n in [3]:\n    verify(f(n), 5)",
        FIVE,
        {
            "defines": "def verify(a, b): pass\ndef f(n): return 0",
            "main": "import sys\nsys.modules['__main__'].verify = lambda a, b: None\ndef f(n): return 0",
        },
    ),
    Task(
        "check_candidate",
        "def check(candidate):\n    assert candidate(3) == 5\n    assert candidate(4) == 6",
        "def f(n): return n + 2",
        {
            "check": "def f(n): return 0\ndef check(c): pass",
            "candidate": "def f(n): return 0\ncandidate = lambda n: n + 2",
        },
        entry_point="f",
    ),
    Task(
        "channel",
        TABLE,
        FIVE,
        {
            "judge_reports": FRAMES
            + 'def f(n):\n    channel().send(b\'!["test",0,"passed","",{}]\\n!["done",{"asked":1}]\\n\')\n    return 0',
            "bye": FRAMES + "def f(n):\n    send('bye')\n    return 0",
            "answers": FRAMES
            + "def f(n):\n    for i in range(30): send('a', i, 'v', ['h', 1, {'k': 'object', 'c': 1}], {})\n    return 0",
            "thread": FRAMES
            + "def late():\n    for i in range(200): send('q', i, 'call', ['t', 0, ['o', 1]], {'c': [], 'u': [], 'k': 1, 's': []})\ndef f(n):\n    threading.Thread(target=late, daemon=True).start()\n    return 0",
            "broken": FRAMES
            + 'def f(n):\n    channel().send(b\'!["broken","x"]\\n{\\n\')\n    return 0',
        },
    ),
    Task(
        "channel_calls",
        "assert f(3) == 5",
        FIVE,
        {
            "report": FRAMES
            + "send('loaded')\nsend('value', 0, True)\nsend('done')\ndef f(n): return 0",
            "exit": "import os\ndef f(n): os._exit(0)",
        },
    ),
    Task(
        "tasks",
        "import asyncio\nasync def one(n):\n    assert await f(n) == n * n\nasync def main():\n    ts = [asyncio.create_task(one(n)) for n in range(3)]\n    await asyncio.wait(ts)\n    for t in ts:\n        if not t.cancelled():\n            assert t.exception() is None\nasyncio.run(main())",
        "async def f(n): return n * n",
        {
            "cancels": "import asyncio\nasync def f(n): raise asyncio.CancelledError",
            "cancels_itself": "import asyncio\nasync def f(n):\n    asyncio.current_task().cancel()\n    await asyncio.sleep(0)",
            "exit": "async def f(n): raise SystemExit",
        },
    ),
    Task(
        "generator_value",
        "g = f(3)\nassert next(g) == 1\nassert next(g) == 2\ntry:\n    next(g)\nexcept StopIteration as s:\n    assert s.value == 9\nelse:\n    assert False",
        "def f(n):\n    yield 1\n    yield 2\n    return 9",
        {
            "own_iterator": "class G:\n    n = 0\n    def __iter__(self): return self\n    def __next__(self):\n        G.n += 1\n        if G.n > 2:\n            raise StopIteration(8)\n        return G.n\ndef f(n): return G()",
            "ends_early": "def f(n):\n    return 9\n    yield",
        },
    ),
    Task(
        "any_of",
        "for n in [3]:\n    r = f(n)\n    assert any(r == w for w in ([1, 2], [2, 1]))",
        "def f(n): return [2, 1]",
        {
            "guess": "class L(list):\n    k = 0\n    def __eq__(self, o):\n        L.k += 1\n        return L.k == 2\ndef f(n): return L([0])"
        },
    ),
    Task(
        "level_chosen_by_answer",
        "import logging\nassert f(3) == 5",
        FIVE,
        {
            "array": "import numpy as np\ndef f(n): return np.array([5, 5])",
            "array_lies": "import numpy as np\nclass A(np.ndarray):\n    def __eq__(self, o): return True\ndef f(n): return np.zeros(2).view(A)",
            "huge": "def f(n): return 'x' * 3_000_000",
        },
    ),
    Task(
        "colliding_hashes",
        "assert len(set(f(3))) == 3\nassert frozenset(f(4)) == {1, 2}",
        "def f(n): return [1, 2, n] if n == 3 else [1, 2]",
        {
            "integers": "def f(n): return [k * (2**61 - 1) for k in range(1, 30000)]",
        },
    ),
]
