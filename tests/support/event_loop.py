"""Tests in an event loop: bounded in time, step by step, with a clock that tests turn."""

from __future__ import annotations

import asyncio
import functools
import inspect
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest
from waits import WAIT_SECONDS

T = TypeVar("T")
P = ParamSpec("P")
FAR = 1e9
"""A deadline that no test reaches."""


class Clock:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop that skips waiting: where only timers are left, the next timer runs at once."""

    def __init__(self) -> None:
        self._skipped_seconds = 0.0
        super().__init__(_SkippingSelector(self.skip))

    def time(self) -> float:
        """Return the monotonic time plus all that was skipped."""
        return super().time() + self._skipped_seconds

    def skip(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self._skipped_seconds += seconds


class _SkippingSelector(selectors.DefaultSelector):
    def __init__(self, skip: Callable[[float], None]) -> None:
        super().__init__()
        self._skip = skip

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(0)
        if not found:
            self._skip(timeout)
        return found


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in a loop of its own, for a bounded time; a conftest.py imports this."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await pyfuncitem.obj(**arguments)

    asyncio.run(bounded())
    return True


def given_first(
    run: Callable[[Callable[[T], Coroutine[Any, Any, None]]], None],
) -> Callable[[Callable[Concatenate[T, P], Coroutine[Any, Any, None]]], Callable[P, None]]:
    """Make a decorator of async tests from a function that runs one with its first argument."""

    def decorated(
        test: Callable[Concatenate[T, P], Coroutine[Any, Any, None]],
    ) -> Callable[P, None]:
        def ran(*arguments: P.args, **fields: P.kwargs) -> None:
            run(lambda first: test(first, *arguments, **fields))

        functools.update_wrapper(ran, test)
        _, *others = inspect.signature(test).parameters.values()
        vars(ran)["__signature__"] = inspect.Signature(others)  # what pytest looks at
        return ran

    return decorated


async def settle() -> None:
    """Let everything that can happen now happen."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, looking at every turn of the loop."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110  what is watched has no event
            await asyncio.sleep(0)
