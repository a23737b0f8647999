"""What the kernel tells a process of its own pod: user, capabilities, filters, mounts, limits."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor_service.sandbox.memory_room import memory_limits
from proctor_service.settings.cgroups_above import files_above

# From linux/capability.h: what the component `capabilities` adds, for the reasons given there.
BITS = {
    "DAC_OVERRIDE": 1,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_ADMIN": 12,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
}
_CHANGE_USER = 1 << BITS["SETUID"] | 1 << BITS["SETGID"]
_ALL_IDS = 2**32 - 1
_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_LABELS = ("/proc/self/attr/apparmor/current", "/proc/self/attr/current")
_SYSCTL = Path("/proc/sys")
_TRIAL = "proctor_service.sandbox.linux.trial"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Properties of the pod of this process.

    `capabilities`: bits of the effective set. `label`: of AppArmor or SELinux, empty without either.
    `masked`: mounts over parts of /proc. `steps`: errno of each step of making a sandbox that was
    reached, 0 for success. `kills_whole_pod`: the kernel ends all processes of the container when its
    memory is exhausted, None where cgroup v2 does not tell.
    """

    user: int
    own_user_namespace: bool
    changes_user: bool
    capabilities: int
    no_new_privs: bool
    filtered: bool
    label: str
    apparmor_restricts: bool
    user_namespaces_allowed: bool
    masked: tuple[str, ...]
    read_only_root: bool
    service_account_token: bool
    first_process: str
    memory_limit_mb: int | None
    kills_whole_pod: bool | None
    steps: Mapping[str, int]


def read_facts(sandbox_uid: int) -> PodFacts:
    """Read the properties of this pod. `sandbox_uid`: first user id of the sandboxes. Blocks."""
    status = dict(line.split(":", 1) for line in _lines("/proc/self/status"))
    maps = [[int(field) for field in line.split()] for line in _lines("/proc/self/uid_map")]
    capabilities = int(status["CapEff"], 16)
    mapped = any(first <= sandbox_uid < first + count for first, _, count in maps)
    changes_user = (
        os.geteuid() == 0 and capabilities & _CHANGE_USER == _CHANGE_USER and mapped
    )  # as `make_plan` decides it
    mounts = [line.split()[4] for line in _lines("/proc/self/mountinfo")]
    return PodFacts(
        user=os.geteuid(),
        own_user_namespace=maps != [[0, 0, _ALL_IDS]],
        changes_user=changes_user,
        capabilities=capabilities,
        no_new_privs=status["NoNewPrivs"].strip() == "1",
        filtered=status["Seccomp"].strip() == "2",
        label=_label(),
        apparmor_restricts=_sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1",
        user_namespaces_allowed=_sysctl("user/max_user_namespaces") != "0",
        masked=tuple(sorted({path for path in mounts if path.startswith("/proc/")})),
        read_only_root=bool(os.statvfs("/").f_flag & os.ST_RDONLY),
        service_account_token=_TOKEN.exists(),
        first_process=Path("/proc/1/comm").read_text().strip(),
        memory_limit_mb=_memory_limit_mb(),
        kills_whole_pod=_kills_whole_pod(),
        steps=_steps(sandbox_uid, changes_user),
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _sysctl(name: str) -> str:
    try:
        return (_SYSCTL / name).read_text().strip()
    except OSError:
        return ""


def _label() -> str:
    for path in _LABELS:
        with contextlib.suppress(OSError):
            return Path(path).read_text().strip("\0\n ")
    return ""


def _memory_limit_mb() -> int | None:
    return min((room.megabytes for room in memory_limits()), default=None)


def _kills_whole_pod() -> bool | None:
    for path in files_above("memory", ("memory.oom.group",)):
        with contextlib.suppress(OSError):
            return path.read_text().strip() == "1"
    return None


def _steps(sandbox_uid: int, as_root: bool) -> dict[str, int]:
    command = [sys.executable, "-I", "-m", _TRIAL, str(sandbox_uid), "root" if as_root else "user"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    pairs = [line.split() for line in done.stdout.splitlines()]
    return {step: int(code) for step, code in pairs}
