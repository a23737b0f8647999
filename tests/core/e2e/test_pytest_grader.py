"""The `pytest` grader over HTTP: whatever pytest can run counts, and what replaces it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import Service
from judging import judge, one

DOUBLE = "def f(x):\n    return 2 * x\n"
TESTS = """
from solution import f
def test_a(): assert f(1) == 2
def test_b(): assert f(2) == 4
"""
EVERYTHING = """
import asyncio, unittest, pytest
from unittest import mock
from solution import f

@pytest.fixture
def two():
    yield 2

@pytest.mark.parametrize("x,y", [(1, 2), (3, 6)])
def test_parameters(x, y):
    assert f(x) == y

class TestClass:
    def setup_method(self): self.x = 3
    def test_method(self, two): assert f(self.x) == 6 and f(two) == 4
    @staticmethod
    def test_static(): assert f(1) == 2

async def test_async():
    await asyncio.sleep(0)
    assert f(1) == 2

def test_fixtures(tmp_path, capsys, monkeypatch):
    (tmp_path / "a").write_text("x")
    print("hi")
    assert capsys.readouterr().out == "hi\\n"
    monkeypatch.setattr("builtins.input", lambda: "3")
    assert f(int(input())) == 6

@mock.patch("time.sleep")
def test_mock(sleep):
    import time
    time.sleep(100)
    assert sleep.called and f(0) == 0

class Unit(unittest.TestCase):
    @classmethod
    def setUpClass(cls): cls.known = 2
    def test_unit(self): self.assertEqual(f(1), self.known)
    def test_parts(self):
        for i in range(3):
            with self.subTest(i=i): self.assertEqual(f(i), 2 * i)
    @unittest.skip("not now")
    def test_skipped(self): assert 0

class Async(unittest.IsolatedAsyncioTestCase):
    async def test_it(self): self.assertEqual(f(1), 2)

@pytest.mark.skip
def test_skipped(): assert 0

@pytest.mark.xfail
def test_known_to_fail(): assert 0

def test_raises():
    with pytest.raises(TypeError): f(None)

def test_approx(): assert f(0.1) == pytest.approx(0.2)
"""


def grader(text: str = TESTS, **more: str) -> dict[str, Any]:
    return {"kind": "pytest", "files": {"test_it.py": text, **more}}


@pytest.mark.smoke
def test_whatever_pytest_can_run(service: Service) -> None:
    right = one(service, DOUBLE, grader(EVERYTHING))
    assert (right["verdict"], right["reward"], right["integrity"]) == ("passed", 1.0, "in_process")
    assert (right["tests"]["passed"], right["tests"]["total"]) == (12, 12)
    text = "def f(x):\n    return 2 * x if x != 1 else 0"
    wrong = one(service, text, grader(EVERYTHING), scoring="fraction")
    failed = [failure["test"].rpartition("::")[2] for failure in wrong["tests"]["failures"]]
    expected = [
        "test_parameters",
        "test_static",
        "test_async",
        "test_parts",
        "test_unit",
        "test_it",
    ]
    assert (wrong["verdict"], failed) == ("failed", expected)
    assert wrong["reward"] == 0.5


VERDICTS = {
    DOUBLE: "passed",
    "def f(x): return 2": "failed",
    "def f(x): raise KeyError('no')": "failed",
    "import sys\ndef f(x): sys.exit(0)": "failed",
    "import pytest\ndef f(x): pytest.skip('no')": "failed",
    "def f(x) return": "syntax_error",
    "f = unknown": "runtime_error",
    "g = 1": "runtime_error",
    "import pytest\npytest.skip('no', allow_module_level=True)": "runtime_error",
    "": "no_code",
    "import os\nos._exit(0)": "early_exit",
    "import os\ndef f(x): os._exit(0)": "early_exit",
    "import sys\nsys.exit(0)": "early_exit",
    "import pytest\npytest.exit('no', returncode=0)": "early_exit",
    "import pytest\ndef f(x): pytest.exit('no', returncode=0)": "early_exit",
    "def f(x): raise KeyboardInterrupt": "early_exit",
    "while True: pass": "timeout",
    "x = [0] * (1 << 28)": "memory_limit",
    "import os\nos.abort()": "runtime_error",
}


def test_verdicts(service: Service) -> None:
    items = [{"completion": text} for text in VERDICTS]
    limits = {"cpu_seconds": 2, "memory_mb": 256}
    results = judge(service, *items, grader=grader(), limits=limits)
    assert [result["verdict"] for result in results] == list(VERDICTS.values())
    for result in results:
        assert result["reward"] == (1.0 if result["verdict"] == "passed" else 0.0)
    assert results[2]["tests"]["failures"][0]["message"] == "KeyError"
    assert results[6]["message"].endswith("NameError: name 'unknown' is not defined")


def test_a_test_file_is_put_back_before_it_is_collected(service: Service) -> None:
    files = {"test_z.py": "from solution import f\n\ndef test_z():\n    assert f(3) == 6\n"}
    rewrite = (
        "open('test_z.py', 'w').write('def test_z(): pass')\ndef f(x): return 2 * x if x < 3 else 0"
    )
    assert one(service, rewrite, grader(**files))["tests"]["passed"] == 2


def test_a_report_can_not_be_forged(service: Service) -> None:
    source = (
        "import gc, os\nfor o in gc.get_objects():\n    if type(o).__name__ == 'Channel':\n"
        '        o.send(b\'["test","x","passed","",""]\\n\')\ndef f(x): return 2 * x'
    )
    result = one(service, source, grader())
    assert (result["verdict"], result["hack_signals"]) == ("failed", ["forged_result"])


LIES = [
    [("collected", 1), ("test", "x", "passed", "", ""), ("finished", "", 0)],
    [("no pytest", "none")],  # an error
]


@pytest.mark.parametrize("lies", LIES)
def test_the_reporter_can_not_be_made_to_lie(
    service: Service, lies: list[tuple[object, ...]]
) -> None:
    source = f"""
