"""The manifests are what Kubernetes takes, and fit the service, each other, and what they promise."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from harness import NoBackend
from pydantic import SecretStr

from deploy.manifests import (
    DEPLOY,
    OVERLAYS,
    ROOT,
    Json,
    environment_of,
    only,
    pod_of,
    render,
)
from deploy.pods import bytes_of, cores_of
from deploy.schemas import VERSIONS, validate
from proctor_service.app import build_app
from proctor_service.sandbox.linux import seccomp
from proctor_service.settings import Settings
from proctor_service.settings.sources import variables_of

GIVEN = {"POD_IP": "10.0.0.7", "PROCTOR_AVIATO_API_KEY": "a key"}
SERVICE_MB = 1024  # of memory, for the service itself
WORKER_MB = 256  # for a judge process
LOCAL = ("dev", "prod")
MARGIN_SECONDS = 5.0


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    """Each overlay's name."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def objects(overlay: str) -> list[Json]:
    """What it renders to."""
    return render(DEPLOY / "overlays" / overlay)


def all_of(kind: str, objects: Iterable[Json]) -> list[Json]:
    """The objects of that kind."""
    return [each for each in objects if each["kind"] == kind]


def test_the_schemas_refuse_what_is_wrong() -> None:
    found = only(render(DEPLOY / "overlays" / "prod"), "Deployment")
    pod = found["spec"]["template"]["spec"]
    pod["hostUser"] = pod.pop("hostUsers")
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(found, VERSIONS[-1])
    monitor = only(render(DEPLOY / "overlays" / "prod"), "ServiceMonitor")
    monitor["spec"]["endpoints"][0]["prot"] = "http"
    with pytest.raises(jsonschema.ValidationError):
        validate(monitor, VERSIONS[-1])


def test_every_file_is_used() -> None:
    texts = [path.read_text() for path in DEPLOY.glob("**/kustomization.yaml")]
    for path in DEPLOY.glob("*/**/*.yaml"):
        if path.name not in ("kustomization.yaml", "rules.yaml", "rules_test.yaml", "adapter.yaml"):
            assert any(path.name in text for text in texts), path


# ------------------------------------------------------------ fits the service


def names_of_the_environment() -> set[str]:
    """Every variable that the settings read."""
    fields = Settings.model_fields.items()
    return {variable for name, field in fields for variable in variables_of(name, field)}


def test_every_variable_is_a_setting(objects: list[Json]) -> None:
    written = environment_of(objects, GIVEN).keys() - GIVEN.keys()
    assert written <= names_of_the_environment()


def test_no_variable_of_a_file_is_unknown() -> None:
    of_the_build = "PROCTOR_COMMIT"  # hatch_build.py reads it
    known = names_of_the_environment() | {"PROCTOR_", of_the_build}
    files = [*DEPLOY.glob("**/*.yaml"), *DEPLOY.glob("**/*.env"), *DEPLOY.glob("**/*.md")]
    for path in [*files, ROOT / "Dockerfile"]:
        for name in re.findall(r"PROCTOR_[A-Z_]*", path.read_text()):
            assert name in known, f"{path.relative_to(ROOT)}: {name}"


