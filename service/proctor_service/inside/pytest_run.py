"""Runs pytest on the grader's files beside the submission, and reports each test as it ends.

Tests and submission share an interpreter here, which is why this grader is `in_process`. What can be
done about it: pytest is loaded, and what runs a test is noted (`harness.py`), before the submission can
be imported; outcomes are taken where the test function is called, not from pytest's reports; only the
grader's own files configure the run; and every line carries a word that nothing else knows.

Says `["collected", n]`, `["test", name, outcome, hint, text]` for each, `["finished", status]`. Of the two
texts, the hint holds nothing that comes from a test. Instead, or in between: `["no pytest", why]`,
`["syntax", why]`, `["broken", hint, text]` for a file that can't be collected, `["left"]` when something
ended pytest, and `["patched", what]`.
"""

import asyncio
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from . import harness, script, values
from .channel import Channel

_SETTINGS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml",
             "tox.ini", "setup.cfg")  # fmt: skip
_EXCUSES = ("skip", "skipif", "xfail")
_TEXT = 2000

Say = Callable[..., None]


def run_pytest(channel: Channel, job: dict[str, Any]) -> None:
    """Runs the tests and ends the process."""
    say = _speaker(channel.send, job.pop("word"))
    sys.path.extend(job["tools"])
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        import pytest

        original = harness.Original()
    except ImportError as error:
        say("no pytest", script.describe(error))
        script.leave(1)
    try:
        compile(job["source"], "solution.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError) as error:
        say("syntax", script.describe(error))
        script.leave(1)
    tests = job["tests"]
    own = {path: text for path, text in job["files"].items() if not _configures(path)}
    script.write_files({"solution.py": job["source"], **own, **tests})
    directory = os.getcwd()
    sys.path.insert(0, directory)
    sys.argv = ["pytest"]
    reporter = _make_reporter(say, original, tests)
    status = int(pytest.main([*_options(directory, tests), *_files(tests)], plugins=[reporter]))
    say("finished", status)
    script.leave(status)


def _speaker(send: Callable[[bytes], None], word: str) -> Say:
    dumps = values.dumps
    return lambda *parts: send(dumps([word, *parts]))


def _configures(path: str) -> bool:
    return os.path.basename(path) in ("conftest.py", *_SETTINGS)


def _options(directory: str, tests: dict[str, str]) -> list[str]:
    settings = next((name for name in _SETTINGS if name in tests), "/dev/null")
    return ["-q", "-p", "no:cacheprovider", "--color=no", "--rootdir", directory, "-c", settings]


def _files(tests: dict[str, str]) -> list[str]:
    """The files to collect: those named like tests; where none is, all."""
    modules = [path for path in sorted(tests) if path.endswith(".py") and not _configures(path)]
    named = [path for path in modules if _is_test(os.path.basename(path))]
    return [f"./{path}" for path in named or modules]


def _is_test(name: str) -> bool:
    return name.startswith("test_") or name.endswith("_test.py")


def _make_reporter(say: Say, original: harness.Original, tests: dict[str, str]) -> object:
    import pytest

    own_conftests = {os.path.realpath(path) for path in tests if path.endswith("conftest.py")}
    Class, Function = pytest.Class, pytest.Function
    Exit, Interrupted = pytest.exit.Exception, pytest.Session.Interrupted

    class Reporter:
        """Outcomes by item: the error that a test met, or None once its function has ended well."""

        def __init__(self) -> None:
            self.collecting = False
            self.codes: dict[str, Any] = {}
            self.excused: set[str] = set()
            self.met: dict[str, BaseException | None] = {}

        # ------------------------------------------------------------ collection

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection(self) -> None:
            self.collecting = True

        def pytest_plugin_registered(self, plugin: Any) -> None:
            path = getattr(plugin, "__file__", None)
            if self.collecting and (not path or os.path.realpath(path) not in own_conftests):
                say("patched", "a plugin")

        @pytest.hookimpl(tryfirst=True)
        def pytest_pycollect_makemodule(self) -> None:
            script.write_files(tests)  # what was imported before may have changed them

        @pytest.hookimpl(tryfirst=True)
        def pytest_exception_interact(self, node: Any, call: Any) -> None:
            if not isinstance(node, pytest.Item):
                error = call.excinfo.value
                say("broken", *_texts(error.__cause__ or error))

        @pytest.hookimpl(trylast=True)
        def pytest_collection_finish(self, session: Any) -> None:
            for item in session.items:
                self.codes[item.nodeid] = _code(item)
                if any(item.get_closest_marker(name) for name in _EXCUSES) or _is_skipped(item):
                    self.excused.add(item.nodeid)
            say("collected", len(session.items))

        # ------------------------------------------------------------ one test

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_setup(self, item: Any) -> Any:
            outcome = yield
            if outcome.excinfo is not None:
                self.met[item.nodeid] = outcome.excinfo[1]

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_call(self, item: Any) -> Any:
            self.look(item)
            outcome = yield
            self.look(item)
            found = getattr(item, "_excinfo", None)  # of a unittest.TestCase
            if found:
                self.met[item.nodeid] = found[0].value
            elif outcome.excinfo is not None:
                self.met[item.nodeid] = outcome.excinfo[1]
            elif not isinstance(item, Function) or hasattr(item, "addSuccess"):
                self.met.setdefault(item.nodeid, None)

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(self, pyfuncitem: Any) -> object:
            function = pyfuncitem.obj
            names = pyfuncitem._fixtureinfo.argnames
            arguments = {name: pyfuncitem.funcargs[name] for name in names}
            result = function(**arguments)
            if inspect.iscoroutine(result):
                asyncio.run(result)
            self.met[pyfuncitem.nodeid] = None
            return True

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_teardown(self, item: Any) -> Any:
            outcome = yield
            name = item.nodeid
            if name not in self.met:
                say("patched", "what calls a test")
                self.met[name] = AssertionError("the test was not called")
            error = self.met.pop(name)
            if error is None and outcome.excinfo is not None:
                error = outcome.excinfo[1]
            result = "passed" if error is None else "failed"
            if error is not None and name in self.excused:
                result = "excused"
            say("test", name[:500], result, *_texts(error))

        def look(self, item: Any) -> None:
            changed = original.changed()
            if changed is None and _code(item) is not self.codes.get(item.nodeid):
                changed = "a test"
            if changed is not None:
                say("patched", changed[:_TEXT])

        # ------------------------------------------------------------ an early end

        def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
            if not isinstance(excinfo.value, Interrupted):  # which is pytest's own way to stop
                say("left")

        def pytest_internalerror(self, excinfo: Any) -> None:
            if isinstance(excinfo.value, SystemExit | Exit):
                say("left")

    def _is_skipped(item: Any) -> bool:
        parts = [getattr(item, "function", None), *(p.obj for p in item.iter_parents() if isinstance(p, Class))]
        return any(
            getattr(part, "__unittest_skip__", False)
            or getattr(part, "__unittest_expecting_failure__", False)
            for part in parts
        )

    return Reporter()


def _code(item: Any) -> Any:
    return getattr(getattr(item, "function", None), "__code__", None)


def _texts(error: BaseException | None) -> tuple[str, str]:
    """What may be shown of an error whatever the grader says, and all of it."""
    if error is None:
        return "", ""
    name, message, *_ = script.explain(error)
    whole = f"{name}: {message}" if message else str(name)
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    path = frames.tb_frame.f_code.co_filename if frames is not None else ""
    # What the submission raises, or what its import does, knows no expected value.
    own = os.path.basename(path) == "solution.py" or isinstance(error, ImportError)
    return (whole if own else str(name))[:_TEXT], whole[:_TEXT]
