"""Objects that a forked child must not share with its parent: connections, locks, threads.

A fork copies all of them. Two processes on one connection read each other's answers; a lock held by
another thread is never released; a copied thread pool has no threads. So each process creates its
own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value that each process creates for itself with `make`, on first use.

    An ancestor's value is kept and left alone: the ancestor still uses the value, and its finalizer
    might send data to the peer or wait for a lock. Copies and pickles start without a value.
    Thread-safe.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._by_pid: dict[int, T] = {}

    def get(self) -> T:
        """Return this process's value; create it on first use."""
        pid = os.getpid()
        if pid not in self._by_pid:
            self._by_pid.setdefault(pid, self._make())
        return self._by_pid[pid]

    def peek(self) -> T | None:
        """Return this process's value, or None if there is no value yet."""
        return self._by_pid.get(os.getpid())

    def renew(self, old: T) -> None:
        """Replace this process's value, unless another call has already replaced `old`."""
        if self.peek() is old:
            self._by_pid[os.getpid()] = self._make()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._make,)
