"""Time and cost of sandboxes at Aviato by job, as far as a visitor may see them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

Spendings = Callable[[str | None], Iterable[tuple[str, str, float, float]]]
"""Returns tenant, job, seconds and dollars of the jobs of a tenant, or of all."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a service. `everybody`: tenants with a view of all; None for all tenants."""

    read: Spendings
    everybody: Collection[str] | None

    def rows(self, tenant: str) -> list[tuple[str, str, float, float]]:
        """Return tenant, job, seconds and dollars, the dearest first."""
        sees_all = self.everybody is None or tenant in self.everybody
        found = self.read(None if sees_all else tenant)
        return sorted(found, key=lambda row: (-row[3], -row[2], row[:2]))
