"""Why a value may not cross between two interpreters.

``ValueTooLarge`` and ``ValueTooDeep`` are raised while encoding, ``Malformed`` while decoding. A
decoder raises nothing else, whatever it is fed: what it reads was written by code that nobody
trusts.
"""

MAX_NODES = 2_000_000
MAX_BYTES = 16 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024 * 1024
# Four Python frames and up to two JSON brackets a level, within the usual limit of 1000 frames.
MAX_DEPTH = 200


class ValueTooLarge(Exception):
    """The value has more parts or more text than may cross."""


class ValueTooDeep(Exception):
    """The value is nested deeper than may cross, or is a tuple that contains itself."""


class Malformed(ValueError):
    """What arrived is not an encoding of anything."""
