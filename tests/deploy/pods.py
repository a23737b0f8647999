"""A pod without a cluster: the OCI spec that a kubelet and containerd make of it, run by runc.

Made from the rendered manifest, so that what is tried is what is deployed: user, capabilities,
no_new_privs, seccomp, masked paths, user namespace, read-only root, volumes, memory and CPU. Not
played: the network (each pod has a loopback of its own, unless pod_network.py gives it more), AppArmor,
SELinux, and cgroups as v2 has them in a pod (a /sys/fs/cgroup of v1 stands for that, which only a
runtime class makes writable).
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
from dataclasses import dataclass, field, replace
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
    """What is mounted from Secrets and ConfigMaps: path in the container to text."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """The folders of the node that its other volumes are, by the volume's name."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """The addresses of names, for /etc/hosts."""
    hooks: Json = field(default_factory=dict)
    """The runtime's hooks, which set up its network."""

    @property
    def init(self) -> Pod:
        """A pod of its only init container."""
        [container] = self.spec["initContainers"]
        environment = {each["name"]: each["value"] for each in container["env"]}
        spec = {**self.spec, "containers": [container], "initContainers": []}
        return replace(self, spec=spec, environment=environment)

    @property
    def owner(self) -> tuple[int, int]:
        """Whose its volumes are on the node: root's of the pod, and fsGroup's."""
        outer = FIRST_OUTER_ID if self.own_users else 0
        return outer, outer + int(self.context.get("fsGroup", 0))

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
        self.send(signal.SIGTERM)
        return self.wait()

    def send(self, sign: signal.Signals) -> None:
        """Sends its first process a signal."""
        os.kill(self.pid, sign)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

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
        "hooks": pod.hooks,
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
    """The volumes, each a folder of the node: root's, and fsGroup's to read. And /etc/hosts."""
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
    mounts = []
    for mount in pod.container.get("volumeMounts", []):
        path, volume = mount["mountPath"], volumes[mount["name"]]
        # containerd maps the image's owner into the pod, so that runc can make it; here it is not.
        (image.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        source = pod.folders.get(mount["name"]) or _folder_of(volume, path, pod, bundle)
        how = ["nosuid", "nodev", *(["ro", "noexec"] if mount.get("readOnly") else ["rw"])]
        mounts.append(_bound(path, source, how if mount["name"] not in pod.folders else how[:3]))
    if pod.hosts:
        file = bundle / "hosts"
        file.write_text("".join(f"{address} {name}\n" for name, address in pod.hosts.items()))
        (image.root / "etc" / "hosts").touch()
        mounts.append(_bound("/etc/hosts", file, ["ro", "nosuid", "nodev", "noexec"]))
    bundle.chmod(0o711)
    return mounts


def _folder_of(volume: Json, path: str, pod: Pod, bundle: Path) -> Path:
    """What the kubelet makes of a Secret or a ConfigMap: a folder with a file for each key."""
    source: Path = bundle / volume["name"]
    source.mkdir()
    for each, text in pod.files.items():
        if Path(each).parent == Path(path):
            file = source / Path(each).name
            file.write_text(text)
            os.chown(file, *pod.owner)
            file.chmod(volume.get("secret", {}).get("defaultMode", 0o644))
    return source


def _bound(path: str, source: Path, options: list[str]) -> Json:
    how = ["rbind", *options]
    return {"destination": path, "type": "bind", "source": str(source), "options": how}
