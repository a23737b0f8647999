"""Tasks of POST /tasks in the replicas' common store, for a day from the last time that one was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

TASK_SECONDS = 86_400.0
_FIELD = b"task"
_PREFIX = b"task:"
LONGEST_SHARED_BYTES = 8 << 20
"""Upper limit of a compressed task; a larger one is known to the replica alone that it was sent to."""


class FieldStore(Protocol):
    """Store of fields under a name. Never raises while unreachable."""

    async def load(self, name: bytes) -> Mapping[bytes, bytes]:
        """Return all fields."""

    async def store_first(
        self, name: bytes, fields: Mapping[bytes, bytes]
    ) -> Mapping[bytes, bytes]:
        """Set the unset fields, and return the resulting values."""


class TasksOfReplicas:
    """Compressed tasks that replicas share: the name is the hash of the content, so the first counts."""

    def __init__(self, store: FieldStore) -> None:
        self._store = store

    async def load(self, name: bytes) -> bytes | None:
        """Return the task with this name, or None."""
        return (await self._store.load(_PREFIX + name)).get(_FIELD)

    async def save(self, name: bytes, task: bytes) -> None:
        """Save a task under its name, unless it is too large."""
        if len(task) <= LONGEST_SHARED_BYTES:
            await self._store.store_first(_PREFIX + name, {_FIELD: task})
