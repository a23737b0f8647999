# ruff: noqa: E501 - the tables hold programs
"""Submissions that change an argument so that the expected value, computed from it, changes, too."""

from __future__ import annotations

from level_attacks.task import Task

EMPTY = "def f(xs, *more):\n    xs.clear()\n    return xs"
EMPTY_NEW = "def f(xs, *more):\n    xs.clear()\n    return []"
SORT = "def f(xs, *more):\n    return sorted(xs)"
ZERO = "def f(xs, *more):\n    xs[:] = [0] * len(xs)\n    return 0"
ZERO_ARRAY = "def f(a):\n    a[:] = 0\n    return a"
MEAN = "def f(xs):\n    return sum(xs) / len(xs)"
FORGED = """
import gc, json
class Found:
    def __call__(self, kind):
        return [o for o in gc.get_objects() if type(o).__name__ == kind][0]
find = Found()
def f(xs, *more):
    side = find('SubmissionSide')
    shared = side.connection.shared
    entry = [e for e in list(shared._keys.values()) if e.value is xs]
    key = entry[0].key if entry else 2
    news = {"u": [[key, ["t", 0]]], "k": 1, "s": [], "d": [], "m": [], "c": []}
    FRAME
    return []
"""
STRAY = FORGED.replace(
    "FRAME", 'find("Channel").send((json.dumps(["a", 999, "v", ["t", 0], news]) + "\\n").encode())'
)
ASKING = FORGED.replace(
    "FRAME",
    'find("Channel").send((json.dumps(["q", 999, "call", ["t", 0], news]) + "\\n").encode())',
)

