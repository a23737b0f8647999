"""Test code and submission in one interpreter: what cheats there, and what only looks so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shared_judging import SharedJudge, shared_judge

from proctor_service.errors import InvalidTask
from proctor_service.judge.analysis.levels import TestSource


@pytest.fixture(scope="module")
def judge() -> Iterator[SharedJudge]:
    with shared_judge() as made:
        yield made


TEST = "x = f(2)\nassert x == 4"
UNITS = """
import unittest
class Unit(unittest.TestCase):
    def test_one(self): self.assertEqual(f(1), 2)
    def test_parts(self):
        for x in range(3):
            with self.subTest(x=x): self.assertEqual(f(x), 2 * x)
"""
MAIN = f"{UNITS}\nunittest.main()"
RUN = f"""{UNITS}
loaded = unittest.defaultTestLoader.loadTestsFromTestCase(Unit)
result = unittest.TextTestRunner().run(loaded)
assert result.wasSuccessful()
"""
CHECK = TestSource(
    "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 4",
    (("check", "check", "f"),),
)
FUNCTION = TestSource("def test_it():\n    assert f(3) == 6", (("function", "test_it"),))
CASES = TestSource(UNITS, (("cases", ["Unit"]),))
EACH = (TEST, MAIN, RUN, CHECK, FUNCTION, CASES)
RIGHT = "def f(x): return 2 * x"


def test_right_and_wrong_solutions(judge: SharedJudge) -> None:
    for test in EACH:
        right, wrong, empty = judge.many([RIGHT, "def f(x): return 7", "pass"], test)
        assert (right.verdict, right.passed, right.integrity) == ("passed", 1, "in_process"), test
        assert (wrong.verdict, wrong.passed, wrong.hack_signals) == ("failed", 0, ()), test
        assert empty.verdict in ("failed", "runtime_error"), test


SEEN_AS_PASTED = """
assert __name__ == "__main__"
assert (limit, C().a, helper()) == (3, 1, 3)
limit = 5
assert helper() == 5
import solution
from solution import C as D
assert D is C and solution.helper() == 5
from unittest import mock
with mock.patch("__main__.limit", 9): assert helper() == 9
with mock.patch("solution.limit", 8): assert helper() == 8
import pickle, copy
assert pickle.loads(pickle.dumps(C())).a == 1
class E(C):
    def b(self): return super().b() + 1
