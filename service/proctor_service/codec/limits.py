"""Why a value may not cross between two interpreters, and the bounds that decide it.

``ValueTooLarge`` and ``ValueTooDeep`` are raised while encoding, ``Malformed`` while decoding. A
decoder raises nothing else, whatever it is fed: what it reads was written by code that nobody
trusts.

The *expanded size* of a value is what it would take with all sharing written out, in bytes: 32 for
each part, and the length of text. A reference to a finished container counts as much as that
container; one to a container that is still open (a cycle) counts as one part.
"""

from __future__ import annotations

PART_BYTES = 32
# Two million parts, or 64 MB of text.
MAX_EXPANDED_BYTES = 64 * 1024 * 1024
# What is decoded may be somewhat larger: both sides need not count alike to the last byte.
MAX_DECODED_BYTES = MAX_EXPANDED_BYTES + MAX_EXPANDED_BYTES // 4
MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 1000


class ValueTooLarge(Exception):
    """The value has more parts or more text than may cross."""


class ValueTooDeep(Exception):
    """The value is nested deeper than may cross, or is a tuple that contains itself."""


class Malformed(ValueError):
    """What arrived is not an encoding of anything."""


NO_BASE = object()  # in place of the content of an object whose class has no built-in base


class Opaque:
    """What isn't plain: it has a class's name, equals nothing but itself, and can do nothing."""

    __slots__ = ("truth", "type_name")

    def __init__(self, type_name: str, truth: bool | None = None) -> None:
        self.type_name = type_name
        self.truth = truth

    def __repr__(self) -> str:
        return f"<{self.type_name} object>"
