"""This replica among other replicas, for the routes; a service without peers has the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fastapi.routing import APIRoute
from starlette.requests import Request

from proctor_service.evaluate import Elsewhere, nowhere_else
from proctor_service.http.body import RequestName
from proctor_service.http.responses import Line


class SharedAnswers(Protocol):
    """Results shared by replicas under an Idempotency-Key."""

    async def judged(self, name: RequestName) -> Mapping[int, Line]:
        """Return the results of a request, by index. Raises InvalidRequest for another body."""

    async def store_first(self, name: RequestName, lines: Mapping[int, Line]) -> Mapping[int, Line]:
        """Share results. Return the common answers of all replicas."""


class SharedTasks(Protocol):
    """Compressed tasks shared by replicas. Both methods return without errors while the store is away."""

    async def load(self, name: bytes) -> bytes | None:
        """Return the task with this name, or None."""

    async def save(self, name: bytes, task: bytes) -> None:
        """Save a task under its name."""


class Fleet:
    """A service without other replicas.

    `answers`: shared results; `tasks`: shared tasks; None without a shared store.
    """

    def __init__(
        self,
        id_prefix: str = "sb_",
        answers: SharedAnswers | None = None,
        tasks: SharedTasks | None = None,
    ) -> None:
        """`id_prefix`: begin of the ids of this replica's sandboxes."""
        self.id_prefix = id_prefix
        self.answers = answers
        self.tasks = tasks

    def route_class(self) -> type[APIRoute]:
        """Return the class of routes with a `sandbox_id`."""
        return APIRoute

    async def elsewhere(self, request: Request) -> tuple[list[dict[str, Any]], int]:
        """Return the other replicas' answers to the same request, and how many are missing."""
        return [], 0

    def image_owners(self) -> Elsewhere:
        """Return the function that has a submission judged by a replica with its image."""
        return nowhere_else

    def mismatched(self) -> Mapping[str, str]:
        """Return the other replicas with another fingerprint: by URL, their differences."""
        return {}
