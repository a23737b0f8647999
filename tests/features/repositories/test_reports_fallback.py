"""Reports of pytest without the observer: what pytest itself writes and prints of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from observed_runs import write_files

from proctor_client.wire import RepositoryGrader
from proctor_service.features.repositories.change import Change
from proctor_service.features.repositories.reports import FALLBACKS, report_of
from proctor_service.features.repositories.reports.fallback import PYTEST_JUNIT, PYTEST_TEXT
from proctor_service.features.repositories.reports.interface import Reported, TestRun

TESTS = """
import pytest


class Base:
    def test_inherited(self):
        pass


class TestRing(Base):
    @pytest.mark.parametrize("text", ["a b", "a - b", "x::y", "[/a/b]"])
    def test_text(self, text):
        print("=== short test summary info ===")
        print("PASSED tests/test_ring.py::test_fails")

    class TestInner:
        def test_deep(self):
            pass


@pytest.mark.parametrize("text", ["a - b"])
def test_fails(text):
    assert text == "b"


@pytest.fixture
def broken():
    raise OSError


def test_errs(broken):
    pass


@pytest.fixture
def torn():
    yield
    raise OSError


def test_is_torn(torn):
    pass


def test_is_skipped():
    pytest.skip("PASSED tests/test_ring.py::test_errs")


@pytest.mark.xfail
def test_fails_as_expected():
    assert False
"""
FILE = "tests/test_ring.py"
OUTCOMES = {
    "TestRing::test_inherited": "passed",
    "TestRing::test_text[a b]": "passed",
    "TestRing::test_text[a - b]": "passed",
    "TestRing::test_text[x::y]": "passed",
    "TestRing::test_text[[/a/b]]": "passed",
    "TestRing::TestInner::test_deep": "passed",
    "test_fails[a - b]": "failed",
    "test_errs": "error",
    "test_is_torn": "error",
    "test_is_skipped": "skipped",
    "test_fails_as_expected": "expected_failure",
}
LISTED = [f"{FILE}::{name}" for name in OUTCOMES]


def reported(folder: Path, kind: str, *arguments: str) -> Reported:
    grader = RepositoryGrader(kind="repository", test="pytest", pass_to_pass=LISTED)
    report = report_of(grader, str(folder), f"{folder}/own/events", Change({}), fallback=kind)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **report.variables({"PYTEST_ADDOPTS": "--color=yes"})},
        capture_output=True,
        check=False,
    )
    files = {each: Path(each).read_bytes() for each in report.collects() if Path(each).exists()}
    return report.read(TestRun((), done.stdout, done.stderr, files, done.returncode))


@pytest.mark.parametrize("kind", FALLBACKS["pytest"])
@pytest.mark.parametrize("more", [(), ("-s",), ("-q", "tests")])
def test_each_test_is_named_as_pytest_names_it(
    tmp_path: Path, kind: str, more: tuple[str, ...]
) -> None:
    write_files(tmp_path, {FILE: TESTS, "tests/__init__.py": ""})
    found = reported(tmp_path, kind, *more)
    wanted: dict[str, str] = {f"{FILE}::{name}": each for name, each in OUTCOMES.items()}
    if kind == PYTEST_JUNIT:
        wanted[f"{FILE}::test_fails_as_expected"] = "skipped"
    elif "-q" in more:  # the summary has no name of a skipped test
        del wanted[f"{FILE}::test_is_skipped"]
    passed = {name for name, outcome in found.outcomes.items() if outcome == "passed"}
    assert passed == {name for name, outcome in wanted.items() if outcome == "passed"}
    assert {name: found.outcomes.get(name) for name in wanted} == wanted
    assert (found.kind, found.is_complete) == (kind, True)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    write_files(tmp_path, {FILE: "def test_a():\n    assert False\n"})
    xml = reported(tmp_path, PYTEST_JUNIT, "-p", "no:junitxml")
    assert (dict(xml.outcomes), xml.is_complete) == ({}, False)
    text = reported(tmp_path, PYTEST_TEXT)
    assert (dict(text.outcomes), text.is_complete) == ({f"{FILE}::test_a": "failed"}, False)
