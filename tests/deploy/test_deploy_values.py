"""Each value of an overlay's values.env reaches every object that needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deploy.manifests import (
    DEPLOY,
    Json,
    additions_to,
    pod_of,
    render,
    render_with,
    settings_of,
    values_of,
    way_of,
)

OTHER = {
    "image": "mirror.test/team/proctor@sha256:" + "ab" * 32,
    "cpu": "48",
    "memory": "77Gi",
    "workers": "7",
    "replicas-min": "5",
    "replicas-max": "50",
    "prometheus-namespace": "watching",
    "policy-namespace": "models",
    "policy-port": "8123",
    "prometheus-release": "our-prometheus",
    "hostname": "rewards.test",
    "ingress-class": "our-ingress",
    "ingress-namespace": "our-ingress-pods",
    "gateway-class": "our-gateway",
    "gateway-namespace": "our-gateway-pods",
    "redis-image": "mirror.test/redis:1",
    "postgresql-image": "mirror.test/postgres:1",
    "postgresql-storage-class": "our-disks",
    "postgresql-storage": "51Gi",
    "redis-cidr": "10.1.2.0/24",
    "postgresql-cidr": "10.3.4.5/32",
    "environments-storage-class": "our-files",
    "environments-storage": "52Gi",
}
NOT_UNIQUE = {"cpu", "memory", "workers", "replicas-min", "replicas-max", "policy-port",
              "postgresql-storage", "environments-storage"}  # fmt: skip
"""Values that also stand for something else somewhere."""


def leaves(found: object, way: str = "") -> Iterator[tuple[str, str]]:
    """Each scalar within an object, with the path to it."""
    if isinstance(found, Mapping):
        for key, value in found.items():
            yield from leaves(value, f"{way} {key}")
    elif isinstance(found, list):
        for index, value in enumerate(found):
            yield from leaves(value, f"{way} {index}")
    else:
        yield way, str(found)


def places(objects: list[Json]) -> dict[str, str]:
    """Each scalar by its object and its path; a hash in a ConfigMap's name is left out."""
    found: dict[str, str] = {}
    for each in objects:
        name = each["metadata"]["name"]
        name = name.rsplit("-", 1)[0] if each["kind"] == "ConfigMap" else name
        found |= {f"{each['kind']} {name}{way}": text for way, text in leaves(each)}
    return found


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """For each value: where the objects differ when this one alone differs."""
    scratch = tmp_path_factory.mktemp("values")
    found: dict[str, set[str]] = {}
    for together in ("all with own stores", "all with external stores"):
        listed = (*way_of("prod"), *additions_to("prod")[together])
        before = places(render_with("prod", listed, scratch))
        for name, value in OTHER.items():
            after = places(render_with("prod", listed, scratch, {name: value}))
            assert before.keys() == after.keys()
            different = {place for place in before if before[place] != after[place]}
            different = {
                p for p in different if "configMapRef" not in p and " metadata name" not in p
            }
            assert all(value in after[place] for place in different), name
            if name not in NOT_UNIQUE:
                old = values_of("prod")[name]
                left = {p for p, text in after.items() if text == old or f".{old}." in text}
                assert left == set(), f"{name} is still {old}"
            found.setdefault(name, set()).update(different)
    return found


def test_every_value_is_tried() -> None:
    assert OTHER.keys() == values_of("prod").keys()
    assert OTHER.items().isdisjoint(values_of("prod").items())


def test_every_value_reaches_an_object(changed: dict[str, set[str]]) -> None:
    counts = {name: len(where) for name, where in changed.items()}
    twice = {"image", "cpu", "memory", "policy-namespace", "prometheus-release"}
    four = {"hostname"}
    assert counts == {name: 4 if name in four else 2 if name in twice else 1 for name in OTHER}


def test_an_image_of_ours_is_nowhere_but_in_the_values(changed: dict[str, set[str]]) -> None:
    assert {place.split()[5] for place in changed["image"]} == {"containers", "initContainers"}


def test_numbers_stay_numbers_and_texts_texts(tmp_path: Path) -> None:
    objects = render_with("prod", way_of("prod"), tmp_path, OTHER)
    [scaler] = [each for each in objects if each["kind"] == "HorizontalPodAutoscaler"]
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (5, 50)
    assert settings_of(objects)["PROCTOR_WORKERS"] == "7"
    assert settings_of(objects)["PROCTOR_POLICY_HOSTS"] == '["*.models.svc.cluster.local"]'
    limits = pod_of(objects)["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "48", "memory": "77Gi"}


def test_the_values_stay_out_of_the_cluster() -> None:
    names = [each["metadata"]["name"] for each in render(DEPLOY / "overlays" / "prod")]
    assert not any("values" in name for name in names)


def test_the_files_of_components_agree_with_the_values(tmp_path: Path) -> None:
    """Other overlays have these values from the components, where values.env is not."""
    for together in ("all with own stores", "all with external stores"):
        listed = (*way_of("dev"), *additions_to("dev")[together])
        found = set(places(render_with("dev", listed, tmp_path)).values())
        mine = {"redis-image", "postgresql-image", "postgresql-storage-class", "hostname",
                "environments-storage-class", "ingress-class", "gateway-class"}  # fmt: skip
        stores = {"redis-image", "postgresql-image", "postgresql-storage-class"}
        for name in mine - (stores if "external" in together else set()):
            assert values_of("prod")[name] in found, name
