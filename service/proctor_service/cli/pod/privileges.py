"""What sandboxes in a pod need of its security context, and what the pod itself may not have."""

from __future__ import annotations

import os
from collections.abc import Iterator

from proctor_service.cli.pod.facts import BITS, PodFacts
from proctor_service.cli.pod.pod_check import (
    APPARMOR_PROFILE,
    CAPABILITIES,
    OPENSHIFT,
    SECCOMP_PROFILE,
    SELINUX,
    USER_NAMESPACES,
    Alternatives,
    PodCheck,
)
from proctor_service.sandbox.linux.trial import (
    LOOPBACK,
    MOUNT,
    PIVOT_ROOT,
    PROC,
    UNSHARE,
    USER_IDS,
)

_BASE = "deploy/base/deployment.yaml has it"
_UNCONFINED = "unconfined"
_WORDS = {
    UNSHARE: ("namespaces", "sandboxes get namespaces of their own"),
    USER_IDS: ("user_ids", "sandboxes get a user of their own"),
    MOUNT: ("mounts", "sandboxes get a root file system of their own"),
    PROC: ("proc", "sandboxes get a /proc of their own"),
    PIVOT_ROOT: ("pivot_root", "sandboxes leave the pod's root file system"),
    LOOPBACK: ("loopback", "sandboxes get a loopback of their own"),
}


def sandbox_checks(facts: PodFacts) -> Iterator[PodCheck]:
    """Yield what sandboxes in the pod need: a user, capabilities, and the steps of making one."""
    yield _node_user(facts)
    yield _needed_capabilities(facts)
    reached = [step for step in _WORDS if step in facts.steps]
    for step in reached:
        yield _step(facts, step)
    yield _seccomp(facts)
    yield _label(facts)


def restricted_checks(facts: PodFacts) -> Iterator[PodCheck]:
    """Yield what a pod without sandboxes of its own may not have: it needs no privilege at all."""
    yield PodCheck(
        "user", facts.user != 0, f"user {facts.user}", mend=f"runAsNonRoot: true; {_BASE}"
    )
    yield _no_capabilities(facts)
    yield PodCheck(
        "seccomp_profile",
        facts.filtered,
        "a filter of system calls" if facts.filtered else "no filter of system calls",
        mend=f"seccompProfile: RuntimeDefault; {_BASE}",
    )


def common_checks(facts: PodFacts) -> Iterator[PodCheck]:
    """Yield what holds for every pod of the service."""
    yield PodCheck(
        "no_new_privs",
        facts.no_new_privs,
        "no process gains privileges" if facts.no_new_privs else "a process may gain privileges",
        mend=f"allowPrivilegeEscalation: false; {_BASE}",
    )
    yield PodCheck(
        "read_only_root",
        facts.read_only_root,
        "nobody writes to the image" if facts.read_only_root else "the image's files can change",
        mend=f"readOnlyRootFilesystem: true; {_BASE}",
    )
    yield PodCheck(
        "service_account",
        not facts.service_account_token,
        "a token of the cluster's API is mounted, and the service needs none"
        if facts.service_account_token
        else "no token of the cluster's API",
        mend=f"automountServiceAccountToken: false; {_BASE}",
    )
    yield PodCheck(
        "first_process",
        facts.first_process == "tini",
        f"the first process is {facts.first_process}",
        mend="start the service behind tini, as the image does: it reaps orphans",
    )


def _node_user(facts: PodFacts) -> PodCheck:
    namespace = "the pod's own" if facts.own_user_namespace else "the node's"
    return PodCheck(
        "user",
        facts.own_user_namespace,
        f"user {facts.user} of {namespace} user namespace",
        ((USER_NAMESPACES,),),
        "a user id of the pod is the same user on the node; otherwise give these pods nodes of "
        "their own",
    )


