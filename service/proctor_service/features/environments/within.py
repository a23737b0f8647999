"""Sandboxes of one environment, from a backend that takes the environment with each request."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from proctor_service.sandbox.interface import Limits, Sandbox, StatefulSandbox, Traits


class ByEnvironment(Protocol):
    """Backend that takes the environment with each request."""

    @property
    def traits(self) -> Traits:
        """Properties of the backend."""

    def lease_in(self, environment: str, limits: Limits) -> AbstractAsyncContextManager[Sandbox]:
        """Lease a fresh sandbox of an environment; see `Sandboxes.lease`."""

    def open_stateful_in(
        self, environment: str, limits: Limits, tags: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[StatefulSandbox]:
        """Lease a stateful sandbox of an environment; see `Sandboxes.open_stateful`."""


class InEnvironment:
    """Implements `sandbox.interface.Sandboxes` for an environment of a backend."""

    def __init__(self, backend: ByEnvironment, environment: str) -> None:
        self._backend = backend
        self._environment = environment

    @property
    def traits(self) -> Traits:
        """Properties of the backend."""
        return self._backend.traits

    def lease(self, limits: Limits) -> AbstractAsyncContextManager[Sandbox]:
        """Lease a fresh sandbox; see `Sandboxes.lease`."""
        return self._backend.lease_in(self._environment, limits)

    def open_stateful(
        self, limits: Limits, tags: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[StatefulSandbox]:
        """Lease a stateful sandbox; see `Sandboxes.open_stateful`."""
        return self._backend.open_stateful_in(self._environment, limits, tags)
