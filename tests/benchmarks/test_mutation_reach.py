"""The tests that a mutation run selects for a fault."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import coverage
import pytest
from mutants.mutant import Mutant
from mutants.operators import mutants_of
from mutants.reach import Costs, Reach, SuiteTest, read_durations, select

CODE = """\
MOST = 3
def first(a):
    return a < MOST
def second(a, b=1):
    return a
def words(a):
    return a.split()
WORDS = words("b c")
def third(a):
    return a in WORDS
def fourth(a):
    return a
"""
FIXTURE, USES = "tests/test_b.py::test_one", "tests/test_b.py::test_three[a]"
REPORT = f"""\
<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_first" time="0.1" />
<testcase classname="tests.test_a.TestClass" name="test_second" time="0.1" />
<testcase classname="tests.test_a" name="test_third" time="0.1" />
<testcase classname="tests.test_a" name="test_red" time="0.1"><failure /></testcase>
<testcase classname="tests.test_b" name="test_one" time="5" />
<testcase classname="tests.test_b" name="test_two" time="0.1" />
<testcase classname="tests.test_b" name="{USES.rpartition("::")[2]}" time="0.1" />
</testsuite></testsuites>
"""
FIRST, SECOND = "tests/test_a.py::test_first", "tests/test_a.py::TestClass::test_second"
THIRD = "tests/test_a.py::test_third"
WHOLE_FILE = [FIXTURE, "tests/test_b.py::test_two", USES]


@pytest.fixture
def reach(tmp_path: Path) -> Reach:
    (tmp_path / "tests").mkdir()
    for name in ("tests/test_a.py", "tests/test_b.py"):
        (tmp_path / name).touch()
    code, report, data_file = (tmp_path / name for name in ("code.py", "report.xml", "data"))
    code.write_text(CODE)
    report.write_text(REPORT)
    data = coverage.CoverageData(str(data_file))
    for context, lines in {
        "": [1, 2, 4, 6, 7, 8, 9, 11],
        f"{FIRST}|run": [3],
        f"{SECOND}|run": [5],
        f"{THIRD}|run": [10],
        "tests/test_a.py::test_red|run": [3, 5, 12],
        f"{FIXTURE}|setup": [5],
    }.items():
        data.set_context(context)
        data.add_lines({str(code): lines})
    data.write()
    data.close()
    return Reach.read(tmp_path, data_file, report)


def mutant_at(line: int) -> Mutant:
    return next(mutant for mutant in mutants_of("code.py", CODE) if mutant.line == line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(3, [FIRST], id="the test that runs the line, if it passes"),
        pytest.param(1, [FIRST], id="a constant: the test of the line that names it"),
        pytest.param(7, [THIRD], id="a function of an import: the test that uses its value"),
        pytest.param(12, [], id="a test that fails proves nothing"),
        pytest.param(5, [SECOND, *WHOLE_FILE], id="a fixture: all tests of its file"),
        pytest.param(4, [SECOND, *WHOLE_FILE], id="a default: the tests of the body"),
    ],
)
def test_a_mutant_has_the_tests_of_its_line(reach: Reach, line: int, expected: list[str]) -> None:
    assert [test.name for test in reach.tests_of(mutant_at(line), line)] == expected


def test_the_costs_of_a_fixture_belong_to_its_file(reach: Reach) -> None:
    costs = Costs.of(reach.tests.values())
    assert costs.own[FIXTURE] < 1
    assert costs.shared["tests/test_b.py"] > 4


def names(seconds: dict[str, float], budget_seconds: float) -> list[str]:
    tests = [SuiteTest(name, each, order) for order, (name, each) in enumerate(seconds.items())]
    return [test.name for test in select(tests, Costs.of(tests), budget_seconds)]


def test_a_selection_has_short_files_first_and_tests_of_each_within_its_budget() -> None:
    seconds = {"slow.py::test_a": 4.0, "slow.py::test_b": 4.0} | {
        f"fast.py::test_{n}": 0.1 for n in range(20)
    }
    selected = names(seconds, 8)
    assert selected == [f"fast.py::test_{n}" for n in range(20)] + ["slow.py::test_a"]


def test_a_selection_has_each_function_before_a_second_case() -> None:
    seconds = {f"a.py::test_a[{n}]": 1.0 for n in range(9)} | {"a.py::test_b": 1.5}
    assert {name.partition("[")[0] for name in names(seconds, 3)} == {
        "a.py::test_a",
        "a.py::test_b",
    }


def test_a_test_that_is_longer_than_the_budget_is_selected_alone() -> None:
    assert names({"a.py::test_a": 50.0, "a.py::test_b": 51.0}, 40) == ["a.py::test_a"]


def test_a_report_may_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    ET.ElementTree(ET.Element("testsuites")).write(path)
    assert read_durations(path, tmp_path) == {}
