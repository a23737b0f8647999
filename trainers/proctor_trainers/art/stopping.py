"""Ctrl-C and SIGTERM: the first ends the training in good order, a second one the process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def on_signal(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Within the block, the first such signal calls `stop` in the running loop; on the main thread.

    Not the loop's own handlers, which wait for its next turn: a backend that blocks the loop could
    then not be ended at all.
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
