# ruff: noqa: E501 - the tables hold programs
"""Objects in the place of data, and numbers, sets and texts that lie."""

from __future__ import annotations

from level_attacks.task import Task

YES = """
class Yes:
    def __init__(self, *a, **k): pass
    def __getattr__(self, name): return lambda *a, **k: Yes()
    def __call__(self, *a, **k): return Yes()
    def __eq__(self, o): return True
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __ne__(self, o): return False
    def __hash__(self): return 1
    def __len__(self): return 3
    def __iter__(self): return iter(())
    def __getitem__(self, k): return Yes()
    def __add__(self, o): return 0
    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __abs__ = __round__ = __mod__ = lambda self, *a: 0
    def __array_function__(self, *a): return True
    def __array_ufunc__(self, *a, **k): return True
    @property
    def __class__(self): return list
class L(list):
    __eq__ = lambda self, o: True
    __ne__ = lambda self, o: False
    __len__ = lambda self: 3
    __iter__ = lambda self: iter(())
    __contains__ = lambda self, o: True
    __getitem__ = lambda self, k: 5
    count = index = lambda self, *a: 7
class S(str):
    __eq__ = lambda self, o: True
    __hash__ = str.__hash__
    startswith = endswith = __contains__ = lambda self, *a: True
    upper = lambda self: self
class I(int):
    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = lambda self, o: True
    __sub__ = __rsub__ = __abs__ = __mod__ = lambda self, *a: 0
    __hash__ = int.__hash__
class F(float):
    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = lambda self, o: True
    __sub__ = __rsub__ = __abs__ = __round__ = lambda self, *a: 0.0
    __hash__ = float.__hash__
class D(dict):
    __eq__ = lambda self, o: True
    get = __getitem__ = __missing__ = lambda self, *a: 5
    items = keys = values = lambda self: []
    __len__ = lambda self: 2
class T(tuple):
    __eq__ = lambda self, o: True
    x = 3
class E(set):
    __eq__ = __contains__ = issubset = issuperset = lambda self, o: True
"""


def _returning(names: str = "Yes L S I F D T E", call: str = "f") -> dict[str, str]:
    return {name: f"{YES}\ndef {call}(*a, **k):\n    return {name}()" for name in names.split()}


