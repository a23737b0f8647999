"""Time, processes, threads and event loops, as both halves of the client need them.

A fork copies connections, locks and threads, which a child must not share with its parent. Two
processes on a shared connection read each other's answers; a lock held by another thread is never
released; a copied thread pool lacks its threads. So each process creates its own.

The functions at the end come in two forms, for event loops and for threads: the means differ. The
generated half of the client uses the form for threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Generic, Self, TypeAlias, TypeVar

T = TypeVar("T")

Items: TypeAlias = Generator[T, None, None]
AsyncItems: TypeAlias = AsyncGenerator[T, None]
MOST_AT_ONCE = 32


class Clock:
    """Real time and real randomness. Tests use `testing.FakeClock` instead."""

    def monotonic(self) -> float:
        """Return the seconds since a fixed moment; the value never decreases."""
        return time.monotonic()

    def wall(self) -> float:
        """Return the seconds since the epoch."""
        return time.time()

    def chance(self) -> float:
        """Return a random number in [0, 1) from the operating system.

        Trainers seed `random`, often with the same seed on every rank. Draws from `random` would
        change their runs, and all ranks would retry at the same moment.
        """
        return random.SystemRandom().random()

    def sleep(self, seconds: float) -> None:
        """Sleep in this thread."""
        time.sleep(seconds)

    def __deepcopy__(self, memo: object) -> Self:
        """Return the same clock: a copied client shares its clock."""
        return self

    async def sleep_async(self, seconds: float) -> None:
        """Sleep in this task."""
        await asyncio.sleep(seconds)


class PerProcess(Generic[T]):
    """A value for each process, created with `make` on first use.

    An ancestor's value is kept and left alone: the ancestor still uses the value, and its finalizer
    might send data to the peer or wait for a lock. Copies and pickles start without a value.
    Thread-safe.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._by_pid: dict[int, T] = {}

    def get(self) -> T:
        """Return this process's value, created on first use."""
        pid = os.getpid()
        if pid not in self._by_pid:
            self._by_pid.setdefault(pid, self._make())
        return self._by_pid[pid]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._make,)


async def shielded(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the result of `work()`. A cancellation takes effect only after the work ends."""
    task = asyncio.ensure_future(work())
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.cancelled() or task.exception()  # read, or asyncio logs an error
        raise cancelled
    return task.result()


def unshielded(work: Callable[[], T]) -> T:
    """Return the result of `work()`: threads lack cancellation, and Ctrl-C arrives unshielded."""
    return work()


async def moment_async() -> None:
    """Let the ready tasks run first."""
    await asyncio.sleep(0)


def moment() -> None:
    """Do nothing: threads run when they like."""


def begin_async(work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], object]:
    """Do the work in a task; the returned function cancels the task."""
    return asyncio.create_task(work()).cancel


def begin(work: Callable[[], None]) -> Callable[[], object]:
    """Do the work in a thread; the returned function is empty: threads go on."""
    run = contextvars.copy_context().run
    threading.Thread(target=run, args=(work,), name="proctor-reward", daemon=True).start()
    return lambda: None


async def is_set_async(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for the event; return False after `seconds` (None: never)."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def is_set(event: threading.Event, seconds: float | None) -> bool:
    """Wait for the event; return False after `seconds` (None: never)."""
    return event.wait(seconds)


async def within_async(seconds: float | None, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `work()`. Raises TimeoutError after `seconds`; None: never."""
    async with asyncio.timeout(seconds):
        return await work()


def within(seconds: float | None, work: Callable[[], T]) -> T:
    """Return the result of `work()`: a thread's read ends only by the socket's own timeout."""
    return work()


async def for_each_async(work: Callable[[T], Awaitable[object]], items: Sequence[T]) -> None:
    """Do the work for each item at once, and raise the first error."""
    await asyncio.gather(*(work(each) for each in items))


def for_each(work: Callable[[T], object], items: Sequence[T]) -> None:
    """Do the work for each item in parallel, wait for all, and raise the first error.

    If this thread is interrupted, queued work is dropped, and running work continues.
    """
    if not items:
        return
    threads = ThreadPoolExecutor(min(len(items), MOST_AT_ONCE))
    try:
        futures = [threads.submit(work, each) for each in items]
        wait(futures)
        for future in futures:
            future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
