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
USED = "  - ../../components/user-namespaces\n"
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


def render(folder: Path) -> list[Json]:
    """The objects of a kustomization."""
    command = ["kubectl", "kustomize"] if shutil.which("kubectl") else ["kustomize", "build"]
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr.lower(), done.stderr
    return list(yaml.safe_load_all(done.stdout))


def render_with(overlay: str, components: Iterable[str], scratch: Path) -> list[Json]:
    """The objects of an overlay with other components in the place of its own."""
    copy = scratch / "deploy"
    if not copy.exists():
        shutil.copytree(DEPLOY, copy)
    file = copy / "overlays" / overlay / "kustomization.yaml"
    text = (DEPLOY / "overlays" / overlay / "kustomization.yaml").read_text()
    assert USED in text
    lines = "".join(f"  - ../../components/{name}\n" for name in components)
    file.write_text(text.replace(USED, lines))
    return render(file.parent)


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
