"""A pod without a cluster: the OCI spec that a kubelet and containerd make of it, run by runc.

Made from the rendered manifest, so that what is tried is what is deployed: user, capabilities,
no_new_privs, seccomp, masked paths, user namespace, read-only root, volumes, memory and CPU. Not
played: the network (each pod has a loopback of its own), AppArmor, SELinux, and cgroups as v2 has
them in a pod (a /sys/fs/cgroup of v1 stands for that, which only a runtime class makes writable).
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from waits import WAIT_SECONDS

from deploy.images import Image
from deploy.manifests import DEPLOY, Json

FIRST_OUTER_ID, IDS = 1_000_000, 65_536
# What containerd gives a container that neither drops nor adds.
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP",
    "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
)  # fmt: skip
MASKED = (
    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
    "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
    "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
)  # fmt: skip
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
# What containerd's default profile allows to SYS_ADMIN alone, and pivot_root, which it never allows.
FOR_ADMINS = (
    "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount", "open_tree",
    "setns", "umount", "umount2", "unshare",
)  # fmt: skip
NEW_NAMESPACES = (1 << 17, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30)
WRITABLE_CGROUPS = "writable-cgroups"  # the handler of this name, as deploy/platforms.md defines it
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
CPU_PERIOD_MICROSECONDS = 100_000


@dataclass(frozen=True)
class Pod:
    """A PodSpec with what a cluster adds: the values that it refers to, and its volumes' files."""

    spec: Json
    environment: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    """What is mounted read-only from Secrets: path in the container to text."""

    @property
    def container(self) -> Json:
        """Its only container."""
        [container] = self.spec["containers"]
        found: Json = container
        return found

    @property
    def context(self) -> Json:
        """The security context of the container, with what it takes from the pod's."""
        return {**self.spec.get("securityContext", {}), **self.container.get("securityContext", {})}

    @property
    def own_users(self) -> bool:
        """Whether it has a user namespace."""
        return self.spec.get("hostUsers") is False

    @property
    def writable_cgroups(self) -> bool:
        """Whether its runtime class makes /sys/fs/cgroup writable."""
        return self.spec.get("runtimeClassName") == WRITABLE_CGROUPS


class Running:
    """A container that was started."""

    def __init__(self, bundle: Path, name: str, process: subprocess.Popen[bytes]) -> None:
        self._bundle = bundle
        self._name = name
        self._process = process

    @property
    def log(self) -> str:
        """All it said so far."""
        return (self._bundle / "log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        """Its first process, as this machine sees it."""
        return int((self._bundle / "pid").read_text())

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def exec(self, *argv: str) -> str:
        """What a command in it prints, as with `kubectl exec` and exec probes."""
        done = subprocess.run(
            [*runc(self._bundle), "exec", self._name, *argv],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.log[-3000:]}"
        return done.stdout

    def terminate(self) -> int:
        """SIGTERM to its first process, as from the kubelet; its exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Its exit status, when it ends by itself."""
        return self._process.wait(WAIT_SECONDS)

    def wait_started(self) -> None:
        """Returns when its first process is there, or was."""
        turns = int(WAIT_SECONDS / 0.02)
        while not (self._bundle / "pid").exists() and self._process.poll() is None:
            turns -= 1
            assert turns > 0, "runc did not start it"
            threading.Event().wait(0.02)  # runc has no event for us


@contextmanager
def running(pod: Pod, image: Image) -> Iterator[Running]:
    """Runs a pod until the block ends; it, its files and its cgroups are gone then."""
    with tempfile.TemporaryDirectory(prefix="proctor-pod-") as folder:
        bundle = Path(folder)
        name = f"proctor-test-{secrets.token_hex(4)}"
        (bundle / "config.json").write_text(json.dumps(oci_spec(pod, image, bundle)))
        command = ["run", "--bundle", folder, "--pid-file", str(bundle / "pid"), name]
        with (bundle / "log").open("wb") as log:
            process = subprocess.Popen(
                [*runc(bundle), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            found = Running(bundle, name, process)
            found.wait_started()
            yield found
        finally:
            delete = [*runc(bundle), "delete", "--force", name]
            subprocess.run(delete, check=False, capture_output=True)
            process.wait(WAIT_SECONDS)


def runc(bundle: Path) -> list[str]:
    """The runtime, with a state of its own."""
    return ["runc", "--root", str(bundle / "state")]


def oci_spec(pod: Pod, image: Image, bundle: Path) -> Json:
    """The runtime's spec of a pod. Refuses what the API server or the kubelet would refuse."""
    container, context = pod.container, pod.context
    unmasked = context.get("procMount") == "Unmasked"
    assert pod.own_users or not unmasked, "procMount: Unmasked is for hostUsers: false only"
    command = container.get("command", image.config["Entrypoint"])
    arguments = container.get("args", [] if "command" in container else image.config["Cmd"])
    variables = {**image.environment, **pod.environment}
    namespaces = ["pid", "ipc", "uts", "mount", "network", *(["user"] if pod.own_users else [])]
    if pod.writable_cgroups:  # as v2 has it: the pod's own group is the root
        namespaces.append("cgroup")
    ids = [{"containerID": 0, "hostID": FIRST_OUTER_ID, "size": IDS}] if pod.own_users else []
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": _user(context, image),
            "args": [*command, *arguments],
            "env": [f"{name}={value}" for name, value in variables.items()],
            "cwd": "/",
            "capabilities": _capabilities(context.get("capabilities", {})),
            "noNewPrivileges": context.get("allowPrivilegeEscalation") is False,
        },
        "root": {"path": str(image.root), "readonly": context.get("readOnlyRootFilesystem", False)},
        "hostname": "pod",
        "mounts": [*_mounts(pod), *_files(pod, image, bundle)],
        "linux": {
            "namespaces": [{"type": name} for name in namespaces],
            "uidMappings": ids,
            "gidMappings": ids,
            "maskedPaths": [] if unmasked else list(MASKED),
            "readonlyPaths": [] if unmasked else list(READ_ONLY),
            "resources": _resources(container.get("resources", {}).get("limits", {})),
            "cgroupsPath": f"/proctor-test-{secrets.token_hex(4)}",
            "seccomp": _seccomp(context),
        },
    }


