"""Ctrl-C and SIGTERM: the first signal ends the training cleanly, a second ends the process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def on_signal(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Within the block, the first signal calls `stop` in the running loop; for the main thread.

    The event loop's own signal handlers run only between its callbacks. If a backend blocked the
    loop, they would never run, and the training could not be stopped.
    """
    loop = asyncio.get_running_loop()
    second: dict[signal.Signals, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }

    def handle(number: int, frame: FrameType | None) -> None:
        for each, handler in second.items():
            signal.signal(each, handler)
        loop.call_soon_threadsafe(stop, signal.Signals(number))

    before = {each: signal.signal(each, handle) for each in second}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