def _needed_capabilities(facts: PodFacts) -> PodCheck:
    if facts.user != 0:
        return _no_capabilities(facts)
    missing = [name for name, bit in BITS.items() if not facts.capabilities >> bit & 1]
    held = f"root with {_names(facts)}"
    if missing:
        return PodCheck(
            "capabilities",
            False,
            f"{held}, without {', '.join(missing)}",
            ((CAPABILITIES,),),
            "or a user other than root with the component user-namespaces",
            required=True,
        )
    return PodCheck(
        "capabilities",
        facts.capabilities.bit_count() == len(BITS),
        held,
        mend=f'capabilities: {{drop: ["ALL"]}}, and those of the component; {_BASE}',
    )


def _no_capabilities(facts: PodFacts) -> PodCheck:
    found = facts.capabilities
    return PodCheck(
        "capabilities",
        not found,
        f"user {facts.user} with {_names(facts)}",
        mend=f'capabilities: {{drop: ["ALL"]}}; {_BASE}',
    )


def _names(facts: PodFacts) -> str:
    known = [name for name, bit in BITS.items() if facts.capabilities >> bit & 1]
    others = facts.capabilities.bit_count() - len(known)
    return ", ".join([*known, *([f"{others} others"] if others else [])]) or "no capability"


def _step(facts: PodFacts, step: str) -> PodCheck:
    name, words = _WORDS[step]
    code = facts.steps[step]
    if not code:
        return PodCheck(name, True, words)
    detail = f"not: {words} ({os.strerror(code)})"
    if step == PROC and facts.masked and not facts.changes_user:
        detail += f"; the runtime masks {len(facts.masked)} places of the pod's /proc"
        return PodCheck(name, False, detail, _makers(facts), "procMount: Unmasked", required=True)
    if step == LOOPBACK and facts.changes_user:
        return PodCheck(name, False, detail, ((CAPABILITIES,),), required=True)
    causes = _causes(facts)
    return PodCheck(name, False, detail, _makers(facts), causes, required=True)


def _makers(facts: PodFacts) -> Alternatives:
    """Return the components that give a pod what sandboxes need, on such a node."""
    if not facts.user_namespaces_allowed:
        return ((CAPABILITIES,),)
    if facts.apparmor_restricts and facts.label.startswith(_UNCONFINED):
        return ((USER_NAMESPACES, CAPABILITIES), (USER_NAMESPACES, APPARMOR_PROFILE))
    if _is_selinux(facts):
        return ((USER_NAMESPACES, SELINUX), (OPENSHIFT,), (CAPABILITIES, SELINUX))
    return ((USER_NAMESPACES,), (CAPABILITIES,))


def _causes(facts: PodFacts) -> str:
    """Return the likely causes of a refused system call."""
    causes = []
    if facts.filtered:
        causes.append("the pod's seccomp profile")
    if not facts.user_namespaces_allowed:
        causes.append("the node's sysctl user.max_user_namespaces, which is 0")
    if facts.apparmor_restricts:
        causes.append("the node's sysctl kernel.apparmor_restrict_unprivileged_userns, which is 1")
    if facts.label and not facts.label.startswith(_UNCONFINED):
        causes.append(f"the label {facts.label}")
    return f"refused by {' or '.join(causes)}" if causes else "refused for want of capabilities"


def _is_selinux(facts: PodFacts) -> bool:
    """Return True for a label of SELinux: user, role, type and level, separated by colons."""
    return facts.label.count(":") >= 3


def _fails(facts: PodFacts) -> bool:
    return any(facts.steps.values())


def _seccomp(facts: PodFacts) -> PodCheck:
    if facts.filtered:
        return PodCheck("seccomp_profile", True, "a filter of system calls for the service")
    return PodCheck(
        "seccomp_profile",
        False,
        "the service itself may make every system call; its sandboxes have a filter of their own",
        ((SECCOMP_PROFILE,),),
    )


def _label(facts: PodFacts) -> PodCheck:
    name = "selinux" if _is_selinux(facts) else "apparmor"
    if not facts.label:
        return PodCheck("apparmor", True, "neither AppArmor nor SELinux tells a label")
    return PodCheck(
        name,
        not _fails(facts) or facts.label.startswith(_UNCONFINED),
        f"label {facts.label}",
        ((SELINUX,), (OPENSHIFT,)) if name == "selinux" else _makers(facts),
        "a step above was refused, perhaps by this label",
    )