def bytes_of(quantity: str) -> int:
    """Kubernetes' way to write an amount of memory."""
    for unit, factor in UNITS.items():
        if quantity.endswith(unit):
            return int(quantity.removesuffix(unit)) * factor
    return int(quantity)


def cores_of(quantity: str) -> float:
    """Kubernetes' way to write an amount of CPU."""
    return int(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def _user(context: Json, image: Image) -> Json:
    uid, gid = image.config["User"].split(":")
    user = {"uid": context.get("runAsUser", int(uid)), "gid": context.get("runAsGroup", int(gid))}
    assert user["uid"] or not context.get("runAsNonRoot"), "the kubelet does not start it as root"
    return {**user, "additionalGids": [context["fsGroup"]] if "fsGroup" in context else []}


def _capabilities(wanted: Json) -> Json:
    dropped, added = wanted.get("drop", []), wanted.get("add", [])
    held = set() if "ALL" in dropped else set(CAPABILITIES) - set(dropped)
    names = sorted(f"CAP_{name}" for name in held | set(added))
    return {"bounding": names, "effective": names, "permitted": names}


def _resources(limits: Json) -> Json:
    resources: Json = {"devices": [{"allow": False, "access": "rwm"}]}
    if "memory" in limits:
        resources["memory"] = {"limit": bytes_of(limits["memory"])}
    if "cpu" in limits:
        quota = int(cores_of(limits["cpu"]) * CPU_PERIOD_MICROSECONDS)
        resources["cpu"] = {"period": CPU_PERIOD_MICROSECONDS, "quota": quota}
    return resources


def _seccomp(context: Json) -> Json | None:
    profile = context["seccompProfile"]
    if profile["type"] == "Unconfined":
        return None
    if profile["type"] == "Localhost":
        found: Json = json.loads((DEPLOY / "seccomp" / profile["localhostProfile"]).read_text())
        return found
    assert profile["type"] == "RuntimeDefault", profile
    refused: list[Json] = [{"names": ["pivot_root"], "action": "SCMP_ACT_ERRNO"}]
    if "SYS_ADMIN" not in context.get("capabilities", {}).get("add", []):
        refused.append({"names": list(FOR_ADMINS), "action": "SCMP_ACT_ERRNO"})
        refused.append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38})
        for flag in NEW_NAMESPACES:
            argument = {"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}
            refused.append({"names": ["clone"], "action": "SCMP_ACT_ERRNO", "args": [argument]})
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": refused}


def _mounts(pod: Pod) -> list[Json]:
    none = ["nosuid", "noexec", "nodev"]
    cgroups = "rw" if pod.writable_cgroups else "ro"
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": none},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
         "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
         "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
         "options": [*none, "mode=1777", "size=65536k"]},
        {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": none},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*none, "ro"]},
        {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
         "options": [*none, "relatime", cgroups]},
    ]  # fmt: skip


def _files(pod: Pod, image: Image, bundle: Path) -> list[Json]:
    """The Secrets' volumes, each a folder of the node: root's, and fsGroup's to read."""
    folders = {}
    volumes = {volume["name"]: volume["secret"] for volume in pod.spec.get("volumes", [])}
    outer = FIRST_OUTER_ID if pod.own_users else 0
    for mount in pod.container.get("volumeMounts", []):
        source = bundle / mount["name"]
        source.mkdir()
        # containerd maps the image's owner into the pod, so that runc can make it; here it is not.
        (image.root / mount["mountPath"].lstrip("/")).mkdir(parents=True, exist_ok=True)
        for path, text in pod.files.items():
            if Path(path).parent == Path(mount["mountPath"]):
                file = source / Path(path).name
                file.write_text(text)
                os.chown(file, outer, outer + pod.context["fsGroup"])
                file.chmod(volumes[mount["name"]]["defaultMode"])
        folders[mount["mountPath"]] = source
    bundle.chmod(0o711)
    how = ["ro", "rbind", "nosuid", "nodev", "noexec"]
    return [
        {"destination": path, "type": "bind", "source": str(source), "options": how}
        for path, source in folders.items()
    ]
