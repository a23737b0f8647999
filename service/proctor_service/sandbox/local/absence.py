"""Time in which the service was stopped: by a signal or a debugger, or with its container.

A stop of the service alone lets programs go on, and a stop of the container stops them as well.
Afterwards the two look the same. So a program over its idle limit only with this time included gets no
verdict, and runs again.
"""

from __future__ import annotations

import os
import threading
import time

LONGEST_PAUSE_SECONDS = 0.75
"""A longer pause has a cause outside the monitor."""
_MOST_BYTES = 4096


class Absence:
    """Total time of long pauses in which the event loop's thread neither ran nor waited for a core."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.active_seconds = 0.0  # run time and run-queue wait of the thread, as last noted
        self._at: float | None = None
        self._own_times: int | None = None  # schedstat of the event loop's thread, held open

    def note_presence(self) -> None:
        """Call in the event loop, more often than every `LONGEST_PAUSE_SECONDS`."""
        active_seconds = self._read()
        now = time.monotonic()
        if self._at is not None and active_seconds is not None:
            pause = now - self._at - max(0.0, active_seconds - self.active_seconds)
            if pause > LONGEST_PAUSE_SECONDS:
                self.seconds += pause
        self._at = now
        if active_seconds is not None:
            self.active_seconds = active_seconds

    def seconds_now(self) -> float:
        """Return the seconds until now, including the time since the last note."""
        if self._at is not None and time.monotonic() - self._at > LONGEST_PAUSE_SECONDS:
            self.note_presence()
        return self.seconds

    def close(self) -> None:
        """Close the file."""
        if self._own_times is not None:
            os.close(self._own_times)
            self._own_times = None

    def _read(self) -> float | None:
        """Return run time and run-queue wait of this thread; None while unreadable."""
        try:
            if self._own_times is None:
                path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
                self._own_times = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            ran, waited, *_ = os.pread(self._own_times, _MOST_BYTES, 0).split()
        except (FileNotFoundError, ValueError):
            return 0.0  # this kernel counts no such times
        except OSError:
            return None  # the machine has no descriptor left
        return (int(ran) + int(waited)) / 1e9
