"""What rendered objects refer to, and what of that is neither among them nor made by the user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from deploy.manifests import DEPLOY, Json

WORKLOADS = ("Deployment", "StatefulSet")
ADDRESS = re.compile(r"(?:dns|redis|postgresql)://(?:[^@/]*@)?([a-z0-9.-]+):(\d+)")
NAMESPACE = "kubernetes.io/metadata.name"
TOPOLOGIES = {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
FIELDS = {"status.podIP", "metadata.name", "metadata.namespace"}


@dataclass(frozen=True, order=True)
class Reference:
    """An object that another one names; `part` is a key, a port or a listener of it."""

    kind: str
    name: str
    part: str = ""


def given_by_the_user() -> dict[tuple[str, str], set[str]]:
    """What the table of the README says is made by hand: the keys by kind and name."""
    text = (DEPLOY / "README.md").read_text()
    found: dict[tuple[str, str], set[str]] = {}
    for kind, names, keys in re.findall(r"^\| ([A-Z]\w+) \| (`[^|]*`) \| ([^|]*)\|", text, re.M):
        for name in re.findall(r"`([^`]+)`", names):
            found.setdefault((kind, name), set()).update(re.findall(r"`([^`]+)`", keys))
    return found


def dangling(objects: Iterable[Json], given: Mapping[tuple[str, str], set[str]]) -> set[Reference]:
    """The references that lead nowhere."""
    objects = list(objects)
    there = {**given, **{_id(each): _parts(each) for each in objects}}
    return {
        reference
        for each in objects
        for reference in _of(each, objects)
        if (reference.kind, reference.name) not in there
        or (reference.part and reference.part not in there[reference.kind, reference.name])
    }


def pods(objects: Iterable[Json]) -> Iterator[Json]:
    """The pod templates."""
    for each in objects:
        if each["kind"] in WORKLOADS:
            yield each["spec"]["template"]


def selected(selector: Json, objects: Iterable[Json]) -> list[Json]:
    """The pod templates whose labels a selector names."""
    wanted = selector.get("matchLabels", {}).items()
    return [pod for pod in pods(objects) if wanted <= pod["metadata"]["labels"].items()]


def port_names(pod: Json) -> set[str]:
    """The names of the ports of a pod."""
    return {port["name"] for each in pod["spec"]["containers"] for port in each.get("ports", ())}


def _id(found: Json) -> tuple[str, str]:
    return found["kind"], found["metadata"]["name"]


def _parts(found: Json) -> set[str]:
    """Keys of a ConfigMap, ports of a Service, listeners of a Gateway."""
    spec = found.get("spec", {})
    if found["kind"] == "Service":
        return {str(port[key]) for port in spec["ports"] for key in ("name", "port")}
    if found["kind"] == "Gateway":
        return {listener["name"] for listener in spec["listeners"]}
    return set(found.get("data", {}))


def _of(found: Json, objects: list[Json]) -> Iterator[Reference]:
    kind, spec = found["kind"], found.get("spec", {})
    if kind in WORKLOADS:
        yield from _of_workload(found)
    elif kind == "Service":
        yield from _selects({"matchLabels": spec["selector"]}, objects)
        ports = [port["targetPort"] for port in spec["ports"]]
        yield from _has_ports(selected({"matchLabels": spec["selector"]}, objects), ports)
    elif kind == "PodDisruptionBudget":
        yield from _selects(spec["selector"], objects)
    elif kind == "HorizontalPodAutoscaler":
        target = spec["scaleTargetRef"]
        yield Reference(target["kind"], target["name"])
    elif kind == "NetworkPolicy":
        yield from _of_policy(spec, objects)
    elif kind == "RoleBinding":
        yield Reference(found["roleRef"]["kind"], found["roleRef"]["name"])
        yield from (Reference(each["kind"], each["name"]) for each in found["subjects"])
    elif kind == "PersistentVolumeClaim":
        yield Reference("StorageClass", spec["storageClassName"])
    elif kind == "ConfigMap" and not found["metadata"]["name"].endswith("dashboard"):
        yield from _addresses(found["data"].values())
    elif kind in ("Ingress", "Gateway", "HTTPRoute", "ServiceMonitor"):
        yield from _of_route(kind, spec, objects)


def _of_workload(found: Json) -> Iterator[Reference]:
    spec, pod = found["spec"], found["spec"]["template"]
    labels = pod["metadata"]["labels"].items()
    wanted = [spec["selector"], *(s["labelSelector"] for s in _spreads(pod["spec"]))]
    if not all(each["matchLabels"].items() <= labels for each in wanted):
        yield Reference("Pod", str(wanted))
    if "serviceName" in spec:
        yield Reference("Service", spec["serviceName"])
    claims = {
        each["metadata"]["name"]: each["spec"] for each in spec.get("volumeClaimTemplates", ())
    }
    for claim in claims.values():
        yield Reference("StorageClass", claim["storageClassName"])
    yield from _of_pod(pod["spec"], set(claims))


def _spreads(pod: Json) -> list[Json]:
    spreads: list[Json] = pod.get("topologySpreadConstraints", [])
    assert {each["topologyKey"] for each in spreads} <= TOPOLOGIES
    return spreads


def _of_pod(pod: Json, claims: set[str]) -> Iterator[Reference]:
    if "serviceAccountName" in pod:
        yield Reference("ServiceAccount", pod["serviceAccountName"])
    if "runtimeClassName" in pod:
        yield Reference("RuntimeClass", pod["runtimeClassName"])
    for each in pod.get("imagePullSecrets", ()):
        yield Reference("Secret", each["name"])
    for volume in pod.get("volumes", ()):
        yield from _of_volume(volume)
    names = [volume["name"] for volume in pod.get("volumes", ())]
    containers = [*pod.get("initContainers", ()), *pod["containers"]]
    for listed in (names, [each["name"] for each in containers]):
        assert len(set(listed)) == len(listed), listed
    for container in containers:
        mounts = {mount["name"] for mount in container.get("volumeMounts", ())}
        for name in mounts - {*names, *claims}:
            yield Reference("Volume", name)
        yield from _of_container(container)


def _of_volume(volume: Json) -> Iterator[Reference]:
    if "secret" in volume:
        keys = [item["key"] for item in volume["secret"].get("items", ())]
        yield from (
            Reference("Secret", volume["secret"]["secretName"], key) for key in keys or [""]
        )
    if "configMap" in volume:
        yield Reference("ConfigMap", volume["configMap"]["name"])
    if "persistentVolumeClaim" in volume:
        yield Reference("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
    assert len(volume) == 2, f"one source for {volume}"


def _of_container(container: Json) -> Iterator[Reference]:
    ports = {port["name"] for port in container.get("ports", ())}
    for kind in ("startup", "liveness", "readiness"):
        probe = container.get(f"{kind}Probe", {})
        asked = probe.get("httpGet", probe.get("tcpSocket"))
        if asked and asked["port"] not in ports:
            yield Reference("Port", asked["port"])
    for source in container.get("envFrom", ()):
        yield Reference("ConfigMap", source["configMapRef"]["name"])
    known: set[str] = set()
    for variable in container.get("env", ()):
        assert len(variable) == 2, variable
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            yield Reference("Secret", reference["name"], reference["key"])
        elif source:
            assert source["fieldRef"]["fieldPath"] in FIELDS
        known.add(variable["name"])
        yield from _variables(variable.get("value", ""), known)
        yield from _addresses([variable.get("value", "")])
    for text in [*container.get("command", ()), *container.get("args", ())]:
        yield from _variables(text, known)


def _variables(text: str, known: set[str]) -> Iterator[Reference]:
    for name in re.findall(r"\$\((\w+)\)", text):
        if (
            name not in known
        ):  # Kubernetes expands what stands before it, and leaves the rest as it is
            yield Reference("Variable", name)


def _addresses(texts: Iterable[str]) -> Iterator[Reference]:
    for text in texts:
        for name, port in ADDRESS.findall(text):
            yield Reference("Service", name, port)


def _selects(selector: Json, objects: list[Json]) -> Iterator[Reference]:
    if not selected(selector, objects):
        yield Reference("Pod", str(selector["matchLabels"]))


def _has_ports(them: list[Json], ports: Iterable[object]) -> Iterator[Reference]:
    for port in ports:
        if isinstance(port, str) and not all(port in port_names(pod) for pod in them):
            yield Reference("Port", port)


def _of_policy(spec: Json, objects: list[Json]) -> Iterator[Reference]:
    yield from _selects(spec["podSelector"], objects)
    for rule in spec.get("ingress", ()):
        ports = [port["port"] for port in rule["ports"]]
        yield from _has_ports(selected(spec["podSelector"], objects), ports)
    for rule in [*spec.get("ingress", ()), *spec.get("egress", ())]:
        for peer in rule.get("from", rule.get("to", ())):
            if name := peer.get("namespaceSelector", {}).get("matchLabels", {}).get(NAMESPACE):
                yield Reference("Namespace", name)
            elif "podSelector" in peer and "namespaceSelector" not in peer:
                yield from _selects(peer["podSelector"], objects)
                if "to" in rule:
                    called = selected(peer["podSelector"], objects)
                    yield from _has_ports(called, (port["port"] for port in rule["ports"]))


def _of_route(kind: str, spec: Json, objects: list[Json]) -> Iterator[Reference]:
    if kind == "Ingress":
        yield Reference("IngressClass", spec["ingressClassName"])
        yield from (Reference("Secret", each["secretName"]) for each in spec["tls"])
        for rule in spec["rules"]:
            for path in rule["http"]["paths"]:
                service = path["backend"]["service"]
                yield Reference("Service", service["name"], service["port"]["name"])
    elif kind == "Gateway":
        yield Reference("GatewayClass", spec["gatewayClassName"])
        for listener in spec["listeners"]:
            yield from (Reference("Secret", r["name"]) for r in listener["tls"]["certificateRefs"])
    elif kind == "HTTPRoute":
        for parent in spec["parentRefs"]:
            yield Reference("Gateway", parent["name"], parent["sectionName"])
        for rule in spec["rules"]:
            for backend in rule["backendRefs"]:
                yield Reference("Service", backend["name"], str(backend["port"]))
    else:
        wanted = spec["selector"]["matchLabels"].items()
        services = [each for each in objects if each["kind"] == "Service"]
        found = [s for s in services if wanted <= s["metadata"].get("labels", {}).items()]
        if not found:
            yield Reference("Service", str(spec["selector"]))
        for endpoint in spec["endpoints"]:
            yield from (Reference("Service", _id(s)[1], endpoint["port"]) for s in found)
            credentials = endpoint["authorization"]["credentials"]
            yield Reference("Secret", credentials["name"], credentials["key"])
