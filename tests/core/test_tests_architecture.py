"""The tests lie as the service does: those of the core know no feature, and features not one another."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PREFIX = "proctor_service.features."
PARTNERS = {
    "aviato": {"environments"},
    "environments": {"replicas"},
    "evaluation": {"journal"},
    "journal": {"replicas", "rollouts"},
    "repositories": {"environments"},
}
"""Features that stand in a feature's tests for what it works with, such as a rollout that a journal keeps."""
SUPPORT = {path.stem: path for path in (TESTS / "support").glob("*.py")}


@cache
def features_of(path: Path) -> frozenset[str]:
    """The features that a module of tests imports, or a module of support/ that it imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name.startswith(PREFIX):
                found.add(name.removeprefix(PREFIX).partition(".")[0])
            elif (helper := SUPPORT.get(name.partition(".")[0])) not in (None, path):
                found |= features_of(helper)
    return frozenset(found)


def test_tests_of_the_core_import_no_feature() -> None:
    paths = set((TESTS / "core").rglob("*.py")) - {TESTS / "core" / "test_architecture.py"}
    assert {
        str(path.relative_to(TESTS)): set(found) for path in paths if (found := features_of(path))
    } == {}


def test_tests_of_a_feature_import_no_other() -> None:
    folder = TESTS / "features"
    wrong = {}
    for path in folder.rglob("*.py"):
        own = path.relative_to(folder).parts[0]
        if others := features_of(path) - {own} - PARTNERS.get(own, set()):
            wrong[str(path.relative_to(TESTS))] = set(others)
    assert wrong == {}
