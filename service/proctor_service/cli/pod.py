"""Ten checks of the pod of this process, for `proctor doctor --kubernetes`.

They read the kernel's facts of this process, without a manifest or the cluster's API. What
a check lacks, it names as a component of deploy/components where one gives it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from proctor_service.sandbox.interface import MachineCheck
from proctor_service.sandbox.memory_room import memory_limits
from proctor_service.settings import Settings

ANSWER_SECONDS = 5.0
SERVICE_MB = 1024
"""Memory for the service itself."""
# From linux/capability.h: what the component `capabilities` adds, for the reasons given there.
BITS = {
    "DAC_OVERRIDE": 1,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_ADMIN": 12,
    "SYS_CHROOT": 18,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
}
_NEEDED = frozenset(BITS) - {"SYS_CHROOT"}
"""The check `read_only_tests` tells of a missing SYS_CHROOT."""
_HINTS = {
    "PROCTOR_PORT": "enableServiceLinks: false: a Service called proctor sets PROCTOR_PORT",
    "ermission": "fsGroup: 10001 in the pod's securityContext: the file belongs to root",
    "TOKENS": "the secret proctor-tokens with the key tokens.json, mounted at /etc/proctor",
}
"""Fix of a wrong setting, by a word of its error."""
_PORTS = {"redis": 6379, "rediss": 6379, "postgresql": 5432}
_ALL_IDS = ["0", "0", str(2**32 - 1)]
_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_TRIAL = "proctor_service.sandbox.linux.trial"
_MAKERS = "component user-namespaces, or component capabilities"
_BASE = "deploy/base/deployment.yaml has it"


def settings_check(problem: str = "") -> MachineCheck:
    """Return the check of settings, valid or with a problem."""
    fix = next((hint for word, hint in _HINTS.items() if word in problem), "")
    return MachineCheck("settings", not problem, problem or "valid", fix, required=True)


def pod_checks(settings: Settings, machine: Sequence[MachineCheck]) -> Iterator[MachineCheck]:
    """Yield the checks of the pod. `machine`: those of the machine. Blocks for seconds."""
    status = dict(line.split(":", 1) for line in _lines("/proc/self/status"))
    capabilities, local = int(status["CapEff"], 16), settings.backend == "local"
    yield _user(makes_sandboxes=local)
    yield _capabilities(capabilities, is_root=local and os.geteuid() == 0)
    if local:
        yield _sandbox(settings, capabilities)
        if cgroups := [check for check in machine if check.name.endswith("_cgroup")]:
            yield _cgroups(cgroups)
        yield _memory(settings, min((room.megabytes for room in memory_limits()), default=None))
    yield _hardening(status)
    yield MachineCheck(
        "service_account",
        not _TOKEN.exists(),
        "a token of the cluster's API is mounted" if _TOKEN.exists() else "no token of the API",
        f"automountServiceAccountToken: false; {_BASE}",
    )
    first = Path("/proc/1/comm").read_text().strip()
    fix = "start the service behind tini, as the image does: it reaps orphans"
    yield MachineCheck("first_process", first == "tini", f"the first process is {first}", fix)
    yield _network(settings)


def _user(*, makes_sandboxes: bool) -> MachineCheck:
    """Programs need another user than the node's; a service without programs must not be root."""
    user = os.geteuid()
    if not makes_sandboxes:
        return MachineCheck("user", user != 0, f"user {user}", f"runAsNonRoot: true; {_BASE}")
    mapped = [line.split() for line in _lines("/proc/self/uid_map")] != [_ALL_IDS]
    return MachineCheck(
        "user",
        mapped,
        f"user {user} of {'the pod' if mapped else 'the node'}'s user namespace",
        "component user-namespaces; otherwise give these pods nodes of their own",
    )


def _capabilities(held: int, *, is_root: bool) -> MachineCheck:
    """Root needs the component's capabilities to make sandboxes; every other user none."""
    names = [name for name, bit in BITS.items() if held >> bit & 1]
    missing = [name for name in BITS if name in _NEEDED and name not in names] if is_root else []
    others = held.bit_count() - len(names)
    text = ", ".join([*names, *([f"{others} others"] if others else [])]) or "no capability"
    if missing:
        detail = f"{text}, without {', '.join(missing)}"
        return MachineCheck("capabilities", False, detail, "component capabilities", required=True)
    fix = f'capabilities: {{drop: ["ALL"]}}; {_BASE}'
    return MachineCheck("capabilities", not (others if is_root else held), text, fix)


