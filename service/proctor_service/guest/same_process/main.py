"""Runs test code beside the submission in one interpreter, as plain Python does with a file of both.

The submission is loaded as the module `solution`. Setup and tests then run in its globals, under the name
`__main__`, as if they stood behind it. All of the test code is compiled (`test_code.py`), and what runs it
is noted (`harness.py`), before anything of the submission runs; every line carries a word that nothing
else knows.

Says that the submission begins, then `["test", name, outcome, hint, text]` for each test, its outcome one
of passed, failed, raised and exit; and `["finished", end, status]`. Instead, or in between:
`["unusable", why]` before anything else where the tests are at fault, what `script.load` says of a submission
that does not load, `["patched", what]`, and `["lied"]`.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from .. import origins, script, unittest_runs, work_files
from ..channel import BEGAN, Channel
from . import comparison_policy, tamper_check, test_code, test_files
from .pytest_run import finish, speaker, unusable


def run_shared(channel: Channel, job: dict[str, Any]) -> None:
    """Runs the tests and ends the process."""
    say = speaker(channel.send, job.pop("word"))
    sys.path.extend(job["tools"])
    work_files.write_files(job["files"])
    work_files.write_file("solution.py", work_files.to_bytes(job["source"]))
    sys.argv = ["solution.py"]
    try:
        tests = _Tests(say, job["setup"], job.pop("tests"))
    except test_code.Unusable as error:
        unusable(channel, str(error))
    channel.send(BEGAN)
    # While submission and tests run, the word that proves their end has no name that leads to it.
    finish(say, job.pop("end"), tests.run(_load(say, job["source"])))


def _load(say: Callable[..., None], source: str) -> dict[str, Any]:
    """Runs the submission's top level as the module `solution`; its globals."""
    sys.path.insert(0, os.getcwd())
    try:
        module = script.load(say, source, "solution", tests_behind=True)
    except script.Left:
        script.leave(1)
    # From here on it is the file that holds the tests as well.
    sys.modules["__main__"] = sys.modules["solution"] = module
    module.__dict__.update(__name__="__main__", __builtins__=builtins)
    return module.__dict__


class _Tests:
    """The tests, compiled, and what is needed to run them.

    Raises `test_code.Unusable`.
    """

    def __init__(self, say: Callable[..., None], setup: str, tests: list[dict[str, Any]]) -> None:
        texts = [setup, *(test["source"] for test in tests)]
        self._say = say
        self._writable = os.path.dirname(os.getcwd()) + "/"
        self._parts: set[int] = set()
        modules = (comparison_policy, test_code, unittest_runs)
        self._origins = origins.Origins(
            lambda code, namespace: id(code) in self._parts,
            self._writable,
            (globals(), *map(vars, modules)),
        )
        self._guard = comparison_policy.Comparing(
            lambda: say("lied"), self._origins, mocks=test_files.speak_of("mock", texts),
            numpy=test_files.speak_of("numpy", texts),
        )  # fmt: skip
        compiled = test_code.compile_tests(setup, tests, self._guard)
        self._setup, *self._tests = compiled
        for each in compiled:
            for code in each.codes():
                test_files.note(code, self._parts)
        self._definitions = test_code.Definitions(self._origins, compiled)
        self._cases = unittest_runs.Cases({}, self._defines, _failure)
        libraries = test_files.import_libraries(
            {name for each in compiled for name in each.imports}, {"solution"}
        )
        test_code.check_imports(compiled)
        if (
            test_files.speak_of("unittest", texts) or "unittest" in sys.modules
        ):  # as pytest loads it
            import unittest.mock

            self._guard.into_unittest(unittest.TestCase)
            unittest_runs.guard_skips(self._origins)
            self._cases.replace_main()
        ours = (
            _Tests,
            comparison_policy.Comparing,
            tamper_check.Original,
            unittest_runs.Cases,
            origins.Origins,
        )
        patching = test_files.speak_of("patch", texts)
        self._original = tamper_check.Original(ours, libraries, self._origins, patching)

    def _defines(self, cls: type) -> bool:
        """Tell whether the tests define a class."""
        functions = [part for part in vars(cls).values() if type(part) is types.FunctionType]
        return not functions or any(
            self._origins.own(each.__code__, each.__globals__) for each in functions
        )

    def run(self, namespace: dict[str, Any]) -> int:
        """Runs them all; 0 when all passed, else 1."""
        self._cases.namespace = namespace
        if self._original.changed() is not None:
            self._say("patched", self._original.changed())
        broken = self._error_of(self._setup, namespace)
        status = 0
        for index, test in enumerate(self._tests):
            error = broken or self._error_of(test, namespace)
            changed = self._original.changed() or self._definitions.replaced(namespace)
            if changed is not None:
                self._say("patched", changed[:300])
            outcome = self._outcome(error)
            status = status or int(outcome != "passed")
            hint, text = origins.failure_texts(error, self._origins, loading=False)
            self._say("test", str(index), outcome, hint, text)
        return status

    def _error_of(self, test: test_code.Test, namespace: dict[str, Any]) -> BaseException | None:
        """What a test raised; or an AssertionError where it failed and somebody else caught that."""
        failures = self._guard.failures
        try:
            test.execute(namespace)
            self._definitions.add(test)
            test.run(namespace, self._cases)
        except BaseException as error:
            return error
        if self._guard.failures != failures and not test.catches:
            return AssertionError("an assertion did not hold, and the program caught its exception")
        return None

    def _outcome(self, error: BaseException | None) -> str:
        if error is None:
            return "passed"
        if isinstance(error, SystemExit):
            if self._origins.passed_submission(error):
                return "exit"
            return "passed" if script.exit_code(error) == 0 else "failed"
        # pytest's failures are no AssertionErrors.
        is_failure = isinstance(error, AssertionError) or type(error).__name__ == "Failed"
        return "failed" if is_failure else "raised"


def _failure(result: Any, raised: list[BaseException]) -> BaseException:
    problem = [*result.failures, *result.errors][0][1]
    return AssertionError(f"{len(raised)} of {result.testsRun} tests: {problem}")