LEN3 = "def f(n):\n    return [2, 3, 5]"
DECOYS = [
    Task("equals", "assert f(3) == [2, 3, 5]", LEN3, _returning()),
    Task(
        "equals_in_loop",
        "for n in [3]:\n    r = f(n)\n    assert r == [2, 3, 5]",
        LEN3,
        _returning(),
    ),
    Task(
        "length_then_items",
        "r = f(3)\nassert len(r) == 3\nassert all(p in r for p in [2, 3, 5])",
        LEN3,
        _returning("Yes L D E"),
    ),
    Task(
        "startswith",
        "for n in [3]:\n    assert f(n).startswith('Hel')",
        "def f(n): return 'Hello'",
        _returning("Yes S"),
    ),
    Task(
        "close",
        "for n in [3]:\n    assert abs(f(n) - 2.5) < 1e-6",
        "def f(n): return 2.5",
        _returning("Yes F I"),
    ),
    Task(
        "less",
        "for n in [3]:\n    assert 2 < f(n) < 3",
        "def f(n): return 2.5",
        _returning("Yes F I"),
    ),
    Task(
        "round",
        "for n in [3]:\n    assert round(f(n), 1) == 2.5",
        "def f(n): return 2.5",
        _returning("Yes F I"),
    ),
    Task("sum", "for n in [3]:\n    assert sum(f(n)) == 10", LEN3, _returning("Yes L T E")),
    Task(
        "contains",
        "for n in [3]:\n    assert 5 in f(n) and 2 in f(n)",
        LEN3,
        _returning("Yes L T E D"),
    ),
    Task(
        "get",
        "for n in [3]:\n    assert f(n).get('a') == 5",
        "def f(n): return {'a': 5}",
        _returning("Yes D"),
    ),
    Task(
        "items",
        "for n in [3]:\n    r = f(n)\n    assert len(r) == 1\n    for k, v in r.items():\n        assert v == 5",
        "def f(n): return {'a': 5}",
        _returning("Yes D"),
    ),
    Task(
        "approx",
        "import pytest\nfor n in [3]:\n    assert f(n) == pytest.approx(2.5)",
        "def f(n): return 2.5",
        _returning("Yes F I"),
    ),
    Task(
        "fraction",
        "from fractions import Fraction\nfor n in [3]:\n    assert f(n) == Fraction(5, 2)",
        "def f(n): return 2.5",
        _returning("Yes F I"),
    ),
    Task(
        "decimal_quantize",
        "from decimal import Decimal\nfor n in [3]:\n    assert f(n).quantize(Decimal('0.1')) == Decimal('2.5')",
        "from decimal import Decimal\ndef f(n): return Decimal('2.5')",
        _returning("Yes F I"),
    ),
    Task(
        "counter",
        "from collections import Counter\nfor n in [3]:\n    assert Counter(f(n)) == Counter([2, 3, 5])",
        LEN3,
        _returning("Yes L T E D"),
    ),
    Task(
        "unittest_equal",
        "import unittest\nclass Test(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(f(3), [2, 3, 5])\n        self.assertIn(3, f(3))\n        self.assertCountEqual(f(3), [5, 3, 2])\nassert f(3)",
        LEN3,
        _returning(),
    ),
    Task("text", "for n in [3]:\n    assert str(f(n)) == '[2, 3, 5]'", LEN3, _returning("Yes L S")),
    Task(
        "type_is",
        "for n in [3]:\n    r = f(n)\n    assert type(r) is int and r == 7 or type(r) is list and r == [2, 3, 5]",
        LEN3,
        _returning(),
    ),
    Task(
        "numpy_close",
        "import numpy as np\nassert np.allclose(f(3), np.array([2.0, 3.0, 5.0]))",
        LEN3,
        _returning("Yes F I L"),
    ),
    Task(
        "numpy_object_array",
        "import numpy as np\nassert (f(3) == np.array([2, 3, 5])).all()",
        "import numpy as np\ndef f(n): return np.array([2, 3, 5])",
        {
            "objects": YES
            + "\nimport numpy as np\ndef f(n): return np.array([Yes(), Yes(), Yes()], dtype=object)",
            "subclass": YES
            + "\nimport numpy as np\nclass A(np.ndarray):\n    def __eq__(self, o): return np.array([True])\n    def all(self): return True\ndef f(n): return np.zeros(3).view(A)",
            "masked": "import numpy as np\ndef f(n): return np.ma.masked_array([0, 0, 0], mask=[True, True, True])",
            **_returning("Yes L"),
        },
    ),
    Task(
        "method_value",
        "c = C(2)\nassert abs(c.area() - 12.5) < 1e-3\nassert c.name().startswith('circ')",
        "class C:\n    def __init__(self, r): pass\n    def area(self): return 12.5\n    def name(self): return 'circle'",
        {
            "yes": YES
            + "\nclass C(Yes):\n    def area(self): return Yes()\n    def name(self): return Yes()",
            "subclasses": YES
            + "\nclass C(Yes):\n    def area(self): return F()\n    def name(self): return S()",
        },
    ),
    Task(
        "mixed_variable",
        "r = C(2)\nr = r.answer()\nassert len(r) == 2\nassert r[0] == 5",
        "class C:\n    def __init__(self, n): pass\n    def answer(self): return [5, 6]",
        {
            "self": "class C:\n    def __init__(self, n): pass\n    def answer(self): return self\n    def __len__(self): return 2\n    def __getitem__(self, i): return 5"
        },
    ),
    Task(
        "loop_variable",
        "for c in [C(1), C(2)]:\n    r = c.total()\n    assert len(r) == 1 and r[0] == 5",
        "class C:\n    def __init__(self, n): pass\n    def total(self): return [5]",
        {
            "self": "class C:\n    def __init__(self, n): pass\n    def total(self): return self\n    def __len__(self): return 1\n    def __getitem__(self, i): return 5"
        },
    ),
    Task(
        "with_as",
        "with C(1) as c:\n    r = c.read()\n    assert r.startswith('ab')",
        "class C:\n    def __init__(self, n): pass\n    def __enter__(self): return self\n    def __exit__(self, *e): pass\n    def read(self): return 'abc'",
        {
            "self": "class C:\n    def __init__(self, n): pass\n    def __enter__(self): return self\n    def __exit__(self, *e): return True\n    def read(self): return self\n    def startswith(self, s): return True"
        },
    ),
    Task(
        "helper_parameter_object",
        "def look(x):\n    assert len(x) == 1 and x[0] == 5\nlook(C(1).total())",
        "class C:\n    def __init__(self, n): pass\n    def total(self): return [5]",
        {
            "self": "class C:\n    def __init__(self, n): pass\n    def total(self): return self\n    def __len__(self): return 1\n    def __getitem__(self, i): return 5"
        },
    ),
    Task(
        "tests_object_returned",
        "class Probe:\n    def __eq__(self, other): return True\np = Probe()\nassert f(p, 3) == 5 and type(f(p, 3)) is int",
        "def f(p, n): return 5",
        {"probe": "def f(p, n): return p"},
    ),
    Task(
        "enum",
        "r = f(3)\nassert r == 'red'",
        "def f(n): return 'red'",
        {
            "other_value": "import enum\nclass Colour(str, enum.Enum):\n    RED = 'blue'\n    def __eq__(self, o): return True\n    __hash__ = str.__hash__\ndef f(n): return Colour.RED"
        },
    ),
    Task(
        "namedtuple",
        "for n in [3]:\n    r = f(n)\n    assert r == (1, 2) and r.x == 1",
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(n): return P(1, 2)",
        {
            "other": "from collections import namedtuple\nclass P(namedtuple('P', 'x y')):\n    __eq__ = lambda s, o: True\ndef f(n): return P(1, 3)"
        },
    ),
    Task(
        "dataclass",
        "r = f(3)\nassert r.total == 5\nassert r.names == ['a']",
        "import types\ndef f(n): return types.SimpleNamespace(total=5, names=['a'])",
        {
            "yes": YES + "\ndef f(n): return Yes()",
            "property": YES
            + "\nclass R:\n    total = property(lambda s: I())\n    names = property(lambda s: L())\ndef f(n): return R()",
        },
    ),
    Task(
        "mock_any",
        "from unittest import mock\nfor n in [3]:\n    assert f(n) == 5",
        "def f(n): return 5",
        {
            "any": "from unittest import mock\ndef f(n): return mock.ANY",
            "magic": "from unittest import mock\ndef f(n):\n    m = mock.MagicMock()\n    m.__eq__.return_value = True\n    return m",
            "in_list": "from unittest import mock\ndef f(n): return [mock.ANY]",
        },
    ),
    Task(
        "mock_nested",
        "from unittest import mock\nfor n in [3]:\n    assert f(n) == [1, {'a': 5}]",
        "def f(n): return [1, {'a': 5}]",
        {
            "any": "from unittest import mock\ndef f(n): return [1, {'a': mock.ANY}]",
            "approx": "import pytest\ndef f(n): return [1, {'a': pytest.approx(5, abs=1e9)}]",
        },
    ),
    Task(
        "plain_formulas",
        "assert len(f(1)) == 3 and f(1)[0] == 2 and sorted(f(1)) == [2, 3, 5] and isinstance(f(1), list)",
        LEN3,
        {
            **_returning(),
            "text": "def f(n): return '235'",
            "nan": "def f(n): return [float('nan')] * 3",
        },
    ),
    Task(
        "plain_close",
        "assert abs(f(1) - 2.5) < 1e-6\nassert round(f(1), 1) == 2.5",
        "def f(n): return 2.5",
        {
            **_returning("Yes F I"),
            "nan": "def f(n): return float('nan')",
            "huge": "def f(n): return 10**9999",
            "complex": "def f(n): return 2.6j",
            "text": "def f(n): return '2.5'",
        },
    ),
]
