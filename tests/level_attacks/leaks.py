# ruff: noqa: E501 - the tables hold programs
"""Submissions that repeat what tests that are not to be revealed tell them."""

from __future__ import annotations

from level_attacks.task import Task

HIDDEN = "word = ''.join(reversed('TERCESPOT'))\n"
SHOUT = "raise Exception(repr(x))"
LEAKS = [
    Task(
        "argument",
        HIDDEN + "assert f(word) == 9",
        "def f(x): return 9",
        {"raises": f"def f(x): {SHOUT}", "prints": "def f(x): print(x)"},
        secret="TOPSECRET",
    ),
    Task(
        "closure",
        HIDDEN + "g = make()\nassert g(word) == 9",
        "def make(): return lambda x: 9",
        {
            "raises": f"def make():\n    def g(x): {SHOUT}\n    return g",
            "prints": "def make(): return print",
        },
        secret="TOPSECRET",
    ),
    Task(
        "factory",
        HIDDEN + "c = make()\nassert c.feed(word) == 9",
        "class C:\n    def feed(self, x): return 9\ndef make(): return C()",
        {"raises": f"class C:\n    def feed(self, x): {SHOUT}\ndef make(): return C()"},
        secret="TOPSECRET",
    ),
    Task(
        "self_attribute",
        HIDDEN
        + "import unittest\nclass Test(unittest.TestCase):\n    def setUp(self):\n        self.c = C()\n    def test_it(self):\n        self.assertEqual(self.c.feed(word), 9)\nunittest.main(argv=['x'], exit=False)",
        "class C:\n    def feed(self, x): return 9",
        {
            "raises": f"class C:\n    def feed(self, x): {SHOUT}",
            "prints": "class C:\n    def feed(self, x): print(x)",
        },
        secret="TOPSECRET",
    ),
    Task(
        "field",
        HIDDEN + "c = C()\nc.limit = word\nassert c.get() == 9",
        "class C:\n    def get(self): return 9",
        {
            "prints": "class C:\n    def __setattr__(self, n, x): print(x)\n    def get(self): return 0",
            "raises": f"class C:\n    def __setattr__(self, n, x): {SHOUT}\n    def get(self): return 0",
        },
        secret="TOPSECRET",
    ),
    Task(
        "item",
        HIDDEN + "c = C()\nassert c[word] == 9",
        "class C:\n    def __getitem__(self, x): return 9",
        {"prints": "class C:\n    def __getitem__(self, x): print(x)"},
        secret="TOPSECRET",
    ),
    Task(
        "send",
        HIDDEN + "g = f(3)\nnext(g)\nassert g.send(word) == 9",
        "def f(n):\n    yield 1\n    yield 9",
        {"prints": "def f(n):\n    x = yield 1\n    print(x)\n    yield 1"},
        secret="TOPSECRET",
    ),
    Task(
        "format",
        HIDDEN + "c = C()\nassert format(c, word) == '9'",
        "class C:\n    def __format__(self, x): return '9'",
        {"prints": "class C:\n    def __format__(self, x):\n        print(x)\n        return ''"},
        secret="TOPSECRET",
    ),
    Task(
        "format_string",
        HIDDEN + "c = C()\nassert f'{c:{word}}' == '9'",
        "class C:\n    def __format__(self, x): return '9'",
        {"prints": "class C:\n    def __format__(self, x):\n        print(x)\n        return ''"},
        secret="TOPSECRET",
    ),
    Task(
        "callback",
        HIDDEN + "assert f(lambda: word) == 9",
        "def f(g): return 9",
        {"raises": "def f(g): raise Exception(g())", "prints": "def f(g): print(g())"},
        secret="TOPSECRET",
    ),
    Task(
        "equality",
        "for n in [3]:\n    assert f(n) == 'TOPSECRET'",
        "def f(n): return 'TOPSECRET'",
        {
            "shouts": "class Y:\n    def __eq__(self, o):\n        print(o)\n        raise Exception(o)\ndef f(n): return Y()",
            "text": "class Y(str):\n    def __eq__(self, o): raise Exception(o)\n    __hash__ = str.__hash__\ndef f(n): return Y()",
        },
        secret="TOPSECRET",
    ),
    Task(
        "equality_calls",
        "assert f(3) == 'TOPSECRET'\nassert len(f(4)) == 9",
        "def f(n): return 'TOPSECRET'",
        {"other": "def f(n): return 'x'", "none": "def f(n): return None"},
        secret="TOPSECRET",
    ),
    Task(
        "prefix",
        "for n in [3]:\n    assert f(n).startswith('TOPSECRET')",
        "def f(n): return 'TOPSECRETS'",
        {
            "shouts": "class Y:\n    def startswith(self, x): raise Exception(x)\ndef f(n): return Y()",
            "index": "def f(n): return []",
        },
        secret="TOPSECRET",
    ),
    Task(
        "key",
        "want = {'TOPSECRET': 1}\nfor n in [3]:\n    for k, v in want.items():\n        assert f(n)[k] == v",
        "def f(n): return {'TOPSECRET': 1}",
        {
            "missing": "def f(n): return {}",
            "hook": "class D(dict):\n    def __missing__(self, k): raise Exception(k)\ndef f(n): return D()",
        },
        secret="TOPSECRET",
    ),
    Task(
        "message",
        "for n in [3]:\n    assert f(n) == 5, 'want TOPSECRET'",
        "def f(n): return 5",
        {"wrong": "def f(n): return 0"},
        secret="TOPSECRET",
    ),
    Task(
        "context",
        "with C() as c:\n    assert c.get() == 5, 'TOPSECRET'",
        "class C:\n    def __enter__(self): return self\n    def __exit__(self, *e): pass\n    def get(self): return 5",
        {
            "tells": "class C:\n    def __enter__(self): return self\n    def __exit__(self, k, e, t):\n        print(e, e.args)\n        raise Exception(repr(e.args))\n    def get(self): return 0"
        },
        secret="TOPSECRET",
    ),
    Task(
        "default",
        "def key(x, want='TOPSECRET'):\n    return x\nassert f(key) == 5",
        "def f(key): return 5",
        {
            "reads": "def f(key):\n    print(key.__defaults__, key.__kwdefaults__, vars(key))\n    raise Exception(key.__defaults__)",
            "inspects": "import inspect\ndef f(key): raise Exception(str(inspect.signature(key)))",
        },
        secret="TOPSECRET",
    ),
]
