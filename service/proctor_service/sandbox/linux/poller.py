"""Readiness of many short-lived descriptors, behind a single descriptor of the event loop.

libuv checks, adds and removes each descriptor with six calls of epoll_ctl(2), and a sandbox has
three descriptors for some milliseconds. A second epoll(7) instance needs two calls for each.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

_MOST_EVENTS = 64  # per turn of the event loop; the others follow in the next turn


class Poller:
    """Calls a function when its descriptor is readable, between `open` and `close`."""

    def __init__(self) -> None:
        self._readers: dict[int, Callable[[], object]] = {}
        self._epoll = select.epoll()

    def open(self) -> None:
        """Start to call; requires a running event loop."""
        asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._on_readable)

    def add(self, descriptor: int, read: Callable[[], object]) -> None:
        """Call `read` whenever the descriptor is readable, hung up, or in error."""
        self._epoll.register(descriptor, select.EPOLLIN)
        self._readers[descriptor] = read

    def remove(self, descriptor: int) -> None:
        """Forget an open descriptor, before it is closed: a copy in a sandbox may live on."""
        if self._readers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Forget all descriptors; idempotent."""
        if not self._epoll.closed:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._readers.clear()
            self._epoll.close()

    def _on_readable(self) -> None:
        for descriptor, _ in self._epoll.poll(0, _MOST_EVENTS):
            # An earlier call may have removed this descriptor.
            if (read := self._readers.get(descriptor)) is not None:
                read()
