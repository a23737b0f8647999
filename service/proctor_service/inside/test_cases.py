"""Runs classes of `unittest.TestCase` that test code defines."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

from .origins import Origins


class Cases:
    """The test cases of the tests' globals, `namespace`."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self.namespace: dict[str, Any] = {}

    def run(self, classes: Sequence[Any]) -> Any:
        """Their result. Raises AssertionError unless all pass, and one test at least was not skipped."""
        import unittest

        suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, classes))
        result = unittest.TestResult()
        suite.run(result)
        problems = [*result.failures, *result.errors]
        if problems:
            raise AssertionError(f"{len(problems)} of {result.testsRun} tests: {problems[0][1]}")
        if not result.wasSuccessful():
            raise AssertionError("a test passed that was expected to fail")
        if result.testsRun <= len(result.skipped):
            raise AssertionError("no test ran")
        return result

    def of_tests(self) -> list[Any]:
        """The classes that the tests define, in the order of their names' first use."""
        import unittest

        return [
            value
            for value in dict.fromkeys(
                each for each in self.namespace.values() if isinstance(each, type)
            )
            if issubclass(value, unittest.TestCase) and self._is_own(value)
        ]

    def _is_own(self, cls: type) -> bool:
        functions = [part for part in vars(cls).values() if type(part) is types.FunctionType]
        return not functions or any(
            self._origins.own(each.__code__, each.__globals__) for each in functions
        )

    def replace_main(self) -> None:
        """Makes `unittest.main` run these classes, and never end the process."""
        import unittest

        def main(*_: Any, **__: Any) -> Any:
            return types.SimpleNamespace(result=self.run(self.of_tests()))

        for module in (unittest, sys.modules["unittest.main"]):
            for name in ("main", "TestProgram"):
                if isinstance(getattr(module, name, None), type):
                    setattr(module, name, main)
