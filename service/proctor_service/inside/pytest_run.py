"""Runs pytest on the grader's files beside the submission, and reports each test as it ends.

Tests and submission share an interpreter here, which is why this grader is `in_process`. What can be
done about it: pytest is loaded, what runs a test is noted (`harness.py`), and the grader's files are
compiled (`testfiles.py`), before anything can be imported from where the submission may write; outcomes
are taken where the test function is called, not from pytest's reports; only the grader's own files
configure the run; and every line carries a word that nothing else knows.

Says `["ready"]`, `["collected", n]`, `["test", name, outcome, hint, text]` for each, `["finished", end,
status]`. Of the two texts, the hint holds nothing that comes from a test. Instead, or in between:
`["no pytest", why]`, `["syntax", why]`, `["broken", hint, text]` for a file that can't be collected,
`["left"]` when something ended pytest, `["patched", what]`, and `["lied"]` where an object said that it
equals whatever it is compared with.
"""

import os
import sys
import types
from collections.abc import Callable
from typing import Any

from . import comparing, harness, origins, script, testfiles, values
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
    except ImportError as error:
        say("no pytest", script.describe(error))
        script.leave(1)
    say("ready")  # nobody can say the other from here on
    source, tests = job["source"], job["tests"]
    try:
        compile(source or "", "solution.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError) as error:
        say("syntax", script.describe(error))
        script.leave(1)
    own = {path: text for path, text in job["files"].items() if not _configures(path)}
    if source is not None:
        own = {"solution.py": source, **own}
    script.write_files({**own, **tests})
    _remove_conftests(tests)
    directory = os.getcwd()
    sys.argv = ["pytest"]
    rewriter = sys.modules["_pytest.assertion.rewrite"]
    whose = origins.Origins(
        lambda namespace: files.ran(namespace), os.path.dirname(directory) + "/"
    )
    guard = comparing.Comparing(lambda: say("lied"), whose, testfiles.speak_of("mock", tests))
    files = testfiles.Files(tests, directory, rewriter.rewrite_asserts, guard)
    guard.into_unittest(sys.modules["unittest"].TestCase)
    sys.meta_path.insert(0, files)
    reporter = _make_reporter(say, tests, files, whose)
    options = [*_options(directory, tests), *_files(tests)]
    # While the tests run, the word that proves their end has no name that leads to it.
    _finish(say, job.pop("end"), int(pytest.main(options, plugins=[reporter])))


def _finish(say: Say, end: str, status: int) -> None:
    say("finished", end, status)
    script.leave(status)


def _speaker(send: Callable[[bytes], None], word: str) -> Say:
    dumps = values.dumps
    return lambda *parts: send(dumps([word, *parts]))


def _configures(path: str) -> bool:
    return os.path.basename(path) in ("conftest.py", *_SETTINGS)


def _remove_conftests(tests: dict[str, str]) -> None:
    """Where pytest would look for them; those of the grader stay."""
    folders = {""}
    for path in tests:
        while path := path.rpartition("/")[0]:
            folders.add(f"{path}/")
    for folder in folders:
        if f"{folder}conftest.py" not in tests:
            script.remove(f"{folder}conftest.py")


def _options(directory: str, tests: dict[str, str]) -> list[str]:
    settings = next((name for name in _SETTINGS if name in tests), "/dev/null")
    places = ["--rootdir", directory, "--confcutdir", directory, "-c", settings]
    # The files were rewritten already; pytest's own way to do it looks for caches beside them.
    return ["-q", "-p", "no:cacheprovider", "--color=no", "--assert=plain", *places]


def _files(tests: dict[str, str]) -> list[str]:
    """The files to collect: those named like tests; where none is, all."""
    modules = [path for path in sorted(tests) if path.endswith(".py") and not _configures(path)]
    named = [path for path in modules if _is_test(os.path.basename(path))]
    return [f"./{path}" for path in named or modules]


def _is_test(name: str) -> bool:
    return name.startswith("test_") or name.endswith("_test.py")


# What pytest.hookimpl is to mark, once pytest is there.
_WRAPPERS = (
    "pytest_make_collect_report",
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
)
_FIRST = ("pytest_collection", "pytest_pyfunc_call")
_LAST = ("pytest_collection_finish",)


def _make_reporter(
    say: Say, tests: dict[str, str], files: testfiles.Files, whose: origins.Origins
) -> object:
    import pytest

    marks: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
        (_WRAPPERS, {"hookwrapper": True, "tryfirst": True}),
        (_FIRST, {"tryfirst": True}),
        (_LAST, {"trylast": True}),
    )
    for names, options in marks:
        for name in names:
            pytest.hookimpl(**options)(vars(_Reporter)[name])
    return _Reporter(say, tests, files, whose, pytest)


