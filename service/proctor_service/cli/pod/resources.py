"""Whether a pod's limits and its cgroups fit the sandboxes that the settings allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proctor_service.cli.pod.facts import PodFacts
from proctor_service.cli.pod.pod_check import WRITABLE_CGROUPS, PodCheck
from proctor_service.sandbox.interface import MachineCheck
from proctor_service.settings import Settings

SERVICE_MB = 1024
"""Memory for the service itself."""
_CGROUPS = ("memory_cgroup", "pids_cgroup")


def resource_checks(
    settings: Settings, facts: PodFacts, checks: Iterable[MachineCheck]
) -> Iterator[PodCheck]:
    """Yield what holds for a pod with sandboxes of its own. `checks`: those of the machine."""
    cgroups = [check for check in checks if check.name in _CGROUPS]
    if cgroups:  # else the machine could not be examined
        yield _cgroups(cgroups)
    yield _memory(settings, facts)
    if facts.kills_whole_pod is not None:
        yield PodCheck(
            "oom_group",
            not facts.kills_whole_pod,
            "a lack of memory in the pod ends the whole pod"
            if facts.kills_whole_pod
            else "a lack of memory in the pod ends one process",
            mend="singleProcessOOMKill: true in the kubelet's configuration",
        )


def _cgroups(checks: Iterable[MachineCheck]) -> PodCheck:
    missing = [check for check in checks if not check.ok]
    if not missing:
        return PodCheck("cgroups", True, "each sandbox has a cgroup of its own")
    return PodCheck(
        "cgroups",
        False,
        f"no {' and no '.join(check.name for check in missing)}: {missing[0].detail}",
        ((WRITABLE_CGROUPS,),),
    )


def _memory(settings: Settings, facts: PodFacts) -> PodCheck:
    """Every slot and every stateful sandbox at the default limits, and the service."""
    sandboxes = settings.slot_count() + settings.stateful_count()
    each_mb = settings.memory_mb + settings.disk_mb
    needed_mb = SERVICE_MB + sandboxes * each_mb
    wanted = f"{sandboxes} sandboxes of {each_mb} MB and the service may take {needed_mb} MB"
    if facts.memory_limit_mb is None:
        return PodCheck(
            "memory_limit",
            False,
            f"{wanted}; the pod has no memory limit",
            mend="resources.limits.memory in the overlay's deployment.yaml",
        )
    return PodCheck(
        "memory_limit",
        needed_mb <= facts.memory_limit_mb,
        f"{wanted}; the pod's limit is {facts.memory_limit_mb} MB",
        mend="a larger resources.limits.memory in the overlay's deployment.yaml, or fewer "
        "PROCTOR_SLOTS and PROCTOR_MAX_STATEFUL_SANDBOXES in its settings.env",
    )
