"""Python tests in the submission's process: what plain Python accepts passes, and no end is a way out."""

from __future__ import annotations

from typing import Any

import pytest
from beside_programs import HONEST
from harness import Service
from judging import ask, judge

F = "def f(x): return 2 * x\n"
WRONG = "def f(x): return 7\n"
TESTS = "assert f(1) == 2\nassert f(2) == 4"
UNITS = """
import unittest
class Unit(unittest.TestCase):
    def test_one(self): self.assertEqual(f(1), 2)
    def test_parts(self):
        for x in range(3):
            with self.subTest(x=x): self.assertEqual(f(x), 2 * x)
"""
FILE = """
from solution import f
def test_one(): assert f(1) == 2
def test_two(): assert f(2) == 4
def test_nothing(): assert True
"""
CHECK = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 4\n"


def asserts(*tests: str, **more: Any) -> dict[str, Any]:
    return {"kind": "asserts", "tests": tests, "integrity": "in_process", **more}


def pytests(text: str = FILE, **more: Any) -> dict[str, Any]:
    return {"kind": "pytest", "files": {"test_it.py": text}, **more}


FORMS = {
    "asserts": asserts(TESTS),
    "check": asserts(CHECK, entry_point="f"),
    "cases": asserts(UNITS),
    "main": asserts(f"{UNITS}\nunittest.main()"),
    "exec": {"kind": "exec", "tests": TESTS},
    "pytest": pytests(),
    "pytest cases": pytests(f"from solution import f\n{UNITS}"),
    "runner": {"kind": "command", "runner": "pytest", "files": {"test_it.py": FILE}},
}


def test_what_plain_python_accepts_passes(service: Service) -> None:
    items, names = [], []
    for name, each in HONEST.items():
        graders = {
            "asserts": asserts(each.tests, setup=each.setup, reveal=True),
            "exec": {"kind": "exec", "tests": each.tests, "setup": each.setup, "reveal": True},
            "pytest": pytests(each.test_file, reveal=True),
        }
        items.append({"completion": each.plain, "grader": {"kind": "exec"}})
        items += [{"completion": each.source, "grader": grader} for grader in graders.values()]
        names += [(name, form) for form in ("plain", *graders)]
    for where, result in zip(names, judge(service, *items), strict=True):
        assert (where, result["verdict"], result["message"]) == (where, "passed", "")
        assert (where, result["hack_signals"]) == (where, [])


# A program that ends itself, or breaks the interpreter, at any moment: each gets a verdict and no reward.
ENDS = {
    "exit": "import os\nos._exit(0)",
    "exit in a call": "import os\ndef f(x): os._exit(0)",
    "SystemExit": "import sys\ndef f(x): sys.exit(0)",
    "BaseException": "class B(BaseException): pass\ndef f(x): raise B",
    "KeyboardInterrupt": "def f(x): raise KeyboardInterrupt",
    "GeneratorExit": "def f(x): raise GeneratorExit",
    "CancelledError": "import asyncio\ndef f(x): raise asyncio.CancelledError",
    **{
        f"a timer, {after} s": "import os, threading\n"
        f"threading.Timer({after}, os._exit, [0]).start()\n{WRONG}"
        for after in (0, 0.002, 0.006, 0.02, 0.06)
    },
    "SIGKILL": "import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGKILL)",
    "SIGTERM at once": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "SIGSEGV later": "import os, signal, threading\n"
    f"threading.Timer(0.005, os.kill, [os.getpid(), signal.SIGSEGV]).start()\n{WRONG}",
    "no len": f"import builtins\nbuiltins.len = None\n{WRONG}",
    "all is an instance": f"import builtins\nbuiltins.isinstance = lambda *a: True\n{WRONG}",
    "no built-ins": f"import builtins\nvars(builtins).clear()\n{WRONG}",
    "no modules": f"import sys\nsys.stdout = None\nsys.modules.clear()\n{WRONG}",
    "no file descriptors": f"import os\nos.closerange(0, 1000)\n{WRONG}",
    "another folder": f"import os, tempfile\nos.chdir(tempfile.mkdtemp())\nos.rmdir(os.getcwd())\n{WRONG}",
    "no memory": f"import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))\n{WRONG}",
    "a syntax error": "def f(x) return",
    "nothing of the kind": "x = 1",
}
CHANNEL = "import gc, os\n[c] = [o for o in gc.get_objects() if type(o).__name__ == 'Channel']\n"
ATTACKS = {
    "pytest.skip": "import pytest\ndef f(x): pytest.skip('no')",
    "pytest.xfail": "import pytest\ndef f(x): pytest.xfail('no')",
    "pytest.exit": "import pytest\ndef f(x): pytest.exit('no', returncode=0)",
    "SkipTest": "import unittest\ndef f(x): raise unittest.SkipTest('no')",
    "a kind of SkipTest": "import unittest\nclass S(unittest.SkipTest, AssertionError): pass\n"
    "def f(x): raise S('no')",
    "skips the file": "import pytest\npytest.skip('no', allow_module_level=True)",
    "a report of its own": f'{CHANNEL}c.send(b\'["x","test","0","passed","",""]\\n\')\n{F}',
    "a report of the end": f'{CHANNEL}c.send(b\'["x","finished","x",0]\\n\')\nos._exit(0)\n{F}',
    "an error of the service": f"{CHANNEL}"
    'c.send(b\'["unusable","x"]\\n\')\nc.send(b\'["broken","x"]\\n\')\nos._exit(1)',
    "other tests": "open('test_it.py', 'w').write('def test_one(): pass')\nopen('tests.py', 'w').write('')\n"
    + WRONG,
    "an exit at its end": f"import atexit, os\natexit.register(os._exit, 0)\n{WRONG}",
}