class _Reporter:
    """Outcomes by item: the error that a test met, or None once its function has ended well."""

    def __init__(
        self,
        say: Say,
        tests: dict[str, str],
        files: testfiles.Files,
        whose: origins.Origins,
        pytest: Any,
    ) -> None:
        self.say, self.tests, self.files, self.pytest = say, tests, files, pytest
        self.whose = whose
        self.original: harness.Original | None = None
        self.directory = os.getcwd()
        self.options: dict[str, Any] | None = None  # when the collection began
        self.unseen = {os.path.abspath(path) for path in _files(tests)}
        self.codes: dict[str, Any] = {}
        self.excused: set[str] = set()
        self.met: dict[str, BaseException | None] = {}

    # ------------------------------------------------------------ collection

    def pytest_load_initial_conftests(self) -> None:
        # Before the first conftest of the grader, but after what pytest itself replaces.
        ours = (_Reporter, testfiles.Files, harness.Original, comparing.Comparing)
        libraries = self.files.import_libraries()
        patching = testfiles.speak_of("patch", self.tests)
        self.original = harness.Original(ours, libraries, self.whose, patching)
        self.files.open()

    def pytest_collection(self, session: Any) -> None:
        sys.path.insert(0, self.directory)  # not before: pytest still imports until here
        self.options = dict(vars(session.config.option))

    def pytest_plugin_registered(self, plugin: Any) -> None:
        named = os.path.basename(getattr(plugin, "__file__", None) or "") == "conftest.py"
        if (named or self.options is not None) and not self.files.filled(plugin):
            self.say("patched", "a plugin")

    def pytest_make_collect_report(self, collector: Any) -> Any:
        script.write_files(self.tests)  # what was imported before may have changed them
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
        if isinstance(error, self.pytest.exit.Exception):
            self.say("left")
        # A test file may skip itself, and the submission may not skip it.
        elif report.outcome == "failed" or not self.skips_itself(error):
            self.say("broken", *self.texts(error.__cause__ or error))

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
        if self.unseen and not session.testsfailed:  # with -x, a broken file is the last one
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
        self.look(item)
        outcome = yield
        self.look(item)
        found = getattr(item, "_excinfo", None)  # of a unittest.TestCase
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
            import asyncio  # dear, and most runs need none

            asyncio.run(result)
        self.met.setdefault(pyfuncitem.nodeid, None)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        # What no exception tells: a subtest, or a test that was to fail and did not.
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
        self.say("test", name[:500], result, *self.texts(error))

    def look(self, item: Any) -> None:
        changed = self.original.changed() if self.original else "the start"
        if changed is None and _code(item) is not self.codes.get(item.nodeid):
            changed = "a test"
        if changed is not None:
            self.say("patched", changed[:_TEXT])

    # ------------------------------------------------------------ what may be told

    def texts(self, error: BaseException | None) -> tuple[str, str]:
        """What may be shown of an error whatever the grader says, and all of it."""
        if error is None:
            return "", ""
        name, message, *_ = script.explain(error)
        whole = f"{name}: {message}" if message else str(name)
        # What the submission raises, or what importing it does, knows no expected value.
        own = isinstance(error, ImportError) or self.is_of_submission(error)
        return (whole if own else str(name))[:_TEXT], whole[:_TEXT]

    def is_of_submission(self, error: BaseException) -> bool:
        """Whether it came out of a file that the submission may have written."""
        found, entry = False, error.__traceback__
        while entry is not None:
            code, entry = entry.tb_frame.f_code, entry.tb_next
            if self.files.wrote(code):
                found = False
            elif code.co_filename.startswith(os.path.dirname(self.directory) + "/"):
                found = True
        return found

    # ------------------------------------------------------------ an early end

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        # Interrupted is pytest's own way to stop.
        if not isinstance(excinfo.value, self.pytest.Session.Interrupted):
            self.say("left")

    def pytest_internalerror(self, excinfo: Any) -> None:
        if isinstance(excinfo.value, SystemExit | self.pytest.exit.Exception):
            self.say("left")


def _is_skipped(item: Any) -> bool:
    """Whether unittest is to skip it, or expects it to fail."""
    parts = [
        getattr(item, "function", None),
        *(p.obj for p in item.iter_parents() if hasattr(p, "obj")),
    ]
    return any(
        getattr(part, "__unittest_skip__", False)
        or getattr(part, "__unittest_expecting_failure__", False)
        for part in parts
    )


def _code(item: Any) -> Any:
    return getattr(getattr(item, "function", None), "__code__", None)