assert E().b() == 3
async def g(): return 1
import asyncio
assert asyncio.run(g()) == 1
assert 1 < limit <= 5 > 2
"""


def test_the_tests_stand_as_if_behind_the_submission(judge: SharedJudge) -> None:
    source = (
        "limit = 3\nclass C:\n    a = 1\n    def b(self): return 2\ndef helper(): return limit\n"
        "if __name__ == '__main__':\n    raise RuntimeError(input())\n"
    )
    judged = judge(source, SEEN_AS_PASTED, reveal=True)
    assert (judged.verdict, judged.message) == ("passed", "")


def test_a_submission_may_have_the_name_of_a_builtin(judge: SharedJudge) -> None:
    assert judge("def sum(a, b): return a + b", "assert sum(10, 15) == 25").verdict == "passed"
    cheat = "def abs(x): return 0\ndef f(x): return 1"
    assert judge(cheat, "assert abs(f(2) - 4) < 1e-6").verdict == "failed"


def test_setup_files_and_output(judge: SharedJudge) -> None:
    source = "def f(p):\n    print('secret', p)\n    return open(p).read()"
    test = "assert f('a.txt') == text and open('b.txt', 'w').write('x') == 1"
    judged = judge(source, test, setup="text = 'hi'", files={"a.txt": "hi"})
    assert (judged.verdict, judged.stdout) == ("passed", "")
    assert (
        "secret"
        in judge(source, test, setup="text = 'hi'", files={"a.txt": "hi"}, reveal=True).stdout
    )


def test_verdicts_before_and_between_the_tests(judge: SharedJudge) -> None:
    verdicts = {
        "def f(x) return": "syntax_error",
        "f = unknown": "runtime_error",
        "import sys\nsys.exit(0)\ndef f(x): return 2 * x": "early_exit",
        "import sys\ndef f(x): sys.exit(0)": "early_exit",
        "import os\ndef f(x): os._exit(0)": "early_exit",
        "import os\nos._exit(0)": "early_exit",
        "def f(x): raise KeyError('no')": "runtime_error",
        "def f(x): raise KeyboardInterrupt": "runtime_error",
        "def f(x): raise AssertionError": "failed",
        "import os\nif os.fork():\n    os.wait()\ndef f(x): return 2 * x": "passed",
        "import os\ndef f(x):\n    if os.fork(): os.wait()\n    return 2 * x": "passed",
        "def f(x):\n    while True: pass": "timeout",
    }
    judged = judge.many(list(verdicts), TEST)
    assert [(s, j.verdict) for s, j in zip(verdicts, judged, strict=True)] == list(verdicts.items())


def test_an_exit_of_the_tests_own_counts_by_its_code(judge: SharedJudge) -> None:
    test = "import sys\nsys.exit(0 if f(2) == 4 else 1)"
    right, wrong = judge.many([RIGHT, "def f(x): return 7"], test)
    assert (right.verdict, wrong.verdict) == ("passed", "failed")


CONTROL = {
    "skip": "import unittest\ndef f(x): raise unittest.SkipTest('no')",
    "a kind of skip": "import unittest\nclass S(unittest.SkipTest): pass\ndef f(x): raise S()",
    "its own skip": "import sys\ndef f(x):\n    g = sys._getframe(1)\n"
    "    while g:\n        if 'self' in g.f_locals: g.f_locals['self'].skipTest('no')\n"
    "        g = g.f_back\n",
    "exit": "def f(x): raise SystemExit(0)",
    "interrupt": "def f(x): raise KeyboardInterrupt",
    "cancelled": "import asyncio\ndef f(x): raise asyncio.CancelledError",
    "generator": "def f(x): raise GeneratorExit",
    "stop": "def f(x): raise StopIteration",
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_is_no_pass(judge: SharedJudge, name: str) -> None:
    for test in EACH:
        assert judge(CONTROL[name], test).verdict != "passed", test


def test_a_skip_of_the_tests_own_is_one(judge: SharedJudge) -> None:
    test = f"""{UNITS}
    @unittest.skip('later')
    def test_later(self): assert 0
    def test_now(self): self.skipTest('no')
unittest.main(exit=False)
"""
    assert judge(RIGHT, test).verdict == "passed"
    all_skipped = """
import unittest
class U(unittest.TestCase):
    @unittest.skip('x')
    def test(self): pass
unittest.main()
"""
    assert judge(RIGHT, all_skipped).verdict == "failed"


def test_cancellations(judge: SharedJudge) -> None:
    test = """
import asyncio
async def main():
    try: assert await f(1) == 2
    except asyncio.CancelledError: pass
asyncio.run(main())
"""
    right, wrong = judge.many(
        [
            "async def f(x): return 2 * x",
            "import asyncio\nasync def f(x): raise asyncio.CancelledError",
        ],
        test,
    )
    assert (right.verdict, wrong.verdict) == ("passed", "failed")
    honest = """
import asyncio
async def main():
    task = asyncio.create_task(f(1))
    await asyncio.sleep(0)
    task.cancel()
    try: await task
    except asyncio.CancelledError: pass
    else: assert False