import gc, os
for thing in gc.get_objects():
    if type(thing).__name__ == "_Reporter":
        for lie in {lies}:
            thing.say(*lie)
        os._exit(0)
"""
    result = one(service, source, grader())
    assert (result["reward"], result["verdict"]) == (0.0, "early_exit")


def test_only_the_grader_configures(service: Service) -> None:
    hook = "def pytest_collection_modifyitems(items): items[:] = items[:1]\n"
    ini = "[pytest]\naddopts = -k test_a\n"
    wrong = "def f(x): return 2"
    brought = {"conftest.py": hook, "pytest.ini": ini, "test_mine.py": "def test_mine(): pass\n"}
    result = one(service, wrong, grader(), files=brought)
    assert (result["verdict"], result["tests"]["total"]) == ("failed", 2)
    own = grader(**{"conftest.py": hook, "test_mine.py": "def test_mine(): assert 0\n"})
    result = one(service, wrong, own, files=brought)
    assert (result["verdict"], result["tests"]["total"]) == ("passed", 1)
    checks = {
        "pytest.ini": "[pytest]\npython_files = check_*.py\n",
        "tests/check_it.py": "from solution import f\nfrom .two import two\ndef test(): assert f(1) == two\n",
        "tests/two.py": "two = 2\n",
        "tests/__init__.py": "",
    }
    plugin = (
        "from reference import FACTOR\n"
        "def pytest_generate_tests(metafunc): metafunc.parametrize('x', [FACTOR])\n"
    )
    plugged = {
        # pytest 8.0 imports plugins before it looks at `pythonpath`.
        "pytest.ini": "[pytest]\naddopts = -p plugin\n",
        "plugin.py": plugin,
        "reference.py": "FACTOR = 3\n",
        "test_it.py": "from solution import f\ndef test(x): assert f(x) == 6\n",
    }
    assert one(service, DOUBLE, {"kind": "pytest", "files": plugged})["verdict"] == "passed"
    assert one(service, wrong, {"kind": "pytest", "files": plugged})["verdict"] == "failed"
    nested = one(service, DOUBLE, {"kind": "pytest", "files": checks}, files=brought)
    assert (nested["verdict"], nested["tests"]["total"]) == ("passed", 1)


def test_a_test_file_may_skip_itself_and_the_submission_may_not_skip_it(service: Service) -> None:
    good = {"test_more.py": "def test_more(): pass\n"}
    for skips in (
        "import pytest\npytest.importorskip('no_such_module')\n",
        "import pytest\npytest.skip('no', allow_module_level=True)\n",
        "import unittest\nraise unittest.SkipTest\n",
        "import helper\nhelper.skip()\n",
    ):
        helper = "import pytest\ndef skip(): pytest.skip('no', allow_module_level=True)\n"
        files = {**good, "helper.py": helper}
        result = one(service, "x = 1", grader(skips + TESTS, **files))
        assert (result["verdict"], result["tests"]["total"]) == ("passed", 1), skips
    skip = "pytest.skip('no', allow_module_level=True)"
    disguised = f"exec(compile({skip!r}, pytest.__file__, 'exec'))"
    for source in (skip, disguised, "raise pytest.skip.Exception('no', allow_module_level=True)"):
        result = one(service, f"import pytest\n{source}", grader(**good))
        assert result["verdict"] == "runtime_error", source


def test_stopping_at_the_first_broken_file_accuses_nobody(service: Service) -> None:
    more = {"pytest.ini": "[pytest]\naddopts = -x\n", "test_zz.py": "def test_z(): pass\n"}
    result = one(service, "f = unknown", grader(**more))
    assert (result["verdict"], result["hack_signals"]) == ("runtime_error", [])
    result = one(service, "def f(x): return 2", grader(**more))
    assert (result["verdict"], result["hack_signals"]) == ("failed", [])


def test_a_run_without_a_counted_test_does_not_pass(service: Service) -> None:
    skipped = "import pytest\n@pytest.mark.skip\ndef test_it(): pass\n"
    assert one(service, DOUBLE, grader(skipped))["verdict"] == "failed"


def test_a_failing_teardown_fails_its_test(service: Service) -> None:
    text = (
        "import pytest\n@pytest.fixture\ndef a():\n    yield\n    assert 0\ndef test_a(a): pass\n"
    )
    result = one(service, DOUBLE, grader(text))
    assert (result["verdict"], result["tests"]["passed"]) == ("failed", 0)


def test_reveals_only_what_it_may(service: Service) -> None:
    text = (
        "import pytest, sys\nfrom solution import f\n"
        "@pytest.mark.parametrize('x,y', [(1, 987654)])\n"
        "def test_it(x, y):\n    print(y, file=sys.stderr)\n    assert f(x) == y, f'not {y}'\n"
    )
    hidden = one(service, DOUBLE, grader(text))
    assert "987654" not in json.dumps(hidden)
    assert hidden["tests"]["failures"][0]["test"] == "test_it.py::test_it"
    shown = one(service, DOUBLE, {**grader(text), "reveal": True})
    assert "987654" in shown["stdout"]
    assert "987654" in shown["tests"]["failures"][0]["message"]
