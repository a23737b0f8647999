"""Calls of test functions: whether the function itself was called, and how it ended."""

import functools
import inspect
from types import MethodType
from typing import Any, Callable, Optional

RETURNED = "passed"
NOT_CALLED = "none"


def outcome_of(error: BaseException) -> str:
    """The outcome that an exception of a test means."""
    names = {each.__name__ for each in type(error).__mro__}
    modules = {each.__module__.partition(".")[0] for each in type(error).__mro__}
    if names & {"Skipped", "SkipTest"} and modules & {"_pytest", "unittest"}:
        return "skipped"
    return "failed"


def awaits(case: Any) -> bool:
    """Return True for a test case whose class awaits its test methods."""
    return any(each.__name__ == "IsolatedAsyncioTestCase" for each in type(case).__mro__)


class Observation:
    """How the call of one test function ended: `raw` is an outcome, or `none` without a call.

    `when_failed` is called at once, before anything else learns of the failure.
    """

    __slots__ = ("_when_failed", "raw")

    def __init__(self, when_failed: Callable[[], None]) -> None:
        self.raw = NOT_CALLED
        self._when_failed = when_failed

    def ended(self, error: Optional[BaseException]) -> None:
        """Note the end of a call; of several calls a failed one counts."""
        if self.raw != "failed":
            self.raw = RETURNED if error is None else outcome_of(error)
            if self.raw == "failed":
                self._when_failed()

    def watched(self, function: Callable[..., Any], is_awaited: bool = True) -> Callable[..., Any]:
        """Return a function that calls `function` and notes how it ended; a method for a method.

        `is_awaited` is False where the framework awaits no coroutine: the call alone counts then.
        """
        if isinstance(function, MethodType):
            plain = self.watched(function.__func__, is_awaited)
            return MethodType(plain, function.__self__)
        if is_awaited and inspect.iscoroutinefunction(function):

            async def call_async(*args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                try:
                    value = await function(*args, **kwargs)
                except BaseException as error:
                    self.ended(error)
                    raise
                self.ended(None)
                return value

            return self._named(call_async, function)

        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            try:
                value = function(*args, **kwargs)
            except BaseException as error:
                self.ended(error)
                raise
            self.ended(None)
            return value

        return self._named(call, function)

    @staticmethod
    def _named(call: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return functools.wraps(function)(call)
        except (AttributeError, TypeError):
            return call
