"""Plugin for pytest that reports collection and test outcomes on the channel (`pytest_run.py`)."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any

from .. import origins, script, work_files
from . import comparison_policy, tamper_check, test_files

_TEXT = 2000
_EXCUSES = ("skip", "skipif", "xfail")
SETTINGS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml",
            "tox.ini", "setup.cfg")  # fmt: skip


def configures(path: str) -> bool:
    """Tell whether pytest reads a file for its configuration."""
    return os.path.basename(path) in ("conftest.py", *SETTINGS)


def files_to_collect(tests: dict[str, str]) -> list[str]:
    """Return the files to collect: files with names of tests, or all files if there are none."""
    modules = [path for path in sorted(tests) if path.endswith(".py") and not configures(path)]
    named = [path for path in modules if _is_test(os.path.basename(path))]
    return [f"./{path}" for path in named or modules]


def _is_test(name: str) -> bool:
    return name.startswith("test_") or name.endswith("_test.py")


# Options of hooks for pytest.hookimpl, which is applied after the import of pytest.
_WRAPPER = {"hookwrapper": True, "tryfirst": True}
_HOOKS = {
    "pytest_make_collect_report": _WRAPPER,
    "pytest_runtest_setup": _WRAPPER,
    "pytest_runtest_call": _WRAPPER,
    "pytest_runtest_teardown": _WRAPPER,
    "pytest_collection": {"tryfirst": True},
    "pytest_pyfunc_call": {"tryfirst": True},
    "pytest_collection_finish": {"trylast": True},
}


def make_reporter(*given: Any) -> Any:
    """Make the plugin; `given` are the arguments of `_Reporter` except the last."""
    import pytest

    hook: Any = pytest.hookimpl
    kind: Any = _Reporter
    for name, options in _HOOKS.items():
        hook(**options)(vars(_Reporter)[name])
    return kind(*given, pytest)


class _Reporter:
    """Plugin with an outcome for each test: its exception, or None after its function returned."""

    def __init__(
        self,
        say: Callable[..., None],
        tests: dict[str, str],
        files: test_files.Files,
        whose: origins.Origins,
        begin: Callable[[], None],
        pytest: Any,
    ) -> None:
        self.say, self.tests, self.files, self.pytest = say, tests, files, pytest
        self.whose = whose
        self.begin, self.began = begin, False
        self.original: tamper_check.Original | None = None
        self.directory = os.getcwd()
        self.options: dict[str, Any] | None = None  # set when the collection starts
        self.unseen = {os.path.abspath(path) for path in files_to_collect(tests)}
        self.codes: dict[str, Any] = {}
        self.excused: set[str] = set()
        self.met: dict[str, BaseException | None] = {}

    # ------------------------------------------------------------ collection

    def pytest_load_initial_conftests(self) -> None:
        # Runs after pytest's own replacements and before the grader's first conftest.
        ours = (_Reporter, test_files.Files, tamper_check.Original, comparison_policy.Comparing)
        libraries = self.files.import_libraries()
        patching = comparison_policy.speak_of("patch", self.tests.values())
        self.original = tamper_check.Original(ours, libraries, self.whose, patching)
        self.began = True
        self.begin()
        self.files.open()

    def pytest_collection(self, session: Any) -> None:
        script.find_files(self.directory)  # only now: pytest imports until here
        self.options = dict(vars(session.config.option))

    def pytest_plugin_registered(self, plugin: Any) -> None:
        named = os.path.basename(getattr(plugin, "__file__", None) or "") == "conftest.py"
        if (named or self.options is not None) and not self.files.filled(plugin):
            self.say("patched", "a plugin")

    def pytest_make_collect_report(self, collector: Any) -> Any:
        work_files.write_files(self.tests)  # earlier imports may have changed the files
        outcome = yield
        report = outcome.get_result()
        path = str(collector.path)
        self.unseen.discard(path)
        if report.outcome == "passed":
            is_module = isinstance(collector, self.pytest.Module) and path in self.files
            if is_module and not self.files.filled(collector.obj):
                self.say("patched", "a test file")
            return
        error = report.call.excinfo.value
        # Before pytest 8.1, an exit counts as an error of the file.
        if isinstance(error, (SystemExit, KeyboardInterrupt, self.pytest.exit.Exception)):
            self.say("left")
        # A test file may skip itself; the submission may not skip a test file.
        elif report.outcome == "failed" or not self.skips_itself(error):
            cause = error.__cause__ or error
            self.say("broken", *origins.failure_texts(cause, self.whose, loading=True))

    def skips_itself(self, error: BaseException) -> bool:
        own, entry = False, error.__traceback__
        while entry is not None and self.original is not None:
            code, entry = entry.tb_frame.f_code, entry.tb_next
            own = self.files.wrote(code) or (own and self.original.has(code))
        return own

    def pytest_collection_finish(self, session: Any) -> None:
        for item in session.items:
            self.codes[item.nodeid] = _code(item)
            if any(item.get_closest_marker(name) for name in _EXCUSES) or _is_skipped(item):
                self.excused.add(item.nodeid)
        if self.unseen and not session.testsfailed:  # with -x, a broken file is the last
            self.say("patched", "what is collected")
        options, before = vars(session.config.option), self.options or {}
        if any(options.get(name) is not value for name, value in before.items()):
            self.say("patched", "an option")
        self.say("collected", len(session.items))

    # ------------------------------------------------------------ one test

    def pytest_runtest_setup(self, item: Any) -> Any:
        outcome = yield
        if outcome.excinfo is not None:
            self.met[item.nodeid] = outcome.excinfo[1]

    def pytest_runtest_call(self, item: Any) -> Any:
        self.check(item)
        outcome = yield
        self.check(item)
        found = getattr(item, "_excinfo", None)  # set by unittest.TestCase
        if found:
            self.met[item.nodeid] = found[0].value
        elif outcome.excinfo is not None:
            self.met[item.nodeid] = outcome.excinfo[1]
        elif not isinstance(item, self.pytest.Function) or hasattr(item, "addSuccess"):
            self.met.setdefault(item.nodeid, None)

    def pytest_pyfunc_call(self, pyfuncitem: Any) -> object:
        function = pyfuncitem.obj
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        result = function(**arguments)
        if isinstance(result, types.CoroutineType):
            import asyncio  # imported here: slow to import, and most runs need no event loop

            asyncio.run(result)
        self.met.setdefault(pyfuncitem.nodeid, None)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        # Failures without an exception: a subtest, or a test that passed against expectation.
        if report.failed and report.when == "call" and self.met.get(report.nodeid) is None:
            self.met[report.nodeid] = AssertionError("a part of the test failed")

    def pytest_runtest_teardown(self, item: Any) -> Any:
        outcome = yield
        name = item.nodeid
        if name not in self.met:
            self.say("patched", "what calls a test")
            self.met[name] = AssertionError("the test was not called")
        error = self.met.pop(name)
        if error is None and outcome.excinfo is not None:
            error = outcome.excinfo[1]
        result = "passed" if error is None else "failed"
        if error is not None and name in self.excused:
            result = "excused"
        told = origins.failure_texts(error, self.whose, loading=False)
        self.say("test", name[:500], result, *told)

    def check(self, item: Any) -> None:
        changed = self.original.changed() if self.original else "the start"
        if changed is None and _code(item) is not self.codes.get(item.nodeid):
            changed = "a test"
        if changed is not None:
            self.say("patched", changed[:_TEXT])

    # ------------------------------------------------------------ an early end

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        # pytest itself raises Interrupted to stop.
        if not isinstance(excinfo.value, self.pytest.Session.Interrupted):
            self.say("left")

    def pytest_internalerror(self, excinfo: Any) -> None:
        if isinstance(excinfo.value, (SystemExit, self.pytest.exit.Exception)):
            self.say("left")


def _is_skipped(item: Any) -> bool:
    """Tell whether unittest skips the test or expects a failure."""
    parts = [
        getattr(item, "function", None),
        *(node.obj for node in item.listchain() if hasattr(node, "obj")),
    ]
    return any(
        getattr(part, "__unittest_skip__", False)
        or getattr(part, "__unittest_expecting_failure__", False)
        for part in parts
    )


def _code(item: Any) -> Any:
    return getattr(getattr(item, "function", None), "__code__", None)
