"""Running the ``unittest`` test cases of test code, so that their result counts.

``unittest`` is imported only where tests use it: few do, and it is large.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any


def run_cases(cases: Iterable[Any]) -> Any:
    """Return the result of test cases. Raises the first exception of a test, or ``AssertionError``."""
    import unittest

    failures: list[BaseException] = []

    class Result(unittest.TextTestResult):
        """Remembers the exceptions by which tests did not pass."""

        def addError(self, test: Any, err: Any) -> None:
            failures.append(err[1])
            super().addError(test, err)

        def addFailure(self, test: Any, err: Any) -> None:
            failures.append(err[1])
            super().addFailure(test, err)

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
            failures.extend([] if err is None else [err[1]])
            super().addSubTest(test, subtest, err)

    loader = unittest.TestLoader()
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)
    kind: Any = Result
    result: Any = unittest.TextTestRunner(stream=io.StringIO(), resultclass=kind).run(suite)
    if not result.wasSuccessful():
        raise failures[0] if failures else AssertionError("a test case did not pass")
    if result.testsRun <= len(result.skipped):
        raise AssertionError("no test ran")
    return result


def replace_main(namespace: dict[str, Any]) -> None:
    """Have ``unittest.main`` run the test cases of a namespace, and never exit."""
    import unittest

    class Main:
        """Stands for ``unittest.main``."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.result = run_cases(
                value
                for value in list(namespace.values())
                if isinstance(value, type)
                and issubclass(value, unittest.TestCase)
                and value.__module__ == "__main__"
            )

    unittest.main = Main  # type: ignore[assignment]
