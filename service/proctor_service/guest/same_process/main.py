"""Runner for test code in the submission's interpreter, like a Python file with both.

The submission is loaded as the module `solution`. Setup and tests then run in its globals under the
name `__main__`, as if appended to the submission. Before any code of the submission runs, all test
code is compiled (`test_code.py`), and the code that runs the tests is recorded (`tamper_check.py`).
Every report after the start begins with a secret word.

Send the start of the submission, then `["test", name, outcome, hint, text]` for each test, with an
outcome of passed, failed, raised or exit, and `["finished", end, status]`. Other lines:
`["unusable", reason]` before anything else if the tests are at fault, the reports of `script.load`
for a submission that fails to load, `["patched", name]`, and `["lied"]`.
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
    """Run the tests and end the process."""
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
    # While submission and tests run, no name leads to the secret word that proves the end.
    finish(say, job.pop("end"), tests.run(_load(say, job["source"])))


def _load(say: Callable[..., None], source: str) -> dict[str, Any]:
    """Run the submission's top level as the module `solution` and return its globals."""
    script.find_files(os.getcwd())
    try:
        module = script.load(say, source, "solution", tests_behind=True)
    except script.Left:
        script.leave(1)
    # From here on, the module is the file with submission and tests.
    sys.modules["__main__"] = sys.modules["solution"] = module
    module.__dict__.update(__name__="__main__", __builtins__=builtins)
    return module.__dict__


class _Tests:
    """Compiled tests with their checks.

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
        self._guard = comparison_policy.Comparing(lambda: say("lied"), self._origins, texts)
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
        # Importing pytest loads unittest.
        if comparison_policy.speak_of("unittest", texts) or "unittest" in sys.modules:
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
        patching = comparison_policy.speak_of("patch", texts)
        self._original = tamper_check.Original(ours, libraries, self._origins, patching)

    def _defines(self, cls: type) -> bool:
        """Tell whether the tests define a class."""
        functions = [part for part in vars(cls).values() if type(part) is types.FunctionType]
        return not functions or any(
            self._origins.own(each.__code__, each.__globals__) for each in functions
        )

    def run(self, namespace: dict[str, Any]) -> int:
        """Run all tests; return 0 if all passed, else 1."""
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
        """Return a test's exception, or an AssertionError for a failed and caught assertion."""
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
        # pytest's `Failed` does not derive from AssertionError.
        is_failure = isinstance(error, AssertionError) or type(error).__name__ == "Failed"
        return "failed" if is_failure else "raised"


def _failure(result: Any, raised: list[BaseException]) -> BaseException:
    problem = [*result.failures, *result.errors][0][1]
    return AssertionError(f"{len(raised)} of {result.testsRun} tests: {problem}")
