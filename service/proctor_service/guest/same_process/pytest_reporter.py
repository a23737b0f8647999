"""Plugin for pytest to report collection and test outcomes on the channel (`pytest_run.py`)."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any

from .. import origins, script, work_files

_TEXT = 500
SETTINGS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml",
            "tox.ini", "setup.cfg")  # fmt: skip


def configures(path: str) -> bool:
    """Tell whether pytest reads a file for its configuration."""
    return os.path.basename(path) in ("conftest.py", *SETTINGS)


def files_to_collect(tests: dict[str, str]) -> list[str]:
    """Return the files to collect: files with names of tests, else all files."""
    modules = [path for path in sorted(tests) if path.endswith(".py") and not configures(path)]
    named = [path for path in modules if _is_test(os.path.basename(path))]
    return [f"./{path}" for path in named or modules]


def _is_test(name: str) -> bool:
    return name.startswith("test_") or name.endswith("_test.py")


# Options of hooks for pytest.hookimpl, which is applied after the import of pytest.
_WRAPPER = {"hookwrapper": True, "tryfirst": True}
_HOOKS = {
    "pytest_make_collect_report": _WRAPPER,
    "pytest_runtest_makereport": _WRAPPER,
    "pytest_collection": {"tryfirst": True},
    "pytest_pyfunc_call": {"tryfirst": True},
    "pytest_collection_finish": {"trylast": True},
}


def make_reporter(
    say: Callable[..., None], tests: dict[str, str], begin: Callable[[], None]
) -> Any:
    """Make the plugin. `begin` is called right before the submission can be imported."""
    import pytest

    hook: Any = pytest.hookimpl
    kind: Any = _Reporter
    for name, options in _HOOKS.items():
        hook(**options)(vars(_Reporter)[name])
    return kind(say, tests, begin, pytest)


class _Reporter:
    """Plugin with the outcome of each test: failed if any phase failed, excused if skipped."""

    def __init__(
        self,
        say: Callable[..., None],
        tests: dict[str, str],
        begin: Callable[[], None],
        pytest: Any,
    ) -> None:
        self.say, self.tests, self.begin, self.pytest = say, tests, begin, pytest
        self.began = False
        self.directory = os.getcwd()
        paths = {os.path.abspath(path) for path in tests}
        writable = os.path.dirname(self.directory) + "/"
        self.whose = origins.Origins(lambda code: code.co_filename in paths, writable, globals())
        import unittest

        self.skips = (pytest.skip.Exception, pytest.xfail.Exception, unittest.SkipTest)
        self.found: dict[str, tuple[str, BaseException | None]] = {}

    def start(self) -> None:
        """Report the start of the submission; from now on its modules can be imported."""
        if not self.began:
            self.began = True
            self.begin()
            sys.path.append(self.directory)

    # ------------------------------------------------------------ collection

    def pytest_load_initial_conftests(self) -> None:
        self.start()

    def pytest_collection(self) -> None:
        script.find_files(self.directory)  # only now: pytest imports until here

    def pytest_make_collect_report(self) -> Any:
        work_files.write_files(self.tests)  # earlier imports may have changed the files
        outcome = yield
        report = outcome.get_result()
        if report.outcome == "passed":
            return
        error = report.call.excinfo.value
        # Before pytest 8.1, an exit counts as an error of the file.
        if isinstance(error, (SystemExit, KeyboardInterrupt, self.pytest.exit.Exception)):
            self.say("left")
        # A test file may skip itself; the submission may not skip a test file.
        elif report.outcome == "failed" or self.whose.passed_submission(error):
            self.tell_broken(error.__cause__ or error)

    def tell_broken(self, error: BaseException) -> None:
        """Report an exception for which tests cannot be collected."""
        self.say("broken", *origins.failure_texts(error, self.whose, loading=True))

    def pytest_collection_finish(self, session: Any) -> None:
        self.say("collected", len(session.items))

    # ------------------------------------------------------------ one test

    def pytest_pyfunc_call(self, pyfuncitem: Any) -> object:
        names = pyfuncitem._fixtureinfo.argnames
        result = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        if isinstance(result, types.CoroutineType):
            import asyncio  # imported here: slow to import, and most runs need no event loop

            asyncio.run(result)
        return True

    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        exception_info = call.excinfo  # pytest replaces a SkipTest by an exception of its own
        outcome = yield
        report = outcome.get_result()
        info = exception_info or call.excinfo
        error = None if info is None else info.value
        if report.failed or (report.skipped and self.is_skipped_by_submission(error)):
            self.found.setdefault(item.nodeid, ("failed", error))
        elif report.skipped:
            self.found.setdefault(item.nodeid, ("excused", error))
        elif report.when == "call" and self.found.get(item.nodeid, ("",))[0] == "excused":
            del self.found[item.nodeid]  # only a subtest was skipped

    def is_skipped_by_submission(self, error: BaseException | None) -> bool:
        while isinstance(error, self.skips):
            if self.whose.passed_submission(error):
                return True
            error = error.__context__  # the SkipTest of a test case
        return False

    def pytest_runtest_logreport(self, report: Any) -> None:
        # Failures without a report of their own: a subtest.
        if report.failed:
            found = self.found.get(report.nodeid)
            if found is None or found[0] != "failed":
                self.found[report.nodeid] = ("failed", None)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        outcome, error = self.found.pop(nodeid, ("passed", None))
        texts = origins.failure_texts(error, self.whose, loading=False)
        if outcome == "failed" and error is None:
            texts = ("a part of the test failed",) * 2
        self.say("test", nodeid[:_TEXT], outcome, *texts)

    # ------------------------------------------------------------ an early end

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        # pytest itself raises Interrupted to stop.
        if not isinstance(excinfo.value, self.pytest.Session.Interrupted):
            self.say("left")

    def pytest_internalerror(self, excinfo: Any) -> None:
        if isinstance(excinfo.value, (SystemExit, self.pytest.exit.Exception)):
            self.say("left")
