"""The overlay in which pods keep their names is the aviato overlay otherwise, and Kubernetes takes it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from deploy.manifests import DEPLOY, Json, only, render


@pytest.fixture(scope="module")
def objects() -> list[Json]:
    return render(DEPLOY / "overlays" / "aviato-statefulset")


def container_of(found: Json) -> Json:
    [container] = found["spec"]["template"]["spec"]["containers"]
    own: Json = container
    return own


def instance_of(container: Json, **fields: str) -> str:
    """PROCTOR_AVIATO_INSTANCE in a pod with these fields, as the kubelet makes it."""
    known: dict[str, str] = {}
    for variable in container["env"]:
        path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        text = fields.get(path, "") if path else variable.get("value", "")
        known[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda match: known[match[1]], text)
    return known["PROCTOR_AVIATO_INSTANCE"]


def test_a_stateful_set_is_in_the_place_of_the_deployment(objects: list[Json]) -> None:
    others = render(DEPLOY / "overlays" / "aviato")
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    expected = [(each["kind"], each["metadata"]["name"]) for each in others]
    assert sorted(names) == sorted(
        ("StatefulSet", name) if kind == "Deployment" else (kind, name) for kind, name in expected
    )
    mine, before = only(objects, "StatefulSet"), only(others, "Deployment")
    pods: list[dict[str, Any]] = [each["spec"]["template"] for each in (mine, before)]
    added = {"POD_NAME", "POD_NAMESPACE", "PROCTOR_AVIATO_INSTANCE"}
    assert added <= {variable["name"] for variable in container_of(mine)["env"]}
    container_of(mine)["env"] = [
        variable for variable in container_of(mine)["env"] if variable["name"] not in added
    ]
    assert pods[0] == pods[1]
    assert mine["spec"]["selector"] == before["spec"]["selector"]


def test_its_service_has_no_address_of_its_own(objects: list[Json]) -> None:
    among = only(objects, "Service", only(objects, "StatefulSet")["spec"]["serviceName"])
    assert among["spec"]["clusterIP"] == "None"


def test_a_pod_keeps_its_name_at_aviato_and_shares_it_with_none() -> None:
    container = container_of(
        only(render(DEPLOY / "overlays" / "aviato-statefulset"), "StatefulSet")
    )
    pods = [("proctor", "proctor-0"), ("proctor", "proctor-1"), ("other", "proctor-0")]
    names = [
        instance_of(container, **{"metadata.namespace": space, "metadata.name": name})
        for space, name in pods
    ]
    assert names == ["proctor-proctor-0", "proctor-proctor-1", "other-proctor-0"]