@pytest.mark.parametrize("form", FORMS)
def test_no_end_and_no_attack_is_rewarded(service: Service, form: str) -> None:
    programs = ENDS | ATTACKS
    items = [{"completion": source} for source in (F, *programs.values())]
    limits = {"cpu_seconds": 5, "wall_seconds": 10}
    right, *results = judge(service, *items, grader=FORMS[form], limits=limits)
    assert (right["verdict"], right["integrity"]) == ("passed", "in_process")
    for name, result in zip(programs, results, strict=True):
        assert (name, result["reward"], result["integrity"]) == (name, 0.0, "in_process")


def test_setup_that_needs_nothing_stands_before_the_submission(service: Service) -> None:
    setup = (
        "import math, collections\nfrom typing import *\nPI = 3; PI2 = 2 * PI\n"
        "def isBadVersion(v): return v >= 4\n"
        "class Node:\n    def __init__(self, value): self.value = value\n"
        "@str\ndef named(): return PI\ndef double(x): return f(2 * x)\nLATE = f(1) + PI"
    )
    source = (
        "AREA = PI * 2\ndef first(n: int = PI2) -> List[int]:\n"
        "    return [v for v in range(n) if isBadVersion(v)]\n"
        "class Leaf(Node): pass\nroot: Optional[Node] = Leaf(math.floor(3.5))\ndef f(x): return x\n"
    )
    tests = "assert AREA == 6 and first() == [4, 5] and root.value == 3 and double(2) == 4 and LATE == 4"
    late = "LIMIT = f(0)\nVALUE = 1"
    items = [
        {"completion": source, "grader": asserts(tests, setup=setup)},
        {"completion": F, "grader": asserts("assert LIMIT == 0 and VALUE == 1", setup=late)},
        {"completion": f"PI = 3.14\n{F}", "grader": asserts("assert PI == 3.14", setup="PI = 3")},
        {"completion": F, "grader": asserts("assert True", setup="import sys\nsys.exit(0)")},
    ]
    *passed, left = judge(service, *items)
    assert [result["verdict"] for result in passed] == ["passed"] * 3
    assert left["reward"] == 0.0


def test_names_mean_what_plain_python_says(service: Service) -> None:
    rows = [
        (
            "def len(xs): return 7",
            asserts("assert len([]) == 7 and f is None", setup="f = None"),
            "passed",
        ),
        ("x = 1", asserts(CHECK, entry_point="sorted"), "runtime_error"),
        ("def sorted(x): return 2 * x", asserts(CHECK, entry_point="sorted"), "passed"),
        (
            F,
            asserts("import solution\nassert solution.f is f and __name__ == '__main__'"),
            "passed",
        ),
        (F, asserts("import sys\nsys.exit(0 if f(2) == 4 else 1)"), "passed"),
        (WRONG, asserts("import sys\nsys.exit(0 if f(2) == 4 else 1)"), "failed"),
    ]
    items = [{"completion": source, "grader": grader} for source, grader, _ in rows]
    for (source, grader, verdict), result in zip(rows, judge(service, *items), strict=True):
        assert result["verdict"] == verdict, (source, grader, result)


