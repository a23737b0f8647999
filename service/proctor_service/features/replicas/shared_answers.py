"""Results of requests with an Idempotency-Key, shared between replicas.

Each result is shared when it is finished, and the first shared result wins: a retry on another
replica finds the judged items, judges only the rest, and both replicas return the same results. A
replica ignores work in progress on other replicas. Retryable errors stay local. Replicas with another
fingerprint share nothing: they may judge otherwise. Names are hashed, so the store is free of tenants
and keys.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Protocol

from proctor_service.errors import InvalidRequest
from proctor_service.http.body import KEY_HEADER, RequestName
from proctor_service.http.responses import Line

log = logging.getLogger(__name__)

FIRST = b"first"
"""Field with the fingerprint of the first body received with a key."""
LONGEST_SHARED_BYTES = 32 * 1024
"""Upper limit for shared results; other replicas judge larger results again."""


class FirstWinsStore(Protocol):
    """Store of fields under a name; a field's first value wins. Never raises while unreachable."""

    async def load(self, name: bytes) -> Mapping[bytes, bytes]:
        """Return all fields."""

    async def store_first(
        self, name: bytes, fields: Mapping[bytes, bytes]
    ) -> Mapping[bytes, bytes]:
        """Set the unset fields, and return the resulting values."""


class AnswerStore:
    """Store of results by request name."""

    def __init__(self, store: FirstWinsStore) -> None:
        self._store = store

    async def judged(self, name: RequestName) -> dict[int, Line]:
        """Return the results of a request judged by any replica, by index.

        Raises InvalidRequest when the key was used for a request with another body.
        """
        found = await self._store.load(_hashed(name))
        if found.get(FIRST, name.fingerprint) != name.fingerprint:
            raise InvalidRequest(f"{KEY_HEADER}: this key was used for a request with another body")
        mine = _prefix(name)
        return {
            int(field.removeprefix(mine)): _line(text)
            for field, text in found.items()
            if field.startswith(mine)
        }

    async def store_first(self, name: RequestName, lines: Mapping[int, Line]) -> Mapping[int, Line]:
        """Share results. Return the winning results: another replica may have been first."""
        mine = _prefix(name)
        fields = {
            mine + b"%d" % index: line.json
            for index, line in lines.items()
            if len(line.json) <= LONGEST_SHARED_BYTES
        }
        standing = await self._store.store_first(_hashed(name), {FIRST: name.fingerprint, **fields})
        first = {
            int(field.removeprefix(mine)): _line(standing[field])
            for field, text in fields.items()
            if standing[field] != text
        }
        return {**lines, **first}


def _prefix(name: RequestName) -> bytes:
    """Return the prefix of a request's fields.

    The prefix depends on the body, since replicas may process two bodies with one key at the same
    time.
    """
    return name.fingerprint.hex().encode() + b":"


def _hashed(name: RequestName) -> bytes:
    whole = json.dumps([name.tenant, name.key, name.judged_with]).encode()
    return hashlib.blake2b(whole, digest_size=20).hexdigest().encode()


def _line(text: bytes) -> Line:
    value = json.loads(text)
    return Line(text, value["reward"], value["verdict"])