def _sandbox(settings: Settings, capabilities: int) -> MachineCheck:
    """Try the steps of making a sandbox, in a process of their own."""
    changes_user = 1 << BITS["SETUID"] | 1 << BITS["SETGID"]
    as_root = os.geteuid() == 0 and capabilities & changes_user == changes_user
    command = [sys.executable, "-I", "-m", _TRIAL, str(settings.sandbox_uid)]
    command.append("root" if as_root else "user")
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    steps = [line.split() for line in done.stdout.splitlines()]
    refused = [f"{step} ({os.strerror(int(code))})" for step, code in steps if code != "0"]
    detail = f"the pod refuses: {', '.join(refused)}" if refused else "all steps of a sandbox work"
    label = _read("/proc/self/attr/current")
    fix = f"{_MAKERS}; procMount: Unmasked"
    fix += f"; a profile for the label {label}: deploy/platforms.md" if label else ""
    return MachineCheck("sandbox", bool(steps) and not refused, detail, fix, required=True)


def _cgroups(checks: Sequence[MachineCheck]) -> MachineCheck:
    missing = [check for check in checks if not check.ok]
    detail = f"no {missing[0].name}: {missing[0].detail}" if missing else "one for each sandbox"
    return MachineCheck("cgroups", not missing, detail, "component writable-cgroups")


def _memory(settings: Settings, limit_mb: int | None) -> MachineCheck:
    """Every slot and every stateful sandbox at the default limits, and the service."""
    sandboxes = settings.slot_count() + settings.stateful_count()
    needed_mb = SERVICE_MB + sandboxes * (settings.memory_mb + settings.disk_mb)
    detail = f"{sandboxes} sandboxes and the service may take {needed_mb} MB; the limit is "
    return MachineCheck(
        "memory_limit",
        limit_mb is not None and needed_mb <= limit_mb,
        detail + ("none" if limit_mb is None else f"{limit_mb} MB"),
        "resources.limits.memory in the overlay's deployment.yaml, or fewer PROCTOR_SLOTS and "
        "PROCTOR_MAX_STATEFUL_SANDBOXES in its settings.env",
    )


def _hardening(status: dict[str, str]) -> MachineCheck:
    """Return what the service's own processes may do beside their work."""
    missing = []
    if status["NoNewPrivs"].strip() != "1":
        missing.append("allowPrivilegeEscalation: false")
    if not os.statvfs("/").f_flag & os.ST_RDONLY:
        missing.append("readOnlyRootFilesystem: true")
    if status["Seccomp"].strip() != "2":
        missing.append("seccompProfile (component seccomp-profile)")
    detail = f"without {', '.join(missing)}" if missing else "no new privileges, and a filter"
    return MachineCheck("hardening", not missing, detail, _BASE)


def _network(settings: Settings) -> MachineCheck:
    """Connect to the settings' hosts, without a password."""
    journal = settings.journal.get_secret_value() if settings.journal else ""
    urls = [peer for peer in settings.peers if peer.startswith("dns://")]
    urls += [settings.redis_url.get_secret_value(), journal]
    names: list[str] = []
    failed: list[str] = []
    for url in urls:
        try:
            name = _reached(url)
        except ValueError:  # its message may contain a part of the password
            failed.append("an address that is none")
        except OSError as error:
            failed.append(f"{urlsplit(url).hostname} ({error})")
        else:
            names += [name] if name else []
    reached = f"reaches {', '.join(names)}" if names else "the settings name no other service"
    return MachineCheck(
        "network",
        not failed,
        f"no answer of {', '.join(failed)}" if failed else reached,
        "the overlay's NetworkPolicy must let the pods through; components redis, redis-external, "
        "postgresql, postgresql-external, dns-nodelocal and dns-openshift",
        required=True,
    )


def _reached(url: str) -> str:
    """Return the host after a connection, or "" for a URL without a host."""
    parts = urlsplit(url)
    scheme = parts.scheme.partition("+")[0]  # postgresql+psycopg://…
    if scheme not in (*_PORTS, "dns") or parts.hostname is None:
        return ""
    if scheme == "dns":  # the other replicas may not be up yet
        socket.getaddrinfo(parts.hostname, None)
    else:
        address = (parts.hostname, parts.port or _PORTS[scheme])
        socket.create_connection(address, ANSWER_SECONDS).close()
    return parts.hostname


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip("\0\n ")
    except OSError:
        return ""
