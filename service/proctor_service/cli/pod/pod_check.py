"""One property of a pod, as it was found."""

from __future__ import annotations

from dataclasses import dataclass

APPARMOR_PROFILE = "apparmor-profile"
CAPABILITIES = "capabilities"
DNS_NODELOCAL = "dns-nodelocal"
DNS_OPENSHIFT = "dns-openshift"
OPENSHIFT = "openshift"
POSTGRESQL = "postgresql"
POSTGRESQL_EXTERNAL = "postgresql-external"
REDIS = "redis"
REDIS_EXTERNAL = "redis-external"
SECCOMP_PROFILE = "seccomp-profile"
SELINUX = "selinux"
USER_NAMESPACES = "user-namespaces"
WRITABLE_CGROUPS = "writable-cgroups"

Alternatives = tuple[tuple[str, ...], ...]
"""Lists of components: those of one list together mend what is missing."""


@dataclass(frozen=True, slots=True)
class PodCheck:
    """Result for one property of a pod.

    `components`: lists of components in deploy/components, each of which mends it. `mend`: what
    else does. `required`: without it the service does not start, judges wrongly or isolates less.
    """

    name: str
    ok: bool
    detail: str
    components: Alternatives = ()
    mend: str = ""
    required: bool = False

    def remedy(self) -> str:
        """Return what mends it, as a text; empty for what needs no mending."""
        if self.ok:
            return ""
        lists = [" with ".join(names) for names in self.components]
        component = f"component {', or '.join(lists)}" if lists else ""
        return "; ".join(part for part in (component, self.mend) if part)
