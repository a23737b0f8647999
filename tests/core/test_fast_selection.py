"""`make test-fast` leaves out tests that start a service or sandboxes by rule, but for a handful."""

from __future__ import annotations

import ast
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from fast_selection import SLOW_FOLDERS, SUITES
from harness import running_service

from proctor_service.errors import StartError

TESTS = Path(__file__).resolve().parents[1]
HANDFUL = 10


def files_marked(name: str) -> list[Path]:
    """The file of each test function that carries the marker."""
    return [
        path
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and f"pytest.mark.{name}" in map(ast.unparse, node.decorator_list)
    ]


def test_a_test_without_the_marker_starts_no_sandboxes() -> None:
    with pytest.raises(StartError, match="mark it slow"), running_service(judge=None):
        pytest.fail("it started")


def test_each_test_of_a_folder_with_sandboxes_is_slow(request: pytest.FixtureRequest) -> None:
    for folder in SLOW_FOLDERS:
        assert list(TESTS.rglob(f"{folder}/test_*.py"))
    for item in request.session.items:
        if item.path.parent.name in SLOW_FOLDERS:
            assert item.get_closest_marker("slow"), item.nodeid


def test_each_folder_with_a_target_of_its_own_is_left_out_of_make_test() -> None:
    options = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]
    patterns = options["ini_options"]["norecursedirs"]
    folders = {path.parent.name for path in TESTS.rglob("test_*.py")}
    left_out = {name for name in folders if any(fnmatch(name, each) for each in patterns)}
    assert left_out == SUITES


def test_contributing_tells_where_each_folder_runs() -> None:
    text = (TESTS.parent / "CONTRIBUTING.md").read_text()
    for name in {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}:
        assert f"`{name}/`" in text, name


def test_a_handful_of_tests_shows_that_sandboxes_work() -> None:
    smoke = files_marked("smoke")
    assert 3 <= len(smoke) <= HANDFUL
    assert {path.parent.name for path in smoke} == {"e2e"}


def test_the_make_target_selects_by_these_markers() -> None:
    recipe = re.search(r"^test-fast:.*\n\t(.*)\n", (TESTS.parent / "Makefile").read_text(), re.M)
    assert recipe is not None
    assert recipe[1].endswith('-m "not (slow or service) or smoke"')
