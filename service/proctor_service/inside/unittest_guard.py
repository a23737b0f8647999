"""Keeps the submission from skipping the tests of unittest that call it.

`unittest.SkipTest` out of a test's own code skips the test. Out of the submission's it is a failure.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .origins import Origins

_CALLS = ("_callSetUp", "_callTestMethod", "_callTearDown", "_callCleanup")
_TEXT = "the program skips its test"


def guard(origins: Origins) -> None:
    """Changes the classes of unittest."""
    import unittest  # dear, and most runs need none

    def is_foreign(error: BaseException | None) -> bool:
        return isinstance(error, unittest.SkipTest) and origins.passed_submission(error)

    def calling(plain: Callable[..., Any]) -> Callable[..., Any]:
        def called(case: Any, *args: Any, **named: Any) -> Any:
            try:
                return plain(case, *args, **named)
            except unittest.SkipTest as error:
                if is_foreign(error):
                    raise AssertionError(_TEXT) from None
                raise

        return called

    case: Any = unittest.TestCase
    for name in _CALLS:
        if hasattr(case, name):
            setattr(case, name, calling(getattr(case, name)))
    _guard_subtests(case, is_foreign)
    _guard_skips(unittest.TestResult, is_foreign)


def _guard_subtests(case: Any, is_foreign: Callable[[BaseException], bool]) -> None:
    from unittest import SkipTest

    plain = case.subTest

    @contextlib.contextmanager
    def subTest(self: Any, *args: Any, **named: Any) -> Iterator[None]:
        with plain(self, *args, **named):
            try:
                yield
            except SkipTest as error:
                if is_foreign(error):
                    raise AssertionError(_TEXT) from None
                raise

    case.subTest = subTest


def _guard_skips(result: Any, is_foreign: Callable[[BaseException | None], bool]) -> None:
    """For what is skipped outside of a test: by setUpClass and setUpModule."""
    plain = result.addSkip

    def addSkip(self: Any, test: Any, reason: str) -> None:
        error = sys.exc_info()
        if is_foreign(error[1]):
            self.addError(test, error)
        else:
            plain(self, test, reason)

    result.addSkip = addSkip