asyncio.run(main())
"""
    assert (
        judge("import asyncio\nasync def f(x): await asyncio.sleep(9)", honest).verdict == "passed"
    )


PATCHES = {
    "builtin": "import builtins\nbuiltins.abs = lambda x: 0",
    "unittest": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None",
    "case": "import unittest\nunittest.TestCase.run = lambda *a, **k: None",
    "result": "import unittest\nunittest.TestResult.wasSuccessful = lambda self: True",
    "main": "import unittest\nunittest.main = lambda *a, **k: None",
    "code": "import unittest\nunittest.TestCase.assertTrue.__code__ = (lambda *a, **k: None).__code__",
    "math": "import math\nmath.isclose = lambda *a, **k: True",
    "runner": "import gc\n[t] = [o for o in gc.get_objects() if type(o).__name__ == '_Tests']\n"
    "type(t)._error_of = lambda *a: None",
    "guard": "import gc\n[t] = [o for o in gc.get_objects() if type(o).__name__ == '_Tests']\n"
    "type(t._guard).compare = lambda *a: True",
    "check": "import sys\ndef f(x):\n    sys.modules['__main__'].__dict__['Unit'] = type('Unit', (), {})\n"
    "    sys.modules['__main__'].__dict__['test_it'] = lambda: None\n    return 2",
}


@pytest.mark.parametrize("name", PATCHES)
def test_what_runs_the_tests_cannot_be_replaced(judge: SharedJudge, name: str) -> None:
    source = PATCHES[name] + ("" if name == "check" else "\ndef f(x): return 7")
    tests = (MAIN, FUNCTION, "import math\nassert math.isclose(f(2), 4)")
    judged = judge(source, *tests)
    assert judged.verdict == "failed"
    assert "harness_patched" in judged.hack_signals


def test_builtins_of_the_globals_cannot_be_replaced(judge: SharedJudge) -> None:
    source = (
        "__builtins__ = {**vars(__import__('builtins')), 'abs': lambda x: 0}\ndef f(x): return 7"
    )
    assert judge(source, "assert abs(f(2) - 4) < 1").verdict == "failed"


def test_lies_and_forgeries(judge: SharedJudge) -> None:
    liar = "class L:\n    def __eq__(self, other): return True\ndef f(x): return L()"
    nearly = (
        "class L:\n    def __sub__(self, o): return L()\n    __rsub__ = __sub__\n"
        "    def __abs__(self): return 0.0\ndef f(x): return L()"
    )
    for test in (TEST, "assert [f(2)] == [4]", "assert 4 == f(2) == 4", "assert f(2) in [4]", MAIN):
        judged = judge(liar, test)
        assert (judged.verdict, judged.hack_signals) == ("failed", ("lying_equality",)), test
    for test in ("assert abs(f(2) - 4) < 1e-6", "d = 4 - f(2)\nassert abs(d) < 1e-6"):
        judged = judge(nearly, test)
        assert (judged.verdict, judged.hack_signals) == ("failed", ("lying_equality",)), test
    forged = (
        "import gc\n[c] = [o for o in gc.get_objects() if type(o).__name__ == 'Channel']\n"
        'c.send(b\'["x","test","0","passed","",""]\\n\')\ndef f(x): return 2 * x'
    )
    judged = judge(forged, TEST)
    assert (judged.verdict, judged.hack_signals) == ("failed", ("forged_result",))


def test_swallowed_assertions_are_failures(judge: SharedJudge) -> None:
    source = (
        "class Quiet:\n    def __enter__(self): return self\n    def __exit__(self, *a): return True\n"
        "def quiet(g):\n    def h(*a):\n        try: return g(*a)\n        except BaseException: pass\n"
        "    return h\ndef f(x): return 7\n"
    )
    for test in (
        "with Quiet():\n    assert f(2) == 4",
        "@quiet\ndef t():\n    assert f(2) == 4\nt()",
    ):
        assert judge(source, test).verdict == "failed"
    own = "try:\n    assert f(2) == 4\nexcept AssertionError: pass\nelse: raise ValueError"
    assert judge(source, own).verdict == "passed"


def test_nothing_of_an_expected_value_is_told(judge: SharedJudge) -> None:
    for source in (
        "class Y:\n    def startswith(self, x): raise Exception('want ' + x)\ndef f(x): return Y()",
        "class Y:\n    def startswith(self, x): raise type(x, (Exception,), {})\ndef f(x): return Y()",
        "class Y:\n    def startswith(self, x): print(x); return False\ndef f(x): return Y()",
        "class Y:\n    def startswith(self, x): raise SystemExit(x)\ndef f(x): return Y()",
    ):
        judged = judge(source, "assert f(2).startswith('SECRET')")
        assert judged.verdict != "passed"
        assert "SECRET" not in repr(judged)
        assert "SECRET" in repr(judge(source, "assert f(2).startswith('SECRET')", reveal=True))


def test_broken_tests_are_no_verdict(judge: SharedJudge) -> None:
    for test in ("assert f(2) ==", "import no_such_module_at_all\nassert f(2) == 4"):
        with pytest.raises(InvalidTask):
            judge(RIGHT, test)
    with pytest.raises(InvalidTask):
        judge(RIGHT, TEST, setup="def")
    assert (
        judge(RIGHT, "import mine\nassert f(2) == mine.x", files={"mine.py": "x = 4"}).verdict
        == "passed"
    )
