"""Event loop of a process that answers requests or judges.

The kernel counts watches of epoll(7) by user and refuses more than a number; libuv then aborts the
process. The sandboxes of an ordinary user may be processes of the same user, so there the loop waits
with poll(2), for which the kernel keeps nothing.
"""

from __future__ import annotations

import asyncio
import os
import selectors
from collections.abc import Callable


def event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop: under root uvloop's if installed, else asyncio's."""
    if os.geteuid() != 0:
        return asyncio.SelectorEventLoop(selectors.PollSelector())
    return _loop_of_root()()


def _loop_of_root() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
