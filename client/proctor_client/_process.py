"""What must not be shared with a forked child: connections, locks and threads.

A fork copies them all. Two processes on one connection read each other's answers, a lock that
another thread held is never released, and a pool of threads has none. So each process makes its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value that each process makes for itself, by `make`, when it first asks for it.

    What an ancestor made is kept and left alone: the ancestor goes on with it, and to finalize it
    here might tell the other end, or wait for a lock. Copies, pickled ones too, begin without a
    value. May be used from several threads.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._by_pid: dict[int, T] = {}

    def get(self) -> T:
        """This process's value."""
        pid = os.getpid()
        if pid not in self._by_pid:
            self._by_pid.setdefault(pid, self._make())
        return self._by_pid[pid]

    def peek(self) -> T | None:
        """This process's value, None if it has none yet."""
        return self._by_pid.get(os.getpid())

    def renew(self, old: T) -> None:
        """Make this process's value anew, unless that was done since it was `old`."""
        if self.peek() is old:
            self._by_pid[os.getpid()] = self._make()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._make,)
