"""Runs of `unittest` test cases, with protection from skips by the submission.

`unittest` is large and few tests use it, so the import happens on demand.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .origins import Origins

_CALLS = ("_callSetUp", "_callTestMethod", "_callTearDown", "_callCleanup")


class Cases:
    """Test cases in `namespace`, the globals of the tests.

    `is_own` tells whether the tests define a class. `failure` makes the exception to raise, from a
    result and the exceptions of the failed tests; the default is the first of these exceptions.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        is_own: Callable[[type], bool],
        failure: Callable[[Any, list[BaseException]], BaseException] | None = None,
    ) -> None:
        self.namespace = namespace
        self._is_own = is_own
        self._failure = failure or (lambda result, raised: raised[0])

    def run(self, classes: Iterable[Any]) -> Any:
        """Run the test cases and return the result.

        Raises an exception unless all tests pass and at least one is not skipped.
        """
        import unittest

        raised: list[BaseException] = []

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


def guard_skips(origins: Origins) -> None:
    """Turn `unittest.SkipTest` from the submission into a failure; tests may skip themselves."""
    import unittest

    def is_foreign(error: BaseException | None) -> bool:
        return isinstance(error, unittest.SkipTest) and origins.passed_submission(error)

    def check(error: BaseException) -> None:
        if is_foreign(error):
            raise AssertionError("the program skips its test") from None

    def calling(plain: Callable[..., Any]) -> Callable[..., Any]:
        def called(case: Any, *args: Any, **named: Any) -> Any:
            try:
                return plain(case, *args, **named)
            except unittest.SkipTest as error:
                check(error)
                raise

        return called

    case: Any = unittest.TestCase
    for name in filter(case.__dict__.__contains__, _CALLS):
        setattr(case, name, calling(getattr(case, name)))
    plain_subtest, plain_skip = case.subTest, unittest.TestResult.addSkip

    @contextlib.contextmanager
    def subTest(self: Any, *args: Any, **named: Any) -> Iterator[None]:
        with plain_subtest(self, *args, **named):
            try:
                yield
            except unittest.SkipTest as error:
                check(error)
                raise

    def addSkip(self: Any, test: Any, reason: str) -> None:
        """Handle skips outside a test: from setUpClass and setUpModule."""
        error = sys.exc_info()
        if is_foreign(error[1]):
            self.addError(test, error)
        else:
            plain_skip(self, test, reason)

    case.subTest = subTest
    unittest.TestResult.addSkip = addSkip  # type: ignore[method-assign]
