"""All checks of a pod, by its settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proctor_service.cli.pod.facts import read_facts
from proctor_service.cli.pod.pod_check import PodCheck
from proctor_service.cli.pod.privileges import (
    common_checks,
    restricted_checks,
    sandbox_checks,
)
from proctor_service.cli.pod.reach import reach_checks
from proctor_service.cli.pod.resources import resource_checks
from proctor_service.sandbox.interface import MachineCheck
from proctor_service.settings import Settings

_HINTS = {
    "PROCTOR_PORT": "enableServiceLinks: false: a Service called proctor sets PROCTOR_PORT",
    "ermission": "fsGroup: 10001 in the pod's securityContext: the file belongs to root",
    "TOKENS": "the secret proctor-tokens with the key tokens.json, mounted at /etc/proctor",
}
"""What mends settings whose error has the word."""


def examine_pod(settings: Settings, checks: Iterable[MachineCheck]) -> Iterator[PodCheck]:
    """Yield the checks of the pod of this process. `checks`: those of the machine. Blocks."""
    facts = read_facts(settings.sandbox_uid)
    tenants = len(settings.tokens_by_tenant())
    yield PodCheck("settings", True, f"valid, with tokens of {tenants} tenants")
    if settings.backend == "local":
        yield from sandbox_checks(facts)
        yield from resource_checks(settings, facts, checks)
    else:
        yield from restricted_checks(facts)
    yield from common_checks(facts)
    yield from reach_checks(settings)


def examine_without_settings(problem: str) -> Iterator[PodCheck]:
    """Yield the checks of a pod whose settings are invalid; `problem` says why. Blocks."""
    mend = next((hint for word, hint in _HINTS.items() if word in problem), "")
    yield PodCheck("settings", False, problem, mend=mend, required=True)
    default = Settings.model_fields["sandbox_uid"].default
    facts = read_facts(default)
    yield from sandbox_checks(facts)
    yield from common_checks(facts)