IN_PLACE = [
    Task(
        "sorted",
        "for xs in [[3, 1, 2], [5, 4]]:\n    assert f(xs) == sorted(xs)",
        SORT,
        {"empty": EMPTY, "new": EMPTY_NEW, "stray_answer": STRAY, "forged_question": ASKING},
    ),
    Task(
        "sorted_left",
        "for xs in [[3, 1, 2], [5, 4]]:\n    assert sorted(xs) == f(xs)",
        SORT,
        {"empty": EMPTY},
    ),
    Task(
        "mean",
        "for xs in [[3, 1, 2], [5, 4]]:\n    assert abs(f(xs) - sum(xs) / len(xs)) < 1e-6",
        MEAN,
        {"zero": ZERO},
    ),
    Task(
        "mean_reflected",
        "for xs in [[3, 1, 2], [5, 4]]:\n    assert abs(sum(xs) / len(xs) - f(xs)) < 1e-6",
        MEAN,
        {"zero": ZERO},
    ),
    Task(
        "isclose",
        "import math\nfor xs in [[3, 1, 2], [5, 4]]:\n    assert math.isclose(f(xs), sum(xs) / len(xs))",
        MEAN,
        {"zero": ZERO},
    ),
    Task(
        "zip",
        "for xs in [[3, 1, 2], [5, 4, 6]]:\n    assert [a == b for a, b in zip(f(xs), sorted(xs))] == [True] * 3",
        SORT,
        {"zeros": "def f(xs):\n    xs[:] = [0] * 3\n    return [0] * 3"},
    ),
    Task(
        "chain",
        "for xs in [[3, 1, 2], [5, 4]]:\n    assert min(xs) < f(xs) <= max(xs)\n    assert f([1]) == 1",
        "def f(xs):\n    return max(xs)",
        {
            "raise_maximum": "def f(xs):\n    if len(xs) == 1: return 1\n    xs.append(10**9)\n    return 10**8"
        },
    ),
    Task(
        "chain_equal",
        "for xs in [[3, 1, 2], [5, 4]]:\n    assert f(xs) == sorted(xs) == list(sorted(xs))",
        SORT,
        {"empty": EMPTY_NEW},
    ),
    Task(
        "generator",
        "for xs in [[3, 1, 2], [5, 4]]:\n    assert list(f(xs)) == sorted(xs)",
        "def f(xs):\n    yield from sorted(xs)",
        {
            "clears": "def f(xs):\n    xs.clear()\n    return\n    yield",
            "keeps_one": "def f(xs):\n    del xs[1:]\n    xs[0] = 0\n    yield 0",
        },
    ),
    Task(
        "async",
        "import asyncio\nasync def main():\n    for xs in [[3, 1, 2], [5, 4]]:\n        assert await f(xs) == sorted(xs)\nasyncio.run(main())",
        "async def f(xs):\n    return sorted(xs)",
        {"clears": "async def f(xs):\n    xs.clear()\n    return []"},
    ),
    Task(
        "second_call",
        "for xs in [[3, 1, 2], [5, 4]]:\n    assert f(xs).result() == sorted(xs)",
        "class R:\n    def __init__(self, xs): self.xs = sorted(xs)\n    def result(self): return self.xs\nf = R",
        {
            "clears": "class R:\n    def __init__(self, xs): xs.clear()\n    def result(self): return []\nf = R"
        },
    ),
    Task(
        "two_calls_added",
        "for xs in [[3, 1, 2], [5, 4]]:\n    assert f(xs) + g(1) == sorted(xs) + [1]",
        SORT + "\ndef g(n): return [n]",
        {"clears": EMPTY_NEW + "\ndef g(n): return [n]"},
    ),
    Task(
        "factory",
        "s = make()\nfor xs in [[3, 1, 2], [5, 4]]:\n    assert s.run(xs) == sorted(xs)",
        "class S:\n    def run(self, xs): return sorted(xs)\ndef make(): return S()",
        {
            "clears": "class S:\n    def run(self, xs):\n        xs.clear()\n        return []\ndef make(): return S()"
        },
    ),
    Task(
        "closure",
        "g = make()\nfor xs in [[3, 1, 2], [5, 4]]:\n    assert g(xs) == sorted(xs)",
        "def make(): return sorted",
        {
            "clears": "def make():\n"
            + "    def f(xs):\n        xs.clear()\n        return []\n    return f"
        },
    ),
    Task(
        "loop_of_functions",
        "for g in (f, h):\n    for xs in [[3, 1, 2], [5, 4]]:\n        assert g(xs) == sorted(xs)",
        SORT + "\nh = f",
        {"clears": EMPTY_NEW + "\nh = f"},
    ),
    Task(
        "helper_parameter",
        "def verify(g, xs):\n    assert g(xs) == sorted(xs)\nfor xs in [[3, 1, 2], [5, 4]]:\n    verify(f, xs)\n    verify(h, xs)",
        SORT + "\nh = f",
        {"clears": EMPTY_NEW + "\nh = f"},
    ),
    Task(
        "unittest_attribute",
        "import unittest\nclass T(unittest.TestCase):\n    def setUp(self):\n        self.xs = [3, 1, 2]\n        self.s = S()\n    def test_it(self):\n        self.assertEqual(self.s.run(self.xs), sorted(self.xs))",
        "class S:\n    def run(self, xs): return sorted(xs)",
        {"clears": "class S:\n    def run(self, xs):\n        xs.clear()\n        return []"},
    ),
    Task(
        "assert_equal_deque",
        "import unittest\nfrom collections import deque\nclass T(unittest.TestCase):\n    def test_it(self):\n        d = deque([1, 2, 3])\n        self.assertEqual(f(d), d)",
        "def f(d): return d.copy()",
        {
            "clears": "def f(d):\n    d.clear()\n    return d.copy()",
            "same": "def f(d):\n    d.clear()\n    return d",
        },
    ),
    Task(
        "assert_equal_counter",
        "import unittest\nfrom collections import Counter\nclass T(unittest.TestCase):\n    def test_it(self):\n        d = Counter('aab')\n        self.assertEqual(f(d), d)",
        "def f(d): return d.copy()",
        {"clears": "def f(d):\n    d.clear()\n    return d.copy()"},
    ),
    Task(
        "assert_array_equal",
        "import numpy as np\na = np.array([3.0, 1.0])\nnp.testing.assert_array_equal(f(a), a)",
        "def f(a): return a.copy()",
        {"zero": ZERO_ARRAY, "copy": "def f(a):\n    a[:] = 0\n    return a.copy()"},
    ),
    Task(
        "allclose",
        "import numpy as np\na = np.array([3.0, 1.0])\nassert np.allclose(f(a), np.sort(a))",
        "import numpy as np\ndef f(a): return np.sort(a)",
        {"zero": ZERO_ARRAY},
    ),
    Task(
        "array_equal_keyword",
        "import numpy as np\na = np.array([3.0, 1.0])\nassert np.array_equal(a1=f(a), a2=np.sort(a))",
        "import numpy as np\ndef f(a): return np.sort(a)",
        {"zero": ZERO_ARRAY},
    ),
    Task(
        "max_abs",
        "import numpy as np\na = np.array([3.0, 1.0])\nassert np.max(np.abs(f(a) - np.sort(a))) < 1e-9",
        "import numpy as np\ndef f(a): return np.sort(a)",
        {"zero": ZERO_ARRAY},
    ),
    Task(
        "all_equal",
        "import numpy as np\na = np.array([3.0, 1.0])\nassert (f(a) == np.sort(a)).all()",
        "import numpy as np\ndef f(a): return np.sort(a)",
        {"zero": ZERO_ARRAY},
    ),
    Task(
        "callback",
        "key = lambda x: -x\nfor xs in [[3, 1, 2], [5, 4]]:\n    assert f(xs, key) == sorted(xs, key=key)",
        "def f(xs, key):\n    return sorted(xs, key=key)",
        {
            "clears_then_calls": "def f(xs, key):\n    xs.clear()\n    key(1)\n    return []",
            "calls_between": "def f(xs, key):\n    key(xs[0])\n    del xs[1:]\n    key(1)\n    return list(xs)",
        },
    ),
    Task(
        "fields",
        "class Box:\n    def __init__(self, items): self.items = items\nfor xs in [[3, 1, 2], [5, 4]]:\n    b = Box(xs)\n    assert f(b) == sorted(b.items)",
        "def f(b):\n    return sorted(b.items)",
        {"clears": "def f(b):\n    b.items.clear()\n    return []"},
    ),
    Task(
        "nested",
        "for case in [{'xs': [3, 1, 2]}, {'xs': [2, 1]}]:\n    assert f(case['xs']) == sorted(case['xs'])",
        SORT,
        {"clears": EMPTY_NEW},
    ),
    Task(
        "star",
        "for args in [([3, 1, 2], 0), ([2, 1], 0)]:\n    assert f(*args) == sorted(args[0])",
        SORT,
        {"clears": EMPTY_NEW},
    ),
    Task(
        "comprehension",
        "assert all(f(xs) == sorted(xs) for xs in [[3, 1, 2], [5, 4]])",
        SORT,
        {"clears": EMPTY_NEW},
    ),
    Task(
        "set_comparison",
        "for s in [{1, 2, 3}, {4, 5}]:\n    assert f(s) == {x for x in s}",
        "def f(s): return set(s)",
        {"clears": "def f(s):\n    s.clear()\n    return set()"},
    ),
    Task(
        "membership",
        "for xs in [[3, 1, 2], [5, 4]]:\n    assert f(xs) in xs",
        "def f(xs): return xs[0]",
        {"adds": "def f(xs):\n    xs.append(77)\n    return 77"},
    ),
    Task(
        "seen_in_place",
        "xs = [3, 1, 2]\nassert f(xs) is None and xs == [1, 2, 3]\nys = [2, 1]\nassert (f(ys), ys) == (None, [1, 2])",
        "def f(xs): xs.sort()",
        {"nothing": "def f(xs): pass"},
    ),
    Task(
        "callback_sees_changes",
        "seen = []\ndef ok(board):\n    seen.append(list(board))\n    return len(board) == 3\nboard = [0]\nassert f(board, ok) == [*board, 1, 2]\nassert seen == [[0], [0, 1], [0, 1, 2]]\nassert board == [0, 1, 2]",
        "def f(board, ok):\n    while not ok(board):\n        board.append(len(board))\n    return board",
        {"stays": "def f(board, ok):\n    ok(board)\n    return board"},
    ),
]
