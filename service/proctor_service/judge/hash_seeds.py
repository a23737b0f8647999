"""Hash seed of a task, for the sandboxes of all its submissions.

The order of a set of strings depends on the seed. With one seed for all tasks, a program that relies on
an order would be right always, and a policy could learn the order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from pydantic_core import PydanticSerializationError

from proctor_client.wire import ExecGrader, Grader
from proctor_service.sandbox.interface import (
    DEFAULT,
    HASH_SEEDS,
    Limits,
    Sandbox,
    Sandboxes,
    StatefulSandbox,
    Traits,
)


def hash_seed_of(grader: Grader) -> int:
    """Return the hash seed of a task: the same for its grader on each replica, and at a replay.

    Programs with their tests in themselves are no task of their own, and have the first seed.
    """
    if isinstance(grader, ExecGrader) and not (grader.setup or grader.tests):
        return HASH_SEEDS[0]
    try:
        # Without defaults: the seed stays the same when a version adds a field.
        whole = grader.model_dump_json(exclude_defaults=True).encode()
    except PydanticSerializationError:  # a lone surrogate
        whole = repr(grader).encode()
    return HASH_SEEDS[hashlib.blake2b(whole, digest_size=1).digest()[0] % len(HASH_SEEDS)]


class SeededSandboxes:
    """Source of sandboxes with the hash seed of a task."""

    def __init__(self, sandboxes: Sandboxes, hash_seed: int) -> None:
        self._sandboxes = sandboxes
        self._hash_seed = hash_seed

    @property
    def traits(self) -> Traits:
        """Properties of the backend."""
        return self._sandboxes.traits

    def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = HASH_SEEDS[0]
    ) -> AbstractAsyncContextManager[Sandbox]:
        """Lease a sandbox with the task's seed, in place of `hash_seed`."""
        return self._sandboxes.lease(limits, environment, self._hash_seed)

    def open(
        self, limits: Limits, environment: str = DEFAULT, tags: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[StatefulSandbox]:
        """Lease a stateful sandbox, which has the first seed."""
        return self._sandboxes.open(limits, environment, tags)
