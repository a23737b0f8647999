"""Size limits and errors of the codec.

Encoding raises ``ValueTooLarge`` and ``ValueTooDeep``, decoding raises ``Malformed``. The input of
a decoder is untrusted, so ``Malformed`` is the only exception for any input.

The *expanded size* of a value is its size in bytes with all shared parts repeated: 32 for each
part, plus the length of text. A reference to a finished container counts as much as the
container; a reference to a container that is still open (a cycle) counts as one part.
"""

from __future__ import annotations

PART_BYTES = 32
# Four million parts, or 128 MB of text.
MAX_EXPANDED_BYTES = 128 * 1024 * 1024
# A decoder accepts more than an encoder sends, because their counts may differ slightly.
MAX_DECODED_BYTES = MAX_EXPANDED_BYTES + MAX_EXPANDED_BYTES // 4
MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 1000


class ValueTooLarge(Exception):
    """The value has more parts or more text than the limits allow."""


class ValueTooDeep(Exception):
    """The value is nested deeper than the limit, or is an immutable container in a cycle."""


class Malformed(ValueError):
    """The input is not a valid encoding."""


class NotData(Malformed):
    """The input has an object where data alone is taken. The message is the name of its class."""


NO_BASE = object()  # content of an object without a built-in base class


class Opaque:
    """Placeholder for an object: has a class name and a truth value, equals only itself."""

    __slots__ = ("truth", "type_name")

    def __init__(self, type_name: str, truth: bool | None = None) -> None:
        self.type_name = type_name
        self.truth = truth

    def __repr__(self) -> str:
        return f"<{self.type_name} object>"
