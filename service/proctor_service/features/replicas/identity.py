"""Identity of a replica, and sandbox ids that name the replica.

An id is `sb_` and 32 hexadecimal digits: 8 for the address of the replica, 6 for the run, 18
random. Each start draws a new run number, so an id from an earlier run at the same address is known
to be lost.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field

_ID = re.compile(r"sb_([0-9a-f]{8})([0-9a-f]{6})[0-9a-f]{18}")
"""Matches `sb_`, eight digits of the replica, six of its start and 18 others."""


def address_of(url: str) -> str:
    """Return the 8 hexadecimal digits that stand for a replica's URL in sandbox ids."""
    return hashlib.blake2b(url.encode(), digest_size=4).hexdigest()


def _new_life() -> str:
    return secrets.token_hex(3)


@dataclass(frozen=True, slots=True)
class Identity:
    """This replica: its run, and the URL under which peers reach the replica, if any."""

    url: str = ""
    life: str = field(default_factory=_new_life)

    @property
    def id_prefix(self) -> str:
        """Begin of the ids of this replica's sandboxes."""
        return f"sb_{address_of(self.url)}{self.life}"

    def holds(self, sandbox_id: str) -> bool:
        """True if this replica answers for the id: an id of this run, or text in another format."""
        found = _ID.fullmatch(sandbox_id)
        return found is None or found.groups() == (address_of(self.url), self.life)


def address_in(sandbox_id: str) -> str:
    """Return the replica address in an id; the id may be arbitrary text from a client."""
    found = _ID.fullmatch(sandbox_id)
    return "" if found is None else found[1]
