"""Runs of `unittest` test cases. `unittest` is large and rarely used by tests: the import is on demand."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from typing import Any


class Cases:
    """Test cases in `namespace`, the globals of the tests.

    `is_own` tells whether the tests define a class. `failure` makes the exception to raise, from a result
    and the exceptions of the failed tests; the default is the first of these exceptions. `is_foreign`
    tells whether an exception comes from the submission, which may skip no test.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        is_own: Callable[[type], bool],
        failure: Callable[[Any, list[BaseException]], BaseException] | None = None,
        is_foreign: Callable[[BaseException], bool] = lambda error: False,
    ) -> None:
        self.namespace = namespace
        self._is_own = is_own
        self._failure = failure or (lambda result, raised: raised[0])
        self._is_foreign = is_foreign

    def run(self, classes: Iterable[Any]) -> Any:
        """Run the test cases and return the result.

        Raises an exception if a test fails, or without a test run to its end.
        """
        import unittest

        raised: list[BaseException] = []
        is_foreign = self._is_foreign

        class Result(unittest.TestResult):
            """Result with the exceptions of failed tests."""

            def addError(self, test: Any, err: Any) -> None:
                raised.append(err[1])
                super().addError(test, err)

            def addFailure(self, test: Any, err: Any) -> None:
                raised.append(err[1])
                super().addFailure(test, err)

            def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
                raised.extend([] if err is None else [err[1]])
                super().addSubTest(test, subtest, err)

            def addSkip(self, test: Any, reason: str) -> None:
                error: Any = sys.exc_info()
                if isinstance(error[1], unittest.SkipTest) and is_foreign(error[1]):
                    self.addError(test, error)
                else:
                    super().addSkip(test, reason)

        suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, classes))
        result = Result()
        suite.run(result)
        if raised:
            raise self._failure(result, raised)
        if not result.wasSuccessful():
            raise AssertionError("a test passed that was expected to fail")
        if result.testsRun <= len(result.skipped):
            raise AssertionError("no test ran")
        return result

    def replace_main(self) -> None:
        """Make `unittest.main` run the tests' own classes without ending the process."""
        import unittest

        def main(*_: Any, **__: Any) -> Any:
            defined = dict.fromkeys(v for v in self.namespace.values() if isinstance(v, type))
            cases = [each for each in defined if issubclass(each, unittest.TestCase)]
            return types.SimpleNamespace(result=self.run(filter(self._is_own, cases)))

        for module in (unittest, sys.modules["unittest.main"]):
            vars(module).update(main=main, TestProgram=main)
