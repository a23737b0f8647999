"""Sandboxes of environments that start with their first use, and end when nobody has used them for long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from proctor_service.errors import SandboxUnavailable

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Users:
    """Count of the users of something, and the time of its last use: what is in use is not idle."""

    def __init__(self) -> None:
        self.users = 0
        self.last_used_at = time.monotonic()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Count a user for the length of the block."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            self.last_used_at = time.monotonic()

    def is_idle(self, seconds: float) -> bool:
        """Return True if nobody has used it for this time."""
        return not self.users and time.monotonic() - self.last_used_at >= seconds


class Starts(Generic[T]):
    """Starts an environment once for all who wait for it.

    `start` starts an environment. `failed` is called with the name and the error of one that did
    not start.
    """

    def __init__(
        self,
        start: Callable[[str], Coroutine[Any, Any, T]],
        failed: Callable[[str, BaseException], None] = lambda environment, error: None,
    ) -> None:
        self._start = start
        self._failed = failed
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def started(self, environment: str) -> T:
        """Wait for an environment. Raises what `start` raises, and SandboxUnavailable after `cancel`."""
        task = self._tasks.get(environment)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._start(environment))
            self._tasks[environment] = task
            task.add_done_callback(lambda ended: self._note(environment, ended))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise SandboxUnavailable("the service is stopping") from None

    async def cancel(self) -> None:
        """Cancel the starts, and wait for their end."""
        for task in self._tasks.values():
            task.cancel()
        await self.end()

    async def end(self) -> None:
        """Wait for the end of the starts."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _note(self, environment: str, task: asyncio.Task[T]) -> None:
        del self._tasks[environment]
        failure = None if task.cancelled() else task.exception()  # all who waited may have left
        if failure is not None:
            self._failed(environment, failure)
            extra = {"environment": environment, "why": str(failure)}
            _log.warning("an environment did not start", extra=extra)
