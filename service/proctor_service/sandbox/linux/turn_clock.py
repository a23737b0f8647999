"""Turn clock: tracks which side must speak next, so waiting for the peer is not idle time.

A line from the program ends its turn, except for an out-of-band message. A line to the program
begins its next turn. A program with unread input cannot end its turn, and after the last input the
program keeps the turn. So at any time exactly one side of a conversation has the turn, whatever
each side writes or leaves unread, and the peer's turn never counts as idle time. Standard library
only; this file is also copied into remote sandboxes.
"""

import time

ASIDE = b"!"
"""First byte of an out-of-band message, which does not end the turn."""


class TurnClock:
    """Turn clock of a program, which has the first turn."""

    def __init__(self) -> None:
        self.ended = 0
        self._rested_seconds = 0.0
        self._taken_seconds = 0.0
        self._since: float | None = None
        self._alone = False
        self._begun = b""  # first byte of the unfinished line

    def heard(self, data: bytes, *, behind: bool) -> None:
        """Record data from the program; `behind`: the program has unread input."""
        stays = behind or self._alone
        *whole, rest = data.split(b"\n")
        for line in whole:
            if (self._begun or line[:1]) != ASIDE and self._since is None and not stays:
                self.ended += 1
                self._since = time.monotonic()
            self._begun = b""
        self._begun = self._begun or rest[:1]

    def given(self) -> None:
        """Record a line sent to the program."""
        if self._since is not None:
            self._rested_seconds += time.monotonic() - self._since
        self._since = None

    def left_alone(self) -> None:
        """Record the end of input: from now on the program waits for no peer."""
        self.given()
        self._alone = True

    def rested_seconds(self) -> float:
        """Return total seconds of the peer's turns so far. Callable from any thread."""
        since = self._since
        return self._rested_seconds + (0.0 if since is None else time.monotonic() - since)

    def take_idle_seconds(self) -> float:
        """Return seconds of the peer's turns since the previous call."""
        rested = self.rested_seconds() - self._taken_seconds
        self._taken_seconds += rested
        return rested
