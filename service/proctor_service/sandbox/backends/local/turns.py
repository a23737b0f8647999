"""Whose turn it is, where a program and somebody else take turns: what a program waits for is not its own.

A line that the program says ends its turn, unless it is said aside; a line that it is given begins its
next. Who has not taken yet what it was given ends no turn, and who is given no more has no other. So of
two that speak with each other it is always the one's turn or the other's, whatever either says or leaves
unread, and nobody idles in the other's time. Standard library only; this file goes into remote sandboxes.
"""

import time

ASIDE = b"!"
"""How a line begins that ends no turn."""


class Turns:
    """Of one program, whose turn is the first."""

    def __init__(self) -> None:
        self.ended = 0
        self._rested_seconds = 0.0
        self._taken_seconds = 0.0
        self._since: float | None = None
        self._alone = False
        self._begun = b""  # how the line that it is saying began

    def heard(self, data: bytes, *, behind: bool) -> None:
        """Told of what the program says, as it comes; `behind`: it was given more than it has taken."""
        stays = behind or self._alone
        *whole, rest = data.split(b"\n")
        for line in whole:
            if (self._begun or line[:1]) != ASIDE and self._since is None and not stays:
                self.ended += 1
                self._since = time.monotonic()
            self._begun = b""
        self._begun = self._begun or rest[:1]

    def given(self) -> None:
        """Told that the program is given a line."""
        if self._since is not None:
            self._rested_seconds += time.monotonic() - self._since
        self._since = None

    def left_alone(self) -> None:
        """Told that the program is given no more: it waits for nobody from now on."""
        self.given()
        self._alone = True

    def rested_seconds(self) -> float:
        """How long it was somebody else's turn so far. May be asked in any thread."""
        since = self._since
        return self._rested_seconds + (0.0 if since is None else time.monotonic() - since)

    def take_rested_seconds(self) -> float:
        """How long it was somebody else's turn since this was last asked."""
        rested = self.rested_seconds() - self._taken_seconds
        self._taken_seconds += rested
        return rested
