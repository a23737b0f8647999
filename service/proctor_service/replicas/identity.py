"""Who a replica is, and the ids that say so.

An id is `sb_` and 32 hexadecimal digits: 8 for the replica's address, 6 for its life, 18 by chance. The
life is new at each start, so that what a predecessor at the same address held is known to be gone.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field

_ID = re.compile(r"sb_([0-9a-f]{8})([0-9a-f]{6})[0-9a-f]{18}")


def address_of(url: str) -> str:
    """What stands for a replica's address in the ids of its sandboxes."""
    return hashlib.blake2b(url.encode(), digest_size=4).hexdigest()


def _new_life() -> str:
    return secrets.token_hex(3)


@dataclass(frozen=True, slots=True)
class Identity:
    """This replica: under which URL the others reach it; empty when there are none."""

    url: str = ""
    life: str = field(default_factory=_new_life)

    def new_id(self) -> str:
        """An id for a sandbox that lives here."""
        return f"sb_{address_of(self.url)}{self.life}{secrets.token_hex(9)}"

    def holds(self, sandbox_id: str) -> bool:
        """Whether it is for us to say what became of it: ours, or no id at all."""
        found = _ID.fullmatch(sandbox_id)
        return found is None or found.groups() == (address_of(self.url), self.life)


def address_in(sandbox_id: str) -> str:
    """The address of the replica that an id names; it may be anything that a client made up."""
    found = _ID.fullmatch(sandbox_id)
    return "" if found is None else found[1]
