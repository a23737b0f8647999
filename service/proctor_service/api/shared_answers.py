"""Answers to requests with an Idempotency-Key, where replicas share them.

Each result is shared as it is finished, and the first one that was shared stands: a retry that lands
in another replica finds what was judged, judges only the rest, and both say the same. Work under way
elsewhere is not waited for. What could not be judged is not shared. Names are hashed, so that the
store knows neither tenants nor keys.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Protocol

from proctor_service.api.idempotency import HEADER, RequestName
from proctor_service.api.results import Line
from proctor_service.errors import InvalidRequest

log = logging.getLogger(__name__)

FIRST = b"first"
"""The field with the fingerprint of the first body that came with a key."""
LONGEST_SHARED_BYTES = 32 * 1024
"""A longer result is not shared: whoever needs it judges it again."""


class Store(Protocol):
    """Fields under a name, of which the first value stands. Raises nothing when it is away."""

    async def load(self, name: bytes) -> Mapping[bytes, bytes]:
        """All fields."""

    async def settle(self, name: bytes, fields: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        """Sets the fields that are not set yet; what they hold then."""


class SharedAnswers:
    """The results of requests by their names."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def judged(self, name: RequestName) -> dict[int, Line]:
        """What any replica has judged of a request, by index.

        Raises InvalidRequest when the key was used for a request with another body.
        """
        found = await self._store.load(_hashed(name))
        if found.get(FIRST, name.fingerprint) != name.fingerprint:
            raise InvalidRequest(f"{HEADER}: this key was used for a request with another body")
        mine = _prefix(name)
        return {
            int(field.removeprefix(mine)): _line(text)
            for field, text in found.items()
            if field.startswith(mine)
        }

    async def settle(self, name: RequestName, lines: Mapping[int, Line]) -> Mapping[int, Line]:
        """Shares results; those that stand, which are others where another replica was first."""
        mine = _prefix(name)
        fields = {
            mine + b"%d" % index: line.json
            for index, line in lines.items()
            if len(line.json) <= LONGEST_SHARED_BYTES
        }
        standing = await self._store.settle(_hashed(name), {FIRST: name.fingerprint, **fields})
        first = {
            int(field.removeprefix(mine)): _line(standing[field])
            for field, text in fields.items()
            if standing[field] != text
        }
        return {**lines, **first}


def _prefix(name: RequestName) -> bytes:
    """Of a request's fields: two bodies may be under way with one key before anybody can tell."""
    return name.fingerprint.hex().encode() + b":"


def _hashed(name: RequestName) -> bytes:
    whole = json.dumps([name.tenant, name.key]).encode()
    return hashlib.blake2b(whole, digest_size=20).hexdigest().encode()


def _line(text: bytes) -> Line:
    value = json.loads(text)
    return Line(text, value["reward"], value["verdict"])