def test_nothing_of_an_expected_value_is_told(service: Service) -> None:
    sources = [
        "class Y:\n    def startswith(self, x): raise Exception('want ' + x)\ndef f(x): return Y()",
        "class Y:\n    def startswith(self, x): raise type(x, (Exception,), {})\ndef f(x): return Y()",
        "class Y:\n    def startswith(self, x): print(x); return False\ndef f(x): return Y()",
        "class Y:\n    def startswith(self, x): raise SystemExit(x)\ndef f(x): return Y()",
    ]
    test = "assert f(2).startswith('SECRET')"
    for reveal in (False, True):
        grader = asserts(test, reveal=reveal)
        for result in judge(service, *({"completion": each} for each in sources), grader=grader):
            assert result["reward"] == 0.0
            assert ("SECRET" in repr(result)) == reveal


NO_TESTS = {
    "nothing": {"test_it.py": "x = 1\n"},
    "a helper": {
        "test_it.py": "import solution\ndef check(): assert solution.f(1) == 2\nif True:\n    check()\n"
    },
    "a class without tests": {"test_it.py": "class TestIt:\n    def check(self): pass\n"},
    "a fixture": {
        "test_it.py": "x = 1\n",
        "conftest.py": "import pytest\n@pytest.fixture\ndef two(): return 2\n",
    },
    "a data file": {"data.json": "{}"},
}
MAY_HAVE_TESTS = {
    "a hook": {
        "test_it.py": "def check_it(): pass\n",
        "conftest.py": "def pytest_collection_modifyitems(items): pass\n",
    },
    "settings": {
        "test_it.py": "def check_it(): pass\n",
        "pytest.ini": "[pytest]\npython_functions = check_*\n",
    },
    "a doctest": {"test_it.txt": ">>> 1 + 1\n2\n"},
    "an inherited test": {
        "test_it.py": "from base import Base\nclass Some(Base): pass\n",
        "base.py": "import unittest\nclass Base(unittest.TestCase):\n    def test_it(self): pass\n",
    },
    "an imported test": {
        "test_it.py": "from base import *\n",
        "base.py": "def test_it(): pass\n",
    },
    "a test by assignment": {"test_it.py": "test_it = lambda: None\n"},
    "a test by name": {"test_it.py": "globals()['test' + '_it'] = lambda: None\n"},
}


def test_files_without_a_test_are_an_invalid_task_whatever_the_submission(service: Service) -> None:
    for source in (F, "def f(x) return", "import os\nos._exit(0)"):
        for kind in ({"kind": "pytest"}, {"kind": "command", "runner": "pytest"}):
            items = [
                {"completion": source, "grader": {**kind, "files": files}}
                for files in NO_TESTS.values()
            ]
            for name, result in zip(NO_TESTS, ask(service, *items), strict=True):
                assert (name, result["integrity"]) == (name, "in_process")
                assert (name, (result["error"] or {}).get("reason")) == (name, "invalid_task")
    items = [
        {"completion": F, "grader": {"kind": "pytest", "files": files}}
        for files in MAY_HAVE_TESTS.values()
    ]
    verdicts = [result["verdict"] for result in judge(service, *items)]
    # With the hook, pytest collected nothing, which the text does not tell.
    assert verdicts == ["runtime_error", *["passed"] * 6]


def test_broken_tests_are_no_verdict(service: Service) -> None:
    graders = [
        asserts("assert f(2) =="),
        asserts("import no_such_module_at_all\nassert f(2) == 4"),
        asserts(TESTS, setup="def"),
        pytests("def test_it() return"),
        {"kind": "pytest", "files": {"test_it.py": FILE, "conftest.py": "def"}},
    ]
    items = [
        {"completion": each, "grader": grader}
        for grader in graders
        for each in (F, "import os\nos._exit(0)")
    ]
    for item, result in zip(items, ask(service, *items), strict=True):
        assert result["error"] is not None, item
        assert result["error"]["reason"] == "invalid_task", item
    mine = {
        "completion": F,
        "grader": asserts("import mine\nassert f(2) == mine.x"),
        "files": {"mine.py": "x = 4"},
    }
    [result] = judge(service, mine)
    assert result["verdict"] == "passed"


def test_no_verdict_and_no_error_changes_the_integrity(service: Service) -> None:
    unfit = {"completion": F, "files": {"large": "x" * (3 << 20)}}
    loop = {"completion": "while True: pass"}
    limits = {"cpu_seconds": 1, "disk_mb": 1}
    for form in ("asserts", "exec", "pytest", "runner"):
        items: list[dict[str, Any]] = [
            unfit,
            loop,
            {"completion": "def f(x) return"},
            {"completion": ""},
        ]
        results = ask(service, *items, grader=FORMS[form], limits=limits)
        assert [result["integrity"] for result in results] == ["in_process"] * 4, form
