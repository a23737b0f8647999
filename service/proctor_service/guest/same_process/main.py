"""Runner for test code in the submission's interpreter, as a single file with setup, submission and tests.

Setup independent of the submission runs first, then the submission as the module `solution`, then other
setup and the tests, all in the same globals. The tests see these under the name `__main__`. All test code
is compiled before any runs (`suite_code.py`). Every report after the start begins with a secret word.

Send the start of the submission, `["loaded"]`, then `["test", name, outcome, hint, text]` for each test,
with an outcome of passed, failed, raised or exit, and `["finished", end, status]`. Other lines:
`["unusable", reason]` before anything else if the tests are at fault, and the reports of `script.execute`
if the submission fails to load.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any

from .. import origins, script, unittest_runs, work_files
from ..channel import Channel
from . import suite_code
from .pytest_run import finish, speaker, unusable


def run_shared(channel: Channel, job: dict[str, Any]) -> None:
    """Run the tests and end the process."""
    say = speaker(channel.send, job.pop("word"))
    sys.path.extend(job["tools"])
    work_files.write_files(job["files"])
    work_files.write_file("solution.py", work_files.to_bytes(job["source"]))
    sys.argv = ["solution.py"]
    try:
        tests = _Tests(say, job["before"], job["setup"], job.pop("tests"))
    except suite_code.Unusable as error:
        unusable(channel, str(error))
    channel.began()
    script.find_files(os.getcwd())
    # While submission and tests run, no name leads to the secret word that proves the end.
    finish(say, job.pop("end"), tests.run(job["source"]))


class _Tests:
    """Compiled tests. Raises `suite_code.Unusable`."""

    def __init__(
        self, say: Callable[..., None], before: str, setup: str, tests: list[dict[str, Any]]
    ) -> None:
        self._say = say
        compiled = suite_code.compile_tests(before, setup, tests)
        self._before, self._setup, *self._tests = compiled
        parts = {id(code) for each in compiled for code in each.codes()}
        writable = os.path.dirname(os.getcwd()) + "/"
        runner = globals(), vars(suite_code), vars(unittest_runs)
        self._origins = origins.Origins(lambda code: id(code) in parts, writable, *runner)
        self._cases = unittest_runs.Cases(
            {}, self._defines, _failure, self._origins.passed_submission
        )
        self._has_cases = any("unittest" in text for text in (before, setup)) or any(
            "unittest" in test["source"] for test in tests
        )
        suite_code.check_imports(compiled)

    def _defines(self, cls: type) -> bool:
        """Tell whether the tests define a class."""
        functions = [part for part in vars(cls).values() if type(part) is types.FunctionType]
        return not functions or any(self._origins.own(each.__code__) for each in functions)

    def run(self, source: str) -> int:
        """Run setup, submission and all tests; return 0 if all tests passed, else 1."""
        module, path = script.new_module("solution")
        namespace = module.__dict__
        broken = self._error_of(self._before, namespace)
        if broken is None:
            try:
                script.execute(self._say, source, path, namespace, tests_behind=True)
            except script.Left:
                script.leave(1)
        # From here on, the module is the file with submission and tests.
        sys.modules["__main__"] = sys.modules["solution"] = module
        namespace["__name__"] = "__main__"
        self._cases.namespace = namespace
        if self._has_cases:
            self._cases.replace_main()
        broken = broken or self._error_of(self._setup, namespace)
        self._say("loaded")
        status = 0
        for index, test in enumerate(self._tests):
            error = broken or self._error_of(test, namespace)
            outcome = self._outcome(error, broken=broken is not None)
            status = status or int(outcome != "passed")
            hint, text = origins.failure_texts(error, self._origins, loading=False)
            self._say("test", str(index), outcome, hint, text)
        return status

    def _error_of(self, test: suite_code.Test, namespace: dict[str, Any]) -> BaseException | None:
        try:
            test.run(namespace, self._cases)
        except BaseException as error:
            return error
        return None

    def _outcome(self, error: BaseException | None, *, broken: bool) -> str:
        if error is None:
            return "passed"
        if isinstance(error, SystemExit):
            if self._origins.passed_submission(error):
                return "exit"
            return "failed" if broken or script.exit_code(error) else "passed"
        # pytest's `Failed` does not derive from AssertionError.
        is_failure = isinstance(error, AssertionError) or type(error).__name__ == "Failed"
        return "failed" if is_failure else "raised"


def _failure(result: Any, raised: list[BaseException]) -> BaseException:
    problem = [*result.failures, *result.errors][0][1]
    return AssertionError(f"{len(raised)} of {result.testsRun} tests: {problem}")
