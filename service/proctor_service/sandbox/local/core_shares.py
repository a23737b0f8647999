"""Weights of running sandboxes: jobs share the cores equally, regardless of the number of their programs.

Each tenant with a running program has a part of the cores by its weight, each of its jobs an equal part
of the tenant's, and each running program of a job an equal part of the job's. All weights are at least a
quarter of the largest. The age of a program has no effect, so a compiling program has its full weight.
Where no cgroup shares the cores, the fair order of the queue alone shares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from proctor_service.sandbox.local.cgroups import AWAKE

Owner = tuple[str, str]
"""Tenant and job."""

EQUAL: Mapping[str, float] = MappingProxyType({})
_LEAST_PART = 0.25  # of the largest weight
_STEPS = 8  # few different weights, since the kernel takes long to change one
_CHANGE = 1 / 4  # part of a new count in the moving average


class CoreShares:
    """Weights by owner, from the moving averages of the numbers of running programs."""

    def __init__(self, tenant_weights: Mapping[str, float] = EQUAL) -> None:
        """`tenant_weights`: parts by tenant, `*` for all other tenants; 1 by default."""
        self._tenant_weights = tenant_weights
        self._others_weight = tenant_weights.get("*", 1.0)
        self._programs: dict[Owner, float] = {}
        self.weights: Mapping[Owner, float] = {}
        """Weight of each running program by owner; AWAKE for any other owner."""

    def update(self, running: Mapping[Owner, int]) -> None:
        """Note the numbers of running programs by owner; call at regular times."""
        before = self._programs
        averages = {
            owner: count + (before.get(owner, count) - count) * (1 - _CHANGE)
            for owner in before.keys() | running.keys()
            for count in (running.get(owner, 0),)
        }
        # The last part of an average that falls to zero is of a job that has ended.
        self._programs = {owner: number for owner, number in averages.items() if number >= _CHANGE}
        jobs = Counter(tenant for tenant, _ in self._programs)
        parts = {
            owner: self._of_tenant(owner[0]) / (jobs[owner[0]] * max(1.0, number))
            for owner, number in self._programs.items()
        }
        largest = max(parts.values(), default=1.0)
        self.weights = {owner: AWAKE * _rounded(part / largest) for owner, part in parts.items()}

    def _of_tenant(self, tenant: str) -> float:
        return self._tenant_weights.get(tenant, self._others_weight)


def _rounded(part: float) -> float:
    return max(_LEAST_PART, round(part * _STEPS) / _STEPS)
