"""What kustomize makes of the overlays, as they are and as the README says to change them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = ("dev", "prod", "aviato")
WAYS = (
    ("user-namespaces",),
    ("user-namespaces", "seccomp-profile"),
    ("capabilities",),
    ("capabilities", "seccomp-profile"),
    ("user-namespaces", "capabilities"),
    ("capabilities", "gvisor"),
)
"""The components that a local backend may be given, instead of the one in its overlay."""
PLATFORM_WAYS = (
    ("user-namespaces", "apparmor-profile"),
    ("user-namespaces", "selinux"),
    ("capabilities", "selinux"),
    ("user-namespaces", "openshift"),
    ("user-namespaces", "writable-cgroups"),
    ("capabilities", "writable-cgroups"),
    ("user-namespaces", "writable-cgroups-gke"),
)
"""The same for what only some platforms have or need: deploy/platforms.md."""
ADDITIONS = (
    "redis",
    "redis-external",
    "postgresql",
    "postgresql-external",
    "environments",
    "environments-shared",
    "prometheus-stack",
    "node-pool",
    "ingress",
    "gateway",
    "dns-nodelocal",
    "dns-openshift",
    "pull-secret",
)
"""The other components, in an order in which they may be listed."""
NEEDS = {"environments-shared": "environments"}
"""Components that change what another one adds."""
EXCLUDES = {"redis": "redis-external", "postgresql": "postgresql-external"}
UNSUITED = {
    "dev": {"prometheus-stack"},
    "aviato": {"environments", "environments-shared"},
    "aviato-statefulset": {"environments", "environments-shared"},
}
"""What an overlay cannot use: dev has no monitors, and sandboxes at Aviato have images."""


def render(folder: Path) -> list[Json]:
    """The objects of a kustomization."""
    command = ["kubectl", "kustomize"] if shutil.which("kubectl") else ["kustomize", "build"]
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr.lower(), done.stderr
    return list(yaml.safe_load_all(done.stdout))


def render_with(
    overlay: str,
    components: Iterable[str],
    scratch: Path,
    values: Mapping[str, str] | None = None,
) -> list[Json]:
    """The objects of an overlay with other components in the place of its own, and other values."""
    copy = scratch / "deploy"
    if not copy.exists():
        shutil.copytree(DEPLOY, copy)
    shutil.rmtree(copy / "overlays")
    shutil.copytree(DEPLOY / "overlays", copy / "overlays")
    folder = copy / "overlays" / overlay
    written = yaml.safe_load((folder / "kustomization.yaml").read_text())
    written["components"] = [f"../../components/{name}" for name in components]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(written))
    if values:
        lines = "".join(
            f"{name}={value}\n" for name, value in {**values_of(overlay), **values}.items()
        )
        (folder / "values.env").write_text(lines)
    return render(folder)


def values_of(overlay: str) -> dict[str, str]:
    """What an overlay's values.env says."""
    lines = (DEPLOY / "overlays" / overlay / "values.env").read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def way_of(overlay: str) -> tuple[str, ...]:
    """The components that an overlay lists as it is."""
    text = (DEPLOY / "overlays" / overlay / "kustomization.yaml").read_text()
    return tuple(path.rpartition("/")[2] for path in yaml.safe_load(text).get("components", ()))


def additions_to(overlay: str) -> dict[str, tuple[str, ...]]:
    """By name: each addition to an overlay with what it needs, and all at once that go together."""
    suited = [name for name in ADDITIONS if name not in UNSUITED.get(overlay, ())]
    alone = {name: (*filter(None, [NEEDS.get(name)]), name) for name in suited}
    together = {
        "all with own stores": tuple(n for n in suited if n not in EXCLUDES.values()),
        "all with external stores": tuple(n for n in suited if n not in EXCLUDES),
    }
    return {**alone, **together}


def only(objects: Iterable[Json], kind: str, name: str = "proctor") -> Json:
    """The one object of that kind and name."""
    [found] = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(objects: Iterable[Json]) -> Json:
    """The PodSpec of the Deployment."""
    spec: Json = only(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def environment_of(objects: Iterable[Json], given: Mapping[str, str]) -> dict[str, str]:
    """What the container sees; `given` are the values that come from elsewhere."""
    objects = list(objects)
    found = settings_of(objects)
    for variable in pod_of(objects)["containers"][0].get("env", []):
        name = variable["name"]
        value = variable["value"] if "value" in variable else given[name]
        found[name] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], value)
    return found


def settings_of(objects: Iterable[Json]) -> dict[str, str]:
    """The ConfigMap that the pod takes its environment from."""
    objects = list(objects)
    [source] = pod_of(objects)["containers"][0]["envFrom"]
    name = source["configMapRef"]["name"]
    [found] = [o for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == name]
    return dict(found["data"])
