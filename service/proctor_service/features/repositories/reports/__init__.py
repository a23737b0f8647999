"""Reports of test runs: each runner's way to say which test had which outcome."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from proctor_client.wire import RepositoryGrader
from proctor_client.wire.repositories import JunitReport as JunitFields
from proctor_client.wire.repositories import ScriptReport as ScriptFields
from proctor_service.features.repositories.change import Change
from proctor_service.features.repositories.reports.exit_code import ExitCode
from proctor_service.features.repositories.reports.fallback import (
    PYTEST_JUNIT,
    PYTEST_TEXT,
    PytestJunit,
    PytestText,
)
from proctor_service.features.repositories.reports.in_process import InProcess
from proctor_service.features.repositories.reports.interface import Report
from proctor_service.features.repositories.reports.junit import JunitReport
from proctor_service.features.repositories.reports.node import NodeReport
from proctor_service.features.repositories.reports.script import ScriptReport
from proctor_service.features.repositories.reports.text import (
    cargo_report,
    go_report,
    sympy_report,
)

__all__ = ["DEFAULT_JUNIT", "FALLBACKS", "doctest_paths", "report_of"]

DEFAULT_JUNIT = (
    "*target/surefire-reports/*.xml",
    "*target/failsafe-reports/*.xml",
    "*build/test-results/*.xml",
)
"""Where Maven and Gradle write; `*` also matches folders."""
FALLBACKS: Mapping[str, Sequence[str]] = MappingProxyType({"pytest": (PYTEST_JUNIT, PYTEST_TEXT)})
"""Kinds that take the place of another in an image where that one reports nothing, in this order."""


def report_of(
    grader: RepositoryGrader,
    directory: str,
    socket: str,
    change: Change,
    doctests: Mapping[bytes, bytes] | None = None,
    fallback: str = "",
) -> Report:
    """Return the report of a task, for one run. `fallback`: kind of `FALLBACKS` in place of its own.

    `socket`: path of the listener's socket, in a folder of this run alone. `doctests`: the task's content of
    `doctest_paths(grader)` where the change has another, by path below `directory`.
    """
    kind = grader.report
    listed = (*grader.fail_to_pass, *grader.pass_to_pass, *(grader.expected or {}))
    if fallback == PYTEST_JUNIT:
        return PytestJunit(posixpath.dirname(socket), listed)
    if fallback == PYTEST_TEXT:
        return PytestText(listed)
    if isinstance(kind, JunitFields):
        return JunitReport(kind.junit)
    if isinstance(kind, ScriptFields):
        return ScriptReport(kind.script, kind.collect)
    match kind:
        case "pytest" | "unittest" | "django":
            changed = [_below(directory, name) for name, state in change.files.items() if state]
            texts = {
                _below(directory, name): content.decode("utf-8", "replace")
                for name, content in (doctests or {}).items()
            }
            return InProcess(kind, socket, directory, changed, texts)
        case "node" | "jest" | "vitest" | "mocha":
            return NodeReport(kind, socket, directory)
        case "go":
            return go_report()
        case "cargo":
            return cargo_report()
        case "sympy":
            return sympy_report()
        case "junit":
            return JunitReport(DEFAULT_JUNIT)
        case "exit_code":
            return ExitCode()


def _below(directory: str, name: bytes) -> str:
    return posixpath.join(directory, os.fsdecode(name))


def doctest_paths(grader: RepositoryGrader) -> frozenset[bytes]:
    """Return the files, below the repository's folder, with listed doctests: `src/ring.py::ring.push`."""
    names = (*grader.fail_to_pass, *grader.pass_to_pass, *(grader.expected or {}))
    found = (name.partition("::") for name in names)
    return frozenset(
        os.fsencode(path)
        for path, colons, rest in found
        if colons and "." in rest.partition("[")[0] and path.endswith(".py")
    )
