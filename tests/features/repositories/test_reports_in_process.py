"""pytest and unittest are observed in their process: each test's raw outcome and the reported one."""

from __future__ import annotations

from pathlib import Path

import pytest
from observed_runs import Environment, write_files

from proctor_service.features.repositories.reports.in_process import Events

pytestmark = pytest.mark.slow

PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
TESTS = """
import asyncio, pytest, unittest

def test_right(): assert True
def test_wrong(): assert 1 == 2
@pytest.mark.skip
def test_marked_skip(): pass
def test_called_skip(): pytest.skip("no")
@pytest.mark.xfail
def test_expected(): assert 0
@pytest.mark.xfail
def test_unexpected(): assert 1
@pytest.mark.parametrize("x", [1, 2, "a b"])
def test_each(x): assert x != 2
@pytest.fixture
def broken(): raise ValueError
@pytest.fixture
def broken_later():
    yield 1
    raise ValueError
def test_setup(broken): pass
def test_teardown(broken_later): pass
class TestGroup:
    def test_method(self): pass
    @staticmethod
    def test_static(): pass
class Cases(unittest.TestCase):
    def test_right(self): self.assertEqual(1, 1)
    def test_wrong(self): self.assertEqual(1, 2)
    def test_skip(self): self.skipTest("x")
    @unittest.expectedFailure
    def test_expected(self): self.fail()
    def test_parts(self):
        for i in range(3):
            with self.subTest(i=i): self.assertNotEqual(i, 1)
class AsyncCases(unittest.IsolatedAsyncioTestCase):
    async def test_right(self): await asyncio.sleep(0)
    async def test_wrong(self): self.fail()
"""
OUTCOMES = {
    "test_right": "passed",
    "test_wrong": "failed",
    "test_marked_skip": "skipped",
    "test_called_skip": "skipped",
    "test_expected": "expected_failure",
    "test_unexpected": "unexpected_pass",
    "test_each[1]": "passed",
    "test_each[2]": "failed",
    "test_each[a b]": "passed",
    "test_setup": "error",
    "test_teardown": "error",
    "TestGroup::test_method": "passed",
    "TestGroup::test_static": "passed",
    "Cases::test_right": "passed",
    "Cases::test_wrong": "failed",
    "Cases::test_skip": "skipped",
    "Cases::test_expected": "expected_failure",
    "Cases::test_parts": "failed",
    "AsyncCases::test_right": "passed",
    "AsyncCases::test_wrong": "failed",
}
RING = '''
def push(x):
    """
    >>> push(1)
    1
    """
    return x
'''
UNITTESTS = """
import unittest
class Cases(unittest.TestCase):
    def test_right(self):
        "Right as it is."
    def test_wrong(self): self.fail()
    def test_inner(self):
        class Inner(unittest.TestCase):
            def test_wrong(self): self.fail()
        assert not Inner("test_wrong").run().wasSuccessful()
    def test_skip(self): self.skipTest("x")
class Setup(unittest.TestCase):
    def setUp(self): raise ValueError
    def test_never(self): pass
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"))


def test_each_kind_of_test_is_reported_as_pytest_counts_it(
    environment: Environment, tmp_path: Path
) -> None:
    write_files(tmp_path, {"tests/test_a.py": TESTS, "ring.py": RING, "tests/test_b.py": "1 / 0"})
    expected = {f"tests/test_a.py::{name}": outcome for name, outcome in OUTCOMES.items()}
    expected |= {"ring.py::ring.push": "passed"}
    command = [*PYTEST, "--doctest-modules", "ring.py", "tests/test_a.py"]
    for arguments in (command, [*command, "-p", "xdist.plugin", "-n", "2"]):
        observed = environment.run(tmp_path, arguments)
        assert observed.reported.outcomes == expected, observed.output
        assert observed.reported.is_complete
        assert observed.reported.signals == ()
    broken = environment.run(tmp_path, [*PYTEST, "tests/test_b.py"]).reported
    assert broken.outcomes == {"tests/test_b.py": "error"}


def test_unittest_is_reported_by_class_and_by_description(
    environment: Environment, tmp_path: Path
) -> None:
    write_files(tmp_path, {"tests/__init__.py": "", "tests/test_a.py": UNITTESTS})
    observed = environment.run(tmp_path, ["-m", "unittest", "tests.test_a"], "unittest")
    assert observed.reported.outcomes == {
        "tests.test_a.Cases.test_right": "passed",
        "Right as it is.": "passed",
        "tests.test_a.Cases.test_wrong": "failed",
        "tests.test_a.Cases.test_inner": "passed",
        "tests.test_a.Cases.test_skip": "skipped",
        "tests.test_a.Setup.test_never": "error",
    }, observed.output
    assert observed.reported.is_complete


def test_doctests_of_unittest_are_named_by_what_they_document(
    environment: Environment, tmp_path: Path
) -> None:
    tests = """
import doctest, ring
def load_tests(loader, tests, pattern):
    tests.addTests(doctest.DocTestSuite(ring))
    return tests
"""
    wrong = (
        RING.replace("push(1)", "push(2)").replace("def push", "def pop").replace("x)", "x, y=0)")
    )
    write_files(tmp_path, {"ring.py": RING + wrong, "test_a.py": tests})
    observed = environment.run(tmp_path, ["-m", "unittest", "test_a"], "unittest")
    assert observed.reported.outcomes == {
        "ring.push": "passed",
        "Doctest: ring.push": "passed",
        "ring.pop": "failed",
        "Doctest: ring.pop": "failed",
    }, observed.output
    assert observed.reported.signals == ()


def test_doctests_count_with_the_text_of_the_task(environment: Environment, tmp_path: Path) -> None:
    changed = RING.replace("    1\n    ", "    2\n    ").replace("return x", "return 2")
    write_files(tmp_path, {"ring.py": changed})
    command = [*PYTEST, "--doctest-modules", "ring.py"]
    for texts, outcome in (({}, "passed"), ({"ring.py": RING}, "failed")):
        reported = environment.run(tmp_path, command, "pytest", ["ring.py"], texts).reported
        assert reported.outcomes == {"ring.py::ring.push": outcome}


def test_what_came_before_a_sudden_end_stays(environment: Environment, tmp_path: Path) -> None:
    ending = "import os\ndef test_a(): pass\ndef test_b(): os._exit(0)\ndef test_c(): pass"
    write_files(tmp_path, {"test_a.py": ending})
    reported = environment.run(tmp_path, PYTEST).reported
    assert reported.outcomes == {"test_a.py::test_a": "passed"}
    assert not reported.is_complete


def test_modules_of_the_repository_stand_for_no_framework(
    environment: Environment, tmp_path: Path
) -> None:
    shadows = {f"{name}.py": "raise SystemExit(0)" for name in ("pytest", "pluggy", "unittest")}
    write_files(
        tmp_path, {**shadows, "_pytest/__init__.py": "", "test_a.py": "def test_a(): 1 / 0"}
    )
    reported = environment.run(tmp_path, PYTEST, changed=[*shadows, "_pytest/__init__.py"]).reported
    assert reported.outcomes == {"test_a.py::test_a": "failed"}


def test_an_interpreter_says_hello_when_it_loads_a_framework(
    environment: Environment, tmp_path: Path
) -> None:
    for program, has_hello in (("import unittest", True), ("import json", False)):
        observed = environment.run(tmp_path, ["-c", program])
        assert Events.of(observed.lines).has_hello == has_hello
        assert observed.reported.outcomes == {}
