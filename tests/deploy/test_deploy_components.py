"""Each component alone and all together fit Kubernetes' schemas, and refer to what is there."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from deploy.manifests import (
    ADDITIONS,
    DEPLOY,
    EXCLUDES,
    NEEDS,
    OVERLAYS,
    PLATFORM_WAYS,
    UNSUITED,
    WAYS,
    Json,
    additions_to,
    only,
    pod_of,
    render,
    render_with,
    way_of,
)
from deploy.references import Reference, dangling, given_by_the_user, pods, selected
from deploy.schemas import VERSIONS, validate

Renderings = dict[str, list[Json]]
ALL_OVERLAYS = (*OVERLAYS, "aviato-statefulset")
STORES = {"redis": "proctor-redis", "postgresql": "proctor-postgresql"}


@pytest.fixture(scope="module")
def renderings(tmp_path_factory: pytest.TempPathFactory) -> Renderings:
    """Each overlay as it is, in each way to make sandboxes, with each component, and with all."""
    scratch = tmp_path_factory.mktemp("renderings")
    found = {}
    for overlay in ALL_OVERLAYS:
        found[overlay] = render(DEPLOY / "overlays" / overlay)
        for name, components in additions_to(overlay).items():
            listed = (*way_of(overlay), *components)
            found[f"{overlay} {name}"] = render_with(overlay, listed, scratch)
        for way in (*WAYS, *PLATFORM_WAYS) if way_of(overlay) else ():
            everything = (*way, *additions_to(overlay)["all with own stores"])
            found[f"{overlay} {way}"] = render_with(overlay, way, scratch)
            found[f"{overlay} {way} all"] = render_with(overlay, everything, scratch)
    return found


@pytest.fixture
def everything(renderings: Renderings) -> list[Json]:
    """The prod overlay with all components that go together; a test may change it."""
    copied: list[Json] = json.loads(json.dumps(renderings["prod all with own stores"]))
    return copied


def test_every_component_is_rendered() -> None:
    assert set(ALL_OVERLAYS) == {path.name for path in (DEPLOY / "overlays").iterdir()}
    known = {name for way in (*WAYS, *PLATFORM_WAYS) for name in way} | set(ADDITIONS)
    assert known == {path.name for path in (DEPLOY / "components").iterdir()}
    for overlay in ALL_OVERLAYS:
        names = set(ADDITIONS) - set(UNSUITED.get(overlay, ()))
        assert names <= additions_to(overlay).keys()
        together = {n for k, v in additions_to(overlay).items() if k.startswith("all") for n in v}
        assert names == together
    assert set(NEEDS) | set(EXCLUDES) | set(EXCLUDES.values()) <= set(ADDITIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_rendering_fits_the_schemas(renderings: Renderings, version: str) -> None:
    distinct = {json.dumps(each, sort_keys=True): each for o in renderings.values() for each in o}
    for each in distinct.values():
        validate(each, version)


def test_nothing_refers_to_what_is_not_there(renderings: Renderings) -> None:
    given = given_by_the_user()
    assert ("Secret", "proctor-tokens") in given
    for name, objects in renderings.items():
        assert dangling(objects, given) == set(), name


def test_a_missing_object_is_noticed(everything: list[Json]) -> None:
    given = given_by_the_user()
    referred = 0
    for kind in ("ConfigMap", "Service", "ServiceAccount", "PersistentVolumeClaim", "Gateway",
                 "Deployment", "StatefulSet"):  # fmt: skip
        for each in [e for e in everything if e["kind"] == kind]:
            if each["metadata"]["name"] != "proctor-dashboard":
                assert dangling([e for e in everything if e is not each], given), each["metadata"]
                referred += 1
    assert referred >= 12


def test_a_missing_thing_of_the_user_is_noticed(renderings: Renderings) -> None:
    given = given_by_the_user()
    for kind, name in given:
        fewer = {each: keys for each, keys in given.items() if each != (kind, name)}
        assert any(dangling(o, fewer) for o in renderings.values()), f"nobody needs {kind} {name}"
        for key in given[kind, name] if kind == "Secret" and "tls" not in name else ():
            fewer[kind, name] = given[kind, name] - {key}
            missing = Reference(kind, name, key)
            assert any(missing in dangling(o, fewer) for o in renderings.values()), missing


@pytest.mark.parametrize(
    ("kind", "name", "path", "value"),
    [
        ("Ingress", "proctor", "rules 0 http paths 0 backend service port name", "https"),
        ("HTTPRoute", "proctor", "rules 0 backendRefs 0 port", 80),
        ("HTTPRoute", "proctor", "parentRefs 0 sectionName", "http"),
        ("HorizontalPodAutoscaler", "proctor", "scaleTargetRef kind", "StatefulSet"),
        ("NetworkPolicy", "proctor-redis", "ingress 0 ports 0 port", "http"),
        ("NetworkPolicy", "proctor-to-postgresql", "egress 0 ports 0 port", "redis"),
        ("NetworkPolicy", "proctor-to-redis", "podSelector matchLabels", {"app": "proctor"}),
        ("Service", "proctor", "selector", {"app": "proctor"}),
        ("Service", "proctor-redis", "ports 0 port", 6380),
        ("Service", "proctor-redis", "ports 0 targetPort", "http"),
        ("Deployment", "proctor", "template spec containers 0 readinessProbe httpGet port", "web"),
        ("Deployment", "proctor", "template spec containers 0 volumeMounts 0 name", "tokenz"),
        ("Deployment", "proctor-redis", "template spec containers 0 env 0 name", "PASSWORD"),
        ("PodDisruptionBudget", "proctor", "selector matchLabels", {"app": "proctor"}),
        ("ServiceMonitor", "proctor", "endpoints 0 port", "metrics"),
    ],
)  # fmt: skip
def test_a_wrong_reference_is_noticed(
    everything: list[Json], kind: str, name: str, path: str, value: object
) -> None:
    place = only(everything, kind, name)["spec"]
    *way, last = [int(key) if key.isdigit() else key for key in path.split()]
    for key in way:
        place = place[key]
    assert place[last] != value
    place[last] = value
    assert dangling(everything, given_by_the_user())


# ------------------------------------------------------------ keep their promises


def test_every_pod_has_the_least_privileges(renderings: Renderings) -> None:
    own = {"proctor"}
    for objects in renderings.values():
        for pod in pods(objects):
            spec = pod["spec"]
            assert spec["automountServiceAccountToken"] is False
            assert spec["enableServiceLinks"] is False
            for container in (*spec.get("initContainers", ()), *spec["containers"]):
                context = {**spec["securityContext"], **container["securityContext"]}
                assert context["allowPrivilegeEscalation"] is False
                assert context["readOnlyRootFilesystem"] is True
                assert "limits" in container["resources"]
                if container["name"] not in own:
                    assert context["capabilities"] == {"drop": ["ALL"]}
                    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            if pod["metadata"]["labels"]["app.kubernetes.io/name"] not in own:
                assert spec["securityContext"]["runAsNonRoot"] is True
                assert "hostPath" not in json.dumps(spec)


def let_through(objects: list[Json], caller: Json, called: Json, port: str) -> bool:
    """Whether the network policies let one pod call another, at both ends."""
    return all(
        any(rule_names(rule, peer, port) for rule in rules_of(objects, pod, way))
        for pod, way, peer in ((caller, "egress", called), (called, "ingress", caller))
    )


def rules_of(objects: list[Json], pod: Json, way: str) -> Iterator[Json]:
    """The rules that hold for a pod, in one direction. None: nothing passes."""
    for policy in (each["spec"] for each in objects if each["kind"] == "NetworkPolicy"):
        if pod in selected(
            policy["podSelector"], [{"kind": "Deployment", "spec": {"template": pod}}]
        ):
            rules: list[Json] = policy.get(way, [])
            yield from rules


def rule_names(rule: Json, peer: Json, port: str) -> bool:
    """Whether a rule names this pod of the namespace, with this port."""
    alone = [{"kind": "Deployment", "spec": {"template": peer}}]
    named: list[Json] = rule.get("from") or rule.get("to") or []
    peers = [each["podSelector"] for each in named if "podSelector" in each]
    return port in [p["port"] for p in rule["ports"]] and any(selected(p, alone) for p in peers)


@pytest.mark.parametrize("port", STORES)
def test_the_service_alone_reaches_a_store_and_it_reaches_nobody(
    renderings: Renderings, port: str
) -> None:
    objects = renderings["prod all with own stores"]
    by_name = {pod["metadata"]["labels"]["app.kubernetes.io/name"]: pod for pod in pods(objects)}
    store, service = by_name[STORES[port]], by_name["proctor"]
    trainer = {"metadata": {"labels": {"proctor-client": "true"}}}
    assert let_through(objects, service, store, port)
    assert not list(rules_of(objects, store, "egress"))
    assert len(list(rules_of(objects, store, "ingress"))) == 1
    for other in (trainer, by_name[next(n for p, n in STORES.items() if p != port)]):
        assert not let_through(objects, other, store, port)
    without = renderings["prod"]
    assert not let_through([*without, *(o for o in objects if o["kind"] != "NetworkPolicy")],
                           service, store, port)  # fmt: skip


def test_the_init_container_has_neither_tokens_nor_a_share_in_the_store(
    everything: list[Json],
) -> None:
    pod = pod_of(everything)
    [init] = pod["initContainers"]
    [main] = pod["containers"]
    assert {mount["name"] for mount in init["volumeMounts"]}.isdisjoint({"tokens"})
    assert "envFrom" not in init
    assert not any("valueFrom" in variable for variable in init["env"])
    [mount] = [m for m in main["volumeMounts"] if m["name"] == "environments"]
    assert mount["readOnly"] is True
    shared = {v["name"]: v.get("value") for v in init["env"]}
    own = {("UV_NO_CACHE", "1"), ("PROCTOR_HOST", "127.0.0.1")}
    assert shared.items() - own <= {(v["name"], v.get("value")) for v in main["env"]}
