"""`proctor doctor --kubernetes` in pods that lack something: it says what, and its remedy is one.

Each pod is played from a rendered manifest, first without what the finding is about, then with each
of the components that the finding names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from deploy.images import Image
from deploy.manifests import DEPLOY, Json, environment_of, pod_of, render, render_with
from deploy.pods import Pod, running

GIVEN = {"POD_IP": "127.0.0.1", "PROCTOR_AVIATO_API_KEY": "a key"}
TOKENS = {"trainer": "a-token-of-the-trainer"}
ALONE = {"PROCTOR_PEERS": "[]"}  # a pod that is played has no DNS
MAKERS = ("user-namespaces", "capabilities")
TOKEN = "/run/secrets/kubernetes.io/serviceaccount/token"

Findings = dict[str, dict[str, Any]]
Change = Callable[[Json], object]


def examine(objects: Iterable[Json], image: Image, **more: str) -> tuple[int, Findings]:
    """The status of the doctor in the Deployment's pod, and the findings by name."""
    objects = list(objects)
    seen = {**environment_of(objects, GIVEN), **ALONE, **more}
    spec = pod_of(objects)
    spec["containers"][0]["args"] = ["doctor", "--kubernetes", "--json"]
    files = {seen["PROCTOR_TOKENS_FILE"]: json.dumps(TOKENS), TOKEN: "a token of the cluster"}
    with running(Pod(spec, seen, files), image) as found:
        status = found.wait()
        said = json.loads(found.log.splitlines()[-1])
    return status, {each["name"]: each for each in said["pod"]}


def context(objects: Iterable[Json]) -> Json:
    """The security context of the container."""
    found: Json = pod_of(objects)["containers"][0]["securityContext"]
    return found


def without(name: str) -> Change:
    """Takes a field out of the security context, or a capability."""

    def change(found: Json) -> None:
        if name in found:
            del found[name]
        else:
            found["capabilities"]["add"].remove(name)

    return change


@pytest.mark.parametrize(
    ("way", "change", "name", "required"),
    [
        ("user-namespaces", without("seccompProfile"), "sandbox", True),
        ("user-namespaces", without("procMount"), "sandbox", True),
        ("capabilities", without("seccompProfile"), "sandbox", True),
        ("capabilities", without("SYS_ADMIN"), "capabilities", True),
        ("capabilities", without("NET_ADMIN"), "sandbox", True),
        ("capabilities", without("KILL"), "capabilities", True),
        ("user-namespaces", None, "hardening", False),
        ("capabilities", None, "user", False),
        ("capabilities", None, "cgroups", False),
    ],
)
def test_what_a_pod_lacks_is_named_with_its_component(
    way: str, change: Change | None, name: str, required: bool, image: Image, tmp_path: Path
) -> None:
    lacking = render_with("dev", (way,), tmp_path)
    if change is not None:
        change(context(lacking))
    status, found = examine(lacking, image)
    assert not found[name]["ok"], found
    assert found[name]["required"] == required
    assert status == 1  # the cgroups that no pod has by default are enough for that
    assert "component" in found[name]["mend"] + found[name]["detail"]


def test_the_base_makes_no_sandboxes(image: Image) -> None:
    status, found = examine(render(DEPLOY / "overlays" / "aviato"), image, PROCTOR_BACKEND="local")
    assert status == 1
    assert "component user-namespaces" in found["sandbox"]["mend"]


@pytest.mark.parametrize(
    "way",
    [
        ("user-namespaces", "seccomp-profile"),
        ("user-namespaces", "capabilities", "seccomp-profile"),
    ],
    ids=" ".join,
)
def test_a_pod_that_has_all_lacks_only_cgroups(
    way: tuple[str, ...], image: Image, tmp_path: Path
) -> None:
    _, found = examine(render_with("dev", way, tmp_path), image)
    assert {name for name, each in found.items() if not each["ok"]} == {"cgroups"}, found


def test_with_writable_cgroups_nothing_is_missing(image: Image, tmp_path: Path) -> None:
    way = ("capabilities", "seccomp-profile", "writable-cgroups")
    status, found = examine(render_with("dev", way, tmp_path), image)
    assert status == 0, found
    assert {name for name, each in found.items() if not each["ok"]} == {"user"}, found


def test_at_aviato_a_pod_needs_nothing_and_has_nothing(image: Image) -> None:
    objects = render(DEPLOY / "overlays" / "aviato")
    status, found = examine(objects, image)
    assert status == 1
    assert {name for name, each in found.items() if not each["ok"]} == {"backend"}, found
    assert "aviato" in found["backend"]["detail"]  # the SDK, which is in the image of that overlay
    assert "sandbox" not in found


def test_what_the_base_has_is_missed(image: Image) -> None:
    objects = render(DEPLOY / "overlays" / "dev")
    for name in ("allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"):
        del context(objects)[name]
    spec = pod_of(objects)
    spec["volumes"].append({"name": "api", "secret": {"defaultMode": 0o440}})
    mount = {"name": "api", "mountPath": str(Path(TOKEN).parent)}
    spec["containers"][0]["volumeMounts"].append(mount)
    _, found = examine(objects, image, PROCTOR_MAX_STATEFUL_SANDBOXES="256")
    missed = {name for name, each in found.items() if not each["ok"]}
    assert missed >= {"hardening", "service_account", "memory_limit"}, found
    assert "readOnlyRootFilesystem" in found["hardening"]["detail"]
    assert all(found[name]["mend"] for name in missed)


def test_tokens_that_it_may_not_read_have_a_remedy(image: Image) -> None:
    objects = render(DEPLOY / "overlays" / "dev")
    for volume in pod_of(objects)["volumes"]:
        volume["secret"]["defaultMode"] = 0o400
    status, found = examine(objects, image)
    assert status == 1
    assert not found["settings"]["ok"]
    assert "fsGroup" in found["settings"]["mend"]


def test_without_dns_it_names_the_components_for_other_dns(image: Image) -> None:
    objects = render(DEPLOY / "overlays" / "dev")
    status, found = examine(objects, image, PROCTOR_PEERS='["dns://proctor-replicas:8080"]')
    assert status == 1
    assert "dns-nodelocal" in found["network"]["mend"]
