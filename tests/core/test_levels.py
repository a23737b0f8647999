# ruff: noqa: E501 - the tables hold tests
"""At which level tests are judged, decided from their text alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proctor_client.wire import AssertsGrader
from proctor_service.errors import InvalidTask
from proctor_service.judge.analysis.levels import Analysis, analyse


def analysed(*tests: str, **fields: Any) -> Analysis:
    return analyse(AssertsGrader(kind="asserts", tests=list(tests), **fields))


PLANNED = [
    "assert f(3) == 9",
    "assert f([1, 2], key='a') != {1: (2, 3)}",
    "assert not f(3)",
    "assert f(3)",
    "assert 9 == f(3)",
    "assert f(1) is None",
    "assert f(-1, +2, 3 * 19, 2 ** 10, 'ab' * 3, [0] * 4) == 1",
    "assert f(set(), frozenset([1]), list(range(5)), tuple([1]), float('inf')) == 1",
    "assert abs(f(3) - 9.5) < 1e-6",
    "assert round(f(2), 2) == 1.41 and len(f(3)) == 2",
    "assert sorted(f([3, 1])) == [1, 3], 'sorted'",
    "assert isinstance(f(3), (int, float))",
    "assert f(3)[0] == 1 and f(3)['a'] == 2",
    "assert 0 < f(3) <= 10",
    "import math\nassert math.isclose(f(3), 9.0, rel_tol=1e-9)",
    "from math import fabs\nassert fabs(f(3) - 9) < 1e-6",
    "x = [1, 2]\nassert f(x) == 3",
    "expected = {'a': [1]}\nassert f(1) == expected",
    "result = f(3)\nassert result == 9\nassert isinstance(result, int)",
    "candidate = f\nassert candidate(2) == 4",
    "def check(candidate):\n    METADATA = {}\n    assert candidate(2) == 4\ncheck(f)",
    "def close(a, b):\n    return abs(a - b) < 1e-6\nassert close(f(2), 1.5)",
    "close = lambda a, b: abs(a - b) < 1e-6\nassert close(f(2), 1.5)",
    "assert Solution().twoSum([2, 7], 9) == [0, 1]",
    "assert f(3) in (1, 2, 9)",
    "assert Fibonacci(5) == 5",
    "def test_f():\n    assert f(2) == 4",
    "from typing import *\nassert f(2) == 4",
    "assert f(*[1, 2], **{'c': 3}) == 1",
    "assert f((1, 2), int) == [1]",
]


@pytest.mark.parametrize("test", PLANNED)
def test_calls_and_conditions_need_one_sandbox(test: str) -> None:
    found = analysed(test)
    assert (found.level, found.plan is not None) == ("separated", True), found.reason


@pytest.mark.parametrize(
    "test", ["", "pass", "import math", "['assert f(2) == 4']", "'''f(2) is 4'''"]
)
def test_tests_that_any_program_passes_are_refused(test: str) -> None:
    with pytest.raises(InvalidTask, match="none of them asserts or calls anything"):
        analysed("", test)
    analysed(test, "assert f(2) == 4")
    analysed(test, "from solution import f")


RUN = [
    "import functools\ng = functools.lru_cache(f)\nassert [g(i) for i in (1, 2)] == [1, 2]",
    "d = f('aab')\nassert max(f('b'), key=f('b').get) == max(d, key=d.get)",
    "def g(s):\n    return g(s[1:]) if s else f(s)\nassert g('ab') == ''",
    "def g(s, o):\n    return s if s > 3 else g(s, g(o, s))\nfor i in (1, 2):\n    assert g(f(i), f(2)) == 9",
    "def g(x):\n    return h(x)\ndef h(x):\n    return g(x) if x else f(x)\nassert g(f(0)) == 1",
    "for i in range(3):\n    assert f(i) == i",
    "try:\n    f(0)\n    assert False\nexcept ValueError:\n    pass",
    "assert f(2).startswith('a')",
    "assert f(f(2)) == 4",
    "assert f(3) == 1 or f(3) == 2",
    "x = [3, 1]\nf(x)\nassert x == [1, 3]",
    "x = [3, 1]\nassert f(x) == 1\nassert f(x) == 2",
    "assert f(lambda x: x + 1) == 2",
    "import numpy as np\nassert np.allclose(f(3), [1.0])",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(2), 4)",
    "import asyncio\nassert asyncio.run(f(2)) == 4",
    "assert [f(i) for i in range(3)] == [0, 1, 4]",
    "from collections import Counter\nassert f('aab') == Counter('aab')",
    "class N: pass\ndef make(v: int) -> N: return N()\nassert f(lambda: make(1)) == 2",
    "def g(x: int):\n    return x\nr = f(2, [g])\nassert r == 2",
    "import random\nr = random.Random(1)\nfor i in range(3):\n    x = r.randint(1, 9)\n    assert f(x) == x * x",
    "import asyncio\nasync def test_a():\n    assert await f(2) == 4",
    "assert next(f(3)) == 0 and list(f(2)) == [0, 1]",
    "import pytest\nwith pytest.raises(ValueError, match='low') as info:\n    f(-1)\nassert info.value.args == ('low',)",
    "assert use(make(3)) == 3 and [g(1) for g in (f, h)] == [2, 3]",
    "for i in range(2):\n    assert Solution().f(i) == i",
    "y = f([1])\ny.append(2)\nassert y == [1, 2]",
]


@pytest.mark.parametrize("test", RUN)
def test_what_data_can_carry_runs_in_a_sandbox_of_its_own(test: str) -> None:
    found = analysed(test)
    assert (found.level, found.plan) == ("separated", None), found.reason


BESIDE = [
    "assert math.isclose(f(2), math.pi)",
    "s = Stack()\ns.push(1)\nassert s.pop() == 1\nassert len(s) == 0",
    "s = Stack()\nassert isinstance(s.top(), int)",
    "assert list(LinkedList([1, 2]).backwards()) == [2, 1]",
    "assert float(Money(5)) == 5.0",
    "assert np.allclose(f(3), [1.0])",
    "w = Word('k')\nassert w.text() == 'kitten'",
    "with C(3) as c:\n    assert c.get() == 3",
    "assert Stack() is not None and Stack() != None",
    "assert '%s' % Money(5) == '5'",
    "assert sorted([Item(2), Item(1)], key=lambda i: i.size)[0].size == 1",
    "import os.path\nassert f(2) == os.path.join('a', 'b')",
    "assert Circle(2).area() == 4 and T.zero() == 0",
    "import sys, io\nsys.stdout = io.StringIO()\nf()\nassert sys.stdout.getvalue() == ''",
    "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as out:\n    f()",
    "import random\nrandom.seed(1)\nassert f() == 3",
    "from unittest.mock import patch\nwith patch('builtins.input', return_value='3'):\n    f()",
    "from itertools import islice\nassert list(islice(Fib(), 5)) == [0, 1]",
    "from functools import partial\nassert partial(f, Box(1))() == 2",
    "import threading, concurrent.futures\nassert f(f(1)) == 2",
    "import threading, time\nthreading.Thread(target=lambda: time.sleep(9)).start()\nassert f(f(1))",
    "@f\ndef g(x):\n    return x\nassert g(2) == 2 and g.__wrapped__(2) == 2 and g.__name__ == 'g'",
    "class E(Exception): pass\n@retry(3, errors=(E,))\ndef g(): raise E\nassert g() is None",
    "class N:\n    def __init__(self, v: int, next=None): self.v = v\nassert length(N(1, N(2))) == 2",
    "@unittest.skipIf(False, 'no')\nclass T(unittest.TestCase):\n    def test(self) -> None:\n        self.assertIsInstance(f(1), T)",
    "assert list(map(f(2), [1])) == [3] and sorted('ab', key=f(1)) == ['a', 'b']",
    "from enum import Enum\nclass C(Enum):\n    A = 1\nassert f(C.A) == 1",
    "from types import SimpleNamespace as N\nassert f(N(a=1)) == 2",
    "import numpy as np\nassert type(f(0)) is np.ndarray",
    "assert f(f, f)(1) == 4",
    "def guess(n):\n    return n > 3\nassert f(9) == 4",
    "from functools import wraps\n@wraps(f)\ndef g(x):\n    return f(x) + 1\nassert g(1) == 2",
    "m = Money(5)\nassert m == 5",
    "assert Vector(1, 2) * 3 == Vector(3, 6)",
    "assert Money(1) + Money(2) == 3",
    "assert sum([Money(1), Money(2)]) == 3",
    "assert 3 < Money(5)",
    "v = Vector(1)\nv += Vector(2)\nassert v.x == 3",
    "assert max([Money(1), Money(2)]).amount == 2",
    "items = [Money(2), Money(1)]\nitems.sort()\nassert items[0].amount == 1",
    "assert 1 in Bag([1])",
    "assert len({Point(1), Point(1)}) == 1",
    "d = {Point(1): 2}\nassert d[Point(1)] == 2",
    "assert abs(Money(-5)).amount == 5",
    "assert Colour.RED == Colour(1)",
    "def make():\n    return Money(1)\nassert make() == Money(1)",
    "def check_it(a):\n    assert a == 1\ncheck_it(Money(1))",
    "import unittest\nclass T(unittest.TestCase):\n    def setUp(self):\n        self.m = Money(1)\n    def test(self):\n        self.assertEqual(self.m, 1)",
    "class X(Base):\n    def step(self):\n        return 4\nassert X().run() == 8",
    "import inspect\nassert inspect.signature(f)",
    "assert type(Money(1)).__name__ == 'Money'",
    "assert f.__doc__",
    "assert isinstance(T.f, property)",
    "import typing\nassert typing.get_type_hints(U) == {'a': int}",
    "import pickle\nassert pickle.loads(pickle.dumps(f(2))) == 2",
    "import copy\nassert copy.deepcopy(Money(1)).amount == 1",
    "from solution import f\nassert f(2) == 4",
    "from unittest.mock import patch\nwith patch('solution.helper'):\n    f()",
    "from unittest import mock\nwith mock.patch.object(f, 'x'):\n    f()",
    "import tempfile, os\np = os.path.join(tempfile.mkdtemp(), 'x')\nf(p)",
    "assert f('/tmp/x') == open('/tmp/x').read()",
    "import os\nassert os.path.exists(f())",
    "import os\nos.environ['A'] = '1'\nassert f() == 1",
    "import sys\nsys.stderr = None\nf()",
    "import time\ntime.gmtime = None\nf()",
    "import warnings\nwith warnings.catch_warnings():\n    f()",
    "import pandas as pd\nassert f(2) == 4",
    "assert eval(f(2)) == 4",
    "import sqlite3\nassert f(sqlite3.connect(':memory:')) == 1",
    "class T:\n    def test(self):\n        with self.assertLogs():\n            f()",
    "assert issubclass(Cat, Animal)",
    "from collections.abc import Iterable\nassert isinstance(Bag(), Iterable)",
    "import numpy as np\nassert np.asarray(Bag()).shape == (1,)",
    "import operator as op\nassert op.add(Money(1), Money(2)).amount == 3",
    "import threading\nt = threading.Thread(target=f)\nt.start()",
    "from threading import Timer\nTimer(0.1, f).start()",
    "import threading\ndef g():\n    f()\nthreading.Thread(None, g).start()",
    "from threading import Thread\nclass T(Thread):\n    def run(self):\n        f()\nT().start()",
    "from concurrent.futures import ThreadPoolExecutor\nassert ThreadPoolExecutor().submit(f)",
    "import concurrent.futures as c\nassert c.ThreadPoolExecutor().submit(f)",
    "import asyncio\nasync def g():\n    return await asyncio.to_thread(f)\nassert asyncio.run(g())",
    "import asyncio\nasync def g(loop):\n    return await loop.run_in_executor(None, f)\nf(g)",
    "@f\ndef g(x):\n    return x\nassert g.__dict__ == {}",
    "@f\ndef g(x):\n    return x\nassert vars(g) == {}",
    "@f\ndef g(x: int):\n    return x\nassert g(2) == 2",
    "d = f(3)\n@d\nasync def g(x) -> int:\n    return x",
    "def g(x: int):\n    return x\nassert f(g)(2) == 2",
    "def g(x: int):\n    return x\nh = f([g])\nassert h(2) == 2",
    "@f\nclass C: pass\nassert C().x == 1",
    "class C: pass\nC = f(C)\nassert C().x == 1",
    "class C: pass\nc = Container()\nc.register('c', kind=C)",
    "class C: pass\nclass D: pass\nc = make()\nfor each in (C, D):\n    c.register(each)",
    "import collections.abc\nassert issubclass(type(f(1)), collections.abc.Sized)",
    "import unittest\nclass C: pass\nclass T(unittest.TestCase):\n    def setUp(self):\n        self.c = Container()\n    def test(self):\n        self.c.register(C)",
    "class C: pass\ndef check(candidate):\n    assert candidate(C) == 1",
    "with f() as out:\n    print('a')\nassert out.getvalue() == 'a'",
    "s = make()\ns.push(1)\nassert s.pop() == 1",
    "assert make().total == 3",
    "s = Solution()\nassert s.f(1) == 2",
    "y = f(1)\nassert y(2) == 3",
    "assert f(1) is x",
    "r = stack()\nr.append(1)\nassert r.pop() == 1",
    "assert f(1).get() == 2",
    "assert f(1).add(2).items() == [1]",
    "n = f(1)\nassert n.count == 2",
    "assert f(1) / 'b' == 'a/b'",
    "assert str(f(1)) == '$1.00'",
    "assert f.cache_info().hits == 1",
    "try:\n    f(1)\nexcept Missing:\n    pass",
    "import pytest\nwith pytest.raises(SystemExit):\n    f(1)",
    "try:\n    f(1)\nexcept ValueError as e:\n    assert e.balance == 5",
    "import asyncio\nasync def main():\n    return await asyncio.gather(f(1), f(2))\nassert asyncio.run(main()) == [1, 2]",
    "import decimal\ndecimal.getcontext().prec = 50\nassert f(2) == 1",
    "assert LIMIT == 3",
    "assert callable(f)",
    "def show(x):\n    print(x)\nassert f(show) is None",
    "import random\nrandom.seed(1)\nassert f(random.random()) == 1",
    "assert hasattr(f(1), '__next__')",
    "assert sum(10, 15) == 25",
    "c = Counter('aab')\nassert c['a'] == 2",
]


@pytest.mark.parametrize("test", BESIDE)
def test_what_needs_more_than_functions_runs_beside_the_submission(test: str) -> None:
    found = analysed(test)
    assert (found.level, found.plan) == ("in_process", None)
    assert found.reason.startswith(("tests.0 ", "the tests call nothing"))


def test_a_suite_has_the_level_that_any_of_its_tests_needs() -> None:
    assert analysed("assert f(1) == 1", "assert f(f(1)) == 1").plan is None
    assert analysed("assert f(1) == 1", "assert M(1) + M(2) == M(3)").reason.startswith("tests.1 ")


def test_a_grader_may_say_which_it_wants() -> None:
    assert analysed("assert f(1) == 1", integrity="in_process").level == "in_process"
    assert analysed("assert f(1) == 1", integrity="separated").level == "separated"
    with pytest.raises(InvalidTask, match=r"tests\.0 makes an object"):
        analysed("assert M(1) == M(1)", integrity="separated")


CHECK = "def check(candidate):\n    assert candidate(2) == 4"


def test_what_nothing_runs_is_run_where_the_meaning_is_plain() -> None:
    assert analysed(CHECK, entry_point="f").tests[0].run == (("check", "check", "f"),)
    assert analysed(CHECK).tests[0].run == (("check", "check", ""),)
    assert analysed(CHECK + "\ncheck(f)").tests[0].run == ()
    case = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        f()"
    assert analysed(case).tests[0].run == (("cases", ["T"]),)
    assert analysed(case + "\nunittest.main()").tests[0].run == ()
    loads = "\nunittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T))"
    assert analysed(case + loads).tests[0].run == ()
    assert analysed("def test_a():\n    f()").tests[0].run == (("function", "test_a"),)
    assert analysed("def test_a():\n    f()\ntest_a()").tests[0].run == ()


def test_leetcodes_entry_point_is_a_method_of_a_new_object() -> None:
    test = "def check(candidate):\n    assert candidate(nums = [3, 3], target = 6) == [0, 1]"
    found = analysed(test, entry_point="Solution().twoSum")
    assert found.plan is not None
    kept, call = map(json.loads, found.plan.calls)
    assert kept == [["Solution", ["l"], ["d"], "twoSum"]]
    assert call[0] == 0


@pytest.mark.parametrize("entry_point", ["", "1f", "f; g", "f(1)", "__import__('os')", "f\n"])
def test_an_entry_point_that_names_no_function_is_a_broken_task(entry_point: str) -> None:
    with pytest.raises(InvalidTask, match="entry_point"):
        analysed(CHECK, entry_point=entry_point)


@pytest.mark.parametrize(
    "test", ["assert f(", "(" * 300 + ")" * 300, "x" * 2_000_000, "\0", "nonlocal x"]
)
def test_what_is_no_python_is_a_broken_task(test: str) -> None:
    with pytest.raises(InvalidTask):
        analysed(test)


def test_names_are_the_submissions_unless_the_tests_or_python_bind_them() -> None:
    found = analysed("helper = 2\nfor i in range(3):\n    assert f(helper, len([1])) == other(i)")
    assert found.names.submission == {"f", "other"}


def test_an_entry_point_is_the_submissions_though_python_or_the_setup_has_the_name() -> None:
    for name, setup in (("sorted", ""), ("f", "def f(x): ...")):
        found = analysed(f"assert {name}([2, 1]) == [1, 2]", entry_point=name, setup=setup)
        assert (found.level, set(found.names.submission)) == ("separated", {name})


SETUP = "import math\nPI = 3\ndef area(r):\n    return PI * g(r)\nE = 2\n"


def test_setup_runs_before_the_submission_as_far_as_it_needs_nothing_of_it() -> None:
    before, behind = analysed("assert f(1) == 1", setup=SETUP).setup
    assert before == "import math\nPI = 3\n"
    assert behind == "\n\n" + SETUP.removeprefix(before)
    assert analysed("assert f(1) == 1", setup="PI = 3").setup == ("PI = 3", "")


def test_plain_classes_of_the_setup_are_data() -> None:
    for setup in (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: int = 0",
        "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    y: int",
    ):
        test = "for i in range(3):\n    assert f(P(i, 2)) == P(i + 1, 2)"
        assert analysed(test, setup=setup).level == "separated"
        assert analysed(f"{setup}\n{test}").level == "in_process"
    node = "class P:\n    def __init__(self, x, y): self.x = x"
    assert analysed("assert f(P(1, 2)) == 3", setup=node).level == "in_process"


def test_a_setup_whose_functions_have_effects_runs_beside_the_submission() -> None:
    setup = "asked = []\ndef api(x):\n    asked.append(x)\n    return x"
    assert "effects" in analysed("assert f(1) == 1", setup=setup).reason


@pytest.mark.parametrize(
    "test",
    [
        "assert f(1) == [*{'a', 'b'}]",
        "assert f(1) == ''.join({'a', 'b'})",
        "assert f(1) == dict(zip({'a', 'b'}, [1, 2]))",
        "assert f('abc'.encode('punycode')) == 1",
    ],
)
def test_a_constant_that_differs_between_processes_is_none(test: str) -> None:
    assert analysed(test).plan is None


@pytest.mark.parametrize("test", ["assert f(sorted({3, 1})) == 1", "assert f(len({'a'})) == 1"])
def test_a_constant_without_the_order_of_a_set_is_one(test: str) -> None:
    assert analysed(test).plan is not None


PLAIN = "def test_a():\n    assert f(1) == 1\n"
ONLY_PYTEST = {
    "parametrize": "import pytest\n@pytest.mark.parametrize('x', [2])\ndef test_it(x):\n    assert f(x) == x",
    "a mark": "from pytest import mark\n@mark.parametrize('x', [2])\ndef test_it(x):\n    assert f(x) == x",
    "a fixture": "def test_it(capsys):\n    f(2)\n    assert capsys.readouterr().out == '2'",
    "a fixture of its own":
        "import pytest\n@pytest.fixture\ndef two():\n    return 2\ndef test_it(two):\n    assert f(two) == 2",
    "a fixture for every test":
        "import pytest\n@pytest.fixture(autouse=True)\ndef it():\n    g(2)\ndef test_b():\n    f(1)",
    "a class": "class TestF:\n    def test_b(self):\n        assert f(2) == 2",
    "a class with inherited tests":
        "class Tests:\n    def test_b(self):\n        assert f(2) == 2\nclass TestF(Tests):\n    n = 1",
    "an expected failure": "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert f(2) == 3",
    "a function around tests": "def setup_function():\n    g(2)",
}  # fmt: skip


@pytest.mark.parametrize("name", ONLY_PYTEST)
@pytest.mark.parametrize("integrity", [None, "in_process"])
def test_what_only_pytest_runs_is_not_passed_over(name: str, integrity: str | None) -> None:
    for tests in ([PLAIN + ONLY_PYTEST[name]], [ONLY_PYTEST[name], PLAIN]):
        with pytest.raises(InvalidTask, match=r"tests\.0 defines \w+, .* the grader `pytest`"):
            analysed(*tests, integrity=integrity)


NOT_FOR_PYTEST = {
    "a helper with parameters": "def test(a, b):\n    return a == b\nassert f(1) == 1",
    "a generator": "def test_generator(n):\n    yield n\nassert f(1) == 1",
    "functions that a decorator keeps":
        "TESTS = []\ndef case(fn):\n    TESTS.append(fn)\n    return fn\n@case\ndef test_a(c):\n"
        "    assert c(1) == 1\nfor t in TESTS:\n    t(f)",
    "functions found by their names":
        "def test_a(c):\n    assert c(1) == 1\nfor n, t in list(globals().items()):\n"
        "    if n.startswith('test_'):\n        t(f)",
    "a TestCase in a class":
        "import unittest\nclass Base:\n    class Case(unittest.TestCase):\n        def test_a(self):\n"
        "            self.assertEqual(f(1), 1)\nclass TestF(Base.Case):\n    def test_b(self):\n"
        "        self.assertEqual(f(2), 2)\nunittest.main()",
    "a TestCase by another name":
        "from unittest import TestCase as TC, main\nclass TestF(TC):\n    def test_b(self):\n"
        "        self.assertEqual(f(2), 2)\nmain()",
    "an empty function around tests": "def setup_module():\n    pass\nassert f(1) == 1",
    "a helper class":
        "class TestData:\n    def value(self):\n        return 1\nassert f(1) == TestData().value()",
    "a data class": "import dataclasses\n@dataclasses.dataclass\nclass TestCase:\n    given: int\n"
        "for case in [TestCase(1)]:\n    assert f(case.given) == 1",
    "an exception": "class TestError(Exception):\n    pass\nassert f(1) == 1",
    "a class with a constructor": "class TestF:\n    def __init__(self, x):\n        self.x = x\n"
        "    def test_b(self):\n        assert f(2) == 3\nassert f(1) == 1",
    "a class that its tests run":
        "class TestF:\n    def test_b(self):\n        assert f(1) == 1\nTestF().test_b()",
    "a function that its tests call":
        "def test_it(x):\n    assert f(x) == x\nfor x in (1, 2):\n    test_it(x)",
    "a fixture that no test needs":
        "import pytest\n@pytest.fixture\ndef test_data():\n    return 2\nassert f(1) == 1",
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_FOR_PYTEST)
def test_what_pytest_would_not_run_is_no_broken_task(name: str) -> None:
    assert analysed(NOT_FOR_PYTEST[name], "assert f(1) == 1").tests[0].run == ()


def test_a_skipped_function_is_not_run_and_a_patched_one_is() -> None:
    skipped = (
        "import pytest\n@pytest.mark.skip(reason='later')\ndef test_b():\n    assert f(1) == 2\n"
    )
    assert analysed(skipped + PLAIN).tests[0].run == (("function", "test_a"),)
    patched = (
        "from unittest.mock import patch\n@patch('builtins.print')\n"
        "def test_b(shown):\n    f(1)\n    shown.assert_called()\n"
    )
    assert analysed(patched).tests[0].run == (("function", "test_b"),)


def test_a_test_case_may_derive_from_the_tests_own_class() -> None:
    case = (
        "import unittest\nclass Base(unittest.TestCase):\n    n = 1\n"
        "class TestF(Base):\n    def test_it(self):\n        self.assertEqual(f(self.n), 1)"
    )
    assert analysed(case).tests[0].run == (("cases", ["TestF"]),)


def test_a_guard_for_a_version_changes_nothing() -> None:
    found = analysed(
        "import sys, pytest\n@pytest.mark.skipif(sys.version_info < (3, 8), reason='old')\n"
        "def test_a():\n    assert f(1) == 1"
    )
    assert found.level == "separated"
