"""The components for single platforms fit Kubernetes, the pods, and the page that names them."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from deploy.manifests import DEPLOY, Json, only, pod_of, render, render_with
from deploy.pods import WRITABLE_CGROUPS

PAGE = (DEPLOY / "platforms.md").read_text()
NAMES = ("GKE Standard", "GKE Autopilot", "AL2023", "Bottlerocket", "AKS", "OpenShift", "CoreWeave",
         "kind", "k3s")  # fmt: skip


def container_of(objects: list[Json]) -> Json:
    """The only container of the Deployment."""
    [found] = pod_of(objects)["containers"]
    container: Json = found
    return container


def test_the_constraint_of_openshift_admits_the_pod_and_no_more(tmp_path: Path) -> None:
    file = DEPLOY / "openshift" / "securitycontextconstraints.yaml"
    constraint = yaml.safe_load(file.read_text())
    objects = render_with("prod", ("user-namespaces", "openshift"), tmp_path)
    pod, container = pod_of(objects), container_of(objects)
    context = {**pod["securityContext"], **container["securityContext"]}
    assert pod["hostUsers"] is False
    assert constraint["userNamespaceLevel"] == "RequirePodLevel"
    assert constraint["runAsUser"] == {"type": "MustRunAs", "uid": context["runAsUser"]}
    [ids] = constraint["fsGroup"]["ranges"]
    assert ids == {"min": context["fsGroup"], "max": context["fsGroup"]}
    assert constraint["seLinuxContext"]["seLinuxOptions"] == context["seLinuxOptions"]
    assert context["seccompProfile"]["type"].lower() in constraint["seccompProfiles"]
    assert constraint["requiredDropCapabilities"] == context["capabilities"]["drop"] == ["ALL"]
    assert constraint["allowPrivilegeEscalation"] is context["allowPrivilegeEscalation"] is False
    assert constraint["readOnlyRootFilesystem"] is context["readOnlyRootFilesystem"] is True
    kinds = {next(key for key in volume if key != "name") for volume in pod["volumes"]}
    assert kinds <= set(constraint["volumes"])
    assert not any(value for name, value in constraint.items() if name.startswith("allowHost"))


def test_the_service_account_may_use_the_constraint(tmp_path: Path) -> None:
    file = DEPLOY / "openshift" / "securitycontextconstraints.yaml"
    name = yaml.safe_load(file.read_text())["metadata"]["name"]
    objects = render_with("prod", ("user-namespaces", "openshift"), tmp_path)
    template = only(objects, "Deployment")["spec"]["template"]
    assert template["metadata"]["annotations"]["openshift.io/required-scc"] == name
    [rule] = only(objects, "Role", "proctor-scc")["rules"]
    assert rule["resourceNames"] == [name]
    binding = only(objects, "RoleBinding", "proctor-scc")
    assert binding["roleRef"]["name"] == "proctor-scc"
    [subject] = binding["subjects"]
    assert subject["name"] == template["spec"]["serviceAccountName"]


def test_the_runtime_class_is_the_one_that_the_page_defines(tmp_path: Path) -> None:
    objects = render_with("prod", ("user-namespaces", "writable-cgroups"), tmp_path)
    found = only(objects, "RuntimeClass", WRITABLE_CGROUPS)
    assert pod_of(objects)["runtimeClassName"] == found["metadata"]["name"]
    assert f"runtimes.{found['handler']}]\n" in PAGE
    assert "namespace" not in found["metadata"]


def test_on_gke_the_annotation_names_the_container(tmp_path: Path) -> None:
    objects = render_with("prod", ("user-namespaces", "writable-cgroups-gke"), tmp_path)
    name = container_of(objects)["name"]
    [annotation] = only(objects, "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotation == f"node.gke.io/enable-writable-cgroups.{name}"
    resources = container_of(objects)["resources"]
    assert resources["requests"] == resources["limits"]


def test_the_profile_of_apparmor_is_the_one_that_the_pod_names(tmp_path: Path) -> None:
    objects = render_with("prod", ("user-namespaces", "apparmor-profile"), tmp_path)
    profile = container_of(objects)["securityContext"]["appArmorProfile"]
    assert profile == {"type": "Localhost", "localhostProfile": "proctor"}
    text = (DEPLOY / "apparmor" / "proctor").read_text()
    assert "\nprofile proctor " in text
    for rule in ("userns", "capability", "mount", "umount", "pivot_root"):
        assert f"\n  {rule},\n" in text


def test_the_page_has_every_platform_and_a_source_for_every_claim() -> None:
    table = PAGE.partition("## The platforms")[2].partition("\n\n")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert all(any(name in row[0] for row in rows) for name in NAMES)
    for row in rows:
        for cell in row[2:]:
            own = ("not found", "as above", "your machine")
            assert "][" in cell or any(word in cell for word in own), (row[0], cell)
    assert "This page is untested on real clusters" in PAGE


def test_every_source_of_the_page_is_used_and_defined() -> None:
    defined = set(re.findall(r"^\[([^\]]+)\]: https://", PAGE, re.MULTILINE))
    used = set(re.findall(r"\]\[([^\]]+)\]", PAGE))
    assert used == defined


def test_every_component_of_the_page_exists() -> None:
    table = PAGE.partition("## The platforms")[2].partition("\n\n")[2].partition("\n\n")[0]
    named = {name for line in table.splitlines()[2:] for name in
             re.findall(r"`([a-z-]+)`", line.split(" | ")[1])}  # fmt: skip
    there = {path.name for kind in ("components", "overlays") for path in (DEPLOY / kind).iterdir()}
    assert named <= there
    for path in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (DEPLOY / path).resolve().exists(), path


def test_every_overlay_is_admitted_without_the_components_of_platforms() -> None:
    kinds = {found["kind"] for found in render(DEPLOY / "overlays" / "prod")}
    assert kinds.isdisjoint({"RuntimeClass", "Role", "RoleBinding"})