def settings_in(objects: list[Json], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """The settings as the service reads them in the pod."""
    tokens = tmp_path / "tokens.json"
    tokens.write_text('{"trainer": "a token"}')
    for name, value in environment_of(objects, GIVEN).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PROCTOR_TOKENS_FILE", str(tokens))
    return Settings()


def test_the_settings_are_read(
    objects: list[Json], overlay: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = settings_in(objects, monkeypatch, tmp_path)
    [port] = pod_of(objects)["containers"][0]["ports"]
    assert settings.port == port["containerPort"]
    assert settings.backend == ("aviato" if overlay == "aviato" else "local")
    assert settings.journal == SecretStr("off")
    assert settings.policy_hosts == (["*.inference.svc.cluster.local"] if overlay == "prod" else [])


def test_the_drain_fits_into_the_grace_period(
    objects: list[Json], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = settings_in(objects, monkeypatch, tmp_path)
    pod = pod_of(objects)
    _, waits = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    needed = float(waits) + settings.grace_seconds + MARGIN_SECONDS
    assert pod["terminationGracePeriodSeconds"] >= needed


@pytest.mark.parametrize("local", LOCAL)
def test_the_pod_is_as_large_as_its_sandboxes(
    local: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    objects = render(DEPLOY / "overlays" / local)
    settings = settings_in(objects, monkeypatch, tmp_path)
    limits = pod_of(objects)["containers"][0]["resources"]["limits"]
    monkeypatch.setattr("proctor_service.settings.cores", lambda: int(cores_of(limits["cpu"])))
    assert settings.slot_count() == cores_of(limits["cpu"]) + 2
    assert settings.worker_count() == (2 if local == "prod" else 0)
    sandboxes = settings.slot_count() + settings.stateful_count()
    needed_mb = SERVICE_MB + settings.worker_count() * WORKER_MB
    needed_mb += sandboxes * (settings.memory_mb + settings.disk_mb)
    assert bytes_of(limits["memory"]) >= needed_mb << 20
    assert bytes_of(limits["memory"]) >= settings.max_memory_mb << 20


def test_the_probes_ask_for_routes_that_need_no_token(objects: list[Json]) -> None:
    app = build_app(Settings(), NoBackend())
    paths = app.openapi()["paths"].keys()
    container = pod_of(objects)["containers"][0]
    asked = {
        container[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("liveness", "readiness", "startup")
    }
    assert asked == {"/healthz", "/readyz"} <= paths


def test_the_seccomp_profile_leaves_sandboxes_what_they_may_call() -> None:
    profile = json.loads((DEPLOY / "seccomp" / "proctor.json").read_text())
    refused = {name for rule in profile["syscalls"] for name in rule["names"]}
    assert refused.isdisjoint(seccomp._ALLOWED)
    setting_up = ("clone", "mount", "pivot_root", "seccomp", "setns", "umount2", "unshare")
    assert refused.isdisjoint(setting_up)


# ------------------------------------------------------------ fits itself


def test_selectors_and_ports_meet(objects: list[Json]) -> None:
    deployment = only(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    pod = pod_of(objects)
    ports = {port["name"] for port in pod["containers"][0]["ports"]}
    service = only(objects, "Service")
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    assert (
        only(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items()
        <= labels.items()
    )
    budget = only(objects, "PodDisruptionBudget")["spec"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    for spread in pod["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"].items() <= labels.items()
    for monitor in all_of("ServiceMonitor", objects):
        assert (
            monitor["spec"]["selector"]["matchLabels"].items()
            <= service["metadata"]["labels"].items()
        )
        [endpoint] = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    for scaler in all_of("HorizontalPodAutoscaler", objects):
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
        assert "replicas" not in deployment["spec"]


def test_replicas_find_each_other(
    objects: list[Json], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = settings_in(objects, monkeypatch, tmp_path)
    among = only(objects, "Service", "proctor-replicas")
    [port] = among["spec"]["ports"]
    assert settings.peers == [f"dns://{among['metadata']['name']}:{port['port']}"]
    assert settings.advertise_url == f"http://{GIVEN['POD_IP']}:{port['port']}"
    assert among["spec"]["clusterIP"] == "None"
    assert among["spec"]["publishNotReadyAddresses"] is True
    assert "labels" not in among["metadata"]  # the ServiceMonitor would find every pod twice
    labels = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert among["spec"]["selector"].items() <= labels.items()


def test_the_autoscaler_asks_for_what_the_adapter_makes() -> None:
    made = {
        r["name"]["as"]
        for r in yaml.safe_load((DEPLOY / "prometheus/adapter.yaml").read_text())["rules"]
    }
    for name in ("prod", "aviato"):
        scaler = only(render(DEPLOY / "overlays" / name), "HorizontalPodAutoscaler")
        asked = {metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]}
        assert asked == made


def test_everything_is_in_one_namespace(objects: list[Json]) -> None:
    for found in objects:
        if found["kind"] != "Namespace":
            assert found["metadata"]["namespace"] == "proctor", found["metadata"]["name"]


# ------------------------------------------------------------ keeps its promises


def test_the_pod_holds_nothing_of_the_cluster(objects: list[Json]) -> None:
    pod = pod_of(objects)
    assert pod["automountServiceAccountToken"] is False
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False  # they would set PROCTOR_PORT
    assert not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
    assert {next(key for key in v if key != "name") for v in pod["volumes"]} == {"secret"}
    assert all_of("Secret", objects) == []  # nobody's token is in a repository


def test_an_image_is_never_whatever_is_latest(objects: list[Json]) -> None:
    _, tag = pod_of(objects)["containers"][0]["image"].rsplit(":", 1)
    assert tag != "latest"


def test_without_local_sandboxes_the_pod_is_restricted() -> None:
    objects = render(DEPLOY / "overlays" / "aviato")
    pod = pod_of(objects)
    [container] = pod["containers"]
    labels = only(objects, "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_with_user_namespaces_it_is_neither_root_nor_has_it_a_capability() -> None:
    for name in LOCAL:
        pod = pod_of(render(DEPLOY / "overlays" / name))
        context = pod["containers"][0]["securityContext"]
        assert pod["hostUsers"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert not context.get("privileged")


def peers(rules: Iterable[Json], way: str) -> Iterator[Json]:
    """Whom rules of a NetworkPolicy let through."""
    for rule in rules:
        assert rule[way], "a rule without peers lets everybody through"
        assert rule["ports"], "a rule without ports lets everything through"
        yield from rule[way]


def test_nobody_calls_or_is_called_unless_he_is_named(objects: list[Json], overlay: str) -> None:
    policy = only(objects, "NetworkPolicy")["spec"]
    assert sorted(policy["policyTypes"]) == ["Egress", "Ingress"]
    for peer in peers(policy["ingress"], "from"):
        assert "ipBlock" not in peer
        named = peer.get("podSelector", {}), peer.get("namespaceSelector", {})
        assert any(selector.get("matchLabels") for selector in named)
    blocks = [p["ipBlock"] for p in peers(policy["egress"], "to") if "ipBlock" in p]
    assert bool(blocks) == (overlay == "aviato")
    for block in blocks:
        assert_public_only(block)


def assert_public_only(block: Json) -> None:
    excepted = [ipaddress.ip_network(text) for text in block["except"]]
    version = ipaddress.ip_network(block["cidr"]).version
    private = {
        4: ("10.1.2.3", "172.20.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "127.0.0.1"),
        6: ("fd00::1", "fe80::1", "fd00:ec2::254"),
    }[version]
    for text in private:
        address: Any = ipaddress.ip_address(text)
        assert any(address in network for network in excepted), text


def test_the_guide_names_what_is_there() -> None:
    text = (DEPLOY / "README.md").read_text()
    for path in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (DEPLOY / path).exists(), path
    for folder in ("components", "overlays"):
        for each in (DEPLOY / folder).iterdir():
            assert f"`{each.name}`" in text, each.name
