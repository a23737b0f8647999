"""`proctor doctor --kubernetes`: what it says of pods of every kind, from what the kernel tells."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from command_line import proctor
from pydantic import SecretStr

import proctor_service.composition
from proctor_service.cli.pod import pod_check
from proctor_service.cli.pod.facts import BITS, PodFacts, read_facts
from proctor_service.cli.pod.pod_check import PodCheck
from proctor_service.cli.pod.privileges import common_checks, restricted_checks, sandbox_checks
from proctor_service.cli.pod.reach import reach_checks
from proctor_service.cli.pod.resources import resource_checks
from proctor_service.errors import StartError
from proctor_service.sandbox.interface import MachineCheck
from proctor_service.sandbox.linux.trial import STEPS
from proctor_service.settings import Settings

pytestmark = pytest.mark.usefixtures("no_settings")

COMPONENTS = Path(__file__).resolve().parents[2] / "deploy" / "components"
EIGHT = sum(1 << bit for bit in BITS.values())
SOUND = PodFacts(
    user=10001,
    own_user_namespace=True,
    changes_user=False,
    capabilities=0,
    no_new_privs=True,
    filtered=True,
    label="",
    apparmor_restricts=False,
    user_namespaces_allowed=True,
    masked=(),
    read_only_root=True,
    service_account_token=False,
    first_process="tini",
    memory_limit_mb=8192,
    kills_whole_pod=None,
    steps=dict.fromkeys(STEPS, 0),
)
"""The pod of the components user-namespaces and seccomp-profile."""
CGROUPS = [
    MachineCheck("memory_cgroup", True, "cgroup v2"),
    MachineCheck("pids_cgroup", True, "cgroup v2"),
]


def missing(checks: Iterable[PodCheck]) -> dict[str, PodCheck]:
    """What is not as it is to be, by name."""
    return {check.name: check for check in checks if not check.ok}


def of_sandboxes(facts: PodFacts) -> dict[str, PodCheck]:
    """What is missing for sandboxes."""
    return missing([*sandbox_checks(facts), *common_checks(facts)])


def stopped_at(step: str, code: int = errno.EPERM) -> dict[str, int]:
    """What the trial tells when this step is refused."""
    steps = dict.fromkeys(STEPS[: STEPS.index(step)], 0)
    return {**steps, step: code}


def test_a_sound_pod_lacks_nothing() -> None:
    assert of_sandboxes(SOUND) == {}
    assert missing(restricted_checks(SOUND)) == {}


def test_a_check_is_frozen() -> None:
    for made in (SOUND, PodCheck("a", True, "b")):
        with pytest.raises(AttributeError):
            setattr(made, fields(made)[0].name, "other")


@pytest.mark.parametrize(
    ("facts", "name", "components"),
    [
        (
            replace(SOUND, steps=stopped_at("unshare")),
            "namespaces",
            (("user-namespaces",), ("capabilities",)),
        ),
        (
            replace(SOUND, user_namespaces_allowed=False, steps=stopped_at("unshare")),
            "namespaces",
            (("capabilities",),),
        ),
        (
            replace(
                SOUND,
                label="unconfined",
                apparmor_restricts=True,
                steps=stopped_at("mount", errno.EACCES),
            ),
            "mounts",
            (("user-namespaces", "capabilities"), ("user-namespaces", "apparmor-profile")),
        ),
        (
            replace(
                SOUND,
                label="system_u:system_r:container_t:s0:c1,c2",
                steps=stopped_at("mount", errno.EACCES),
            ),
            "mounts",
            (("user-namespaces", "selinux"), ("openshift",), ("capabilities", "selinux")),
        ),
        (
            replace(SOUND, user=0, changes_user=True, capabilities=EIGHT & ~(1 << 12)),
            "capabilities",
            (("capabilities",),),
        ),
        (replace(SOUND, own_user_namespace=False), "user", (("user-namespaces",),)),
        (replace(SOUND, filtered=False), "seccomp_profile", (("seccomp-profile",),)),
    ],
)
def test_what_is_missing_names_its_components(
    facts: PodFacts, name: str, components: tuple[tuple[str, ...], ...]
) -> None:
    found = of_sandboxes(facts)[name]
    assert found.components == components
    assert found.remedy().startswith("component ")


def test_a_label_that_refuses_a_step_is_missing_itself() -> None:
    label = "cri-containerd.apparmor.d (enforce)"
    found = of_sandboxes(replace(SOUND, label=label, steps=stopped_at("mount", errno.EACCES)))
    assert set(found) == {"mounts", "apparmor"}
    assert label in found["mounts"].mend
    assert of_sandboxes(replace(SOUND, label=label)) == {}


def test_root_of_the_pod_has_the_eight_capabilities_and_no_other() -> None:
    root = replace(SOUND, user=0, changes_user=True, capabilities=EIGHT)
    assert of_sandboxes(root) == {}
    found = of_sandboxes(replace(root, capabilities=EIGHT | 1))
    assert "1 others" in found["capabilities"].detail
    assert not found["capabilities"].required


def test_without_sandboxes_a_pod_has_no_privilege() -> None:
    facts = replace(SOUND, user=0, capabilities=1 << BITS["SYS_ADMIN"], filtered=False)
    assert set(missing(restricted_checks(facts))) == {"user", "capabilities", "seccomp_profile"}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"no_new_privs": False}, "no_new_privs"),
        ({"read_only_root": False}, "read_only_root"),
        ({"service_account_token": True}, "service_account"),
        ({"first_process": "proctor"}, "first_process"),
    ],
)
def test_what_every_pod_has(change: dict[str, Any], name: str) -> None:
    assert set(missing(common_checks(replace(SOUND, **change)))) == {name}


def test_memory_is_that_of_all_sandboxes_and_the_service() -> None:
    settings = Settings(slots=4, max_stateful_sandboxes=8)
    needed_mb = 1024 + 12 * (512 + 64)
    for limit_mb, names in ((needed_mb, set()), (needed_mb - 1, {"memory_limit"})):
        facts = replace(SOUND, memory_limit_mb=limit_mb)
        assert set(missing(resource_checks(settings, facts, CGROUPS))) == names
    facts = replace(SOUND, memory_limit_mb=None)
    assert "no memory limit" in missing(resource_checks(settings, facts, []))["memory_limit"].detail


def test_cgroups_and_the_kubelet() -> None:
    settings = Settings(slots=4, max_stateful_sandboxes=8)
    facts = replace(SOUND, kills_whole_pod=True)
    checks = [MachineCheck("memory_cgroup", False, "read-only"), *CGROUPS[1:]]
    found = missing(resource_checks(settings, facts, checks))
    assert found["cgroups"].components == (("writable-cgroups",),)
    assert "singleProcessOOMKill" in found["oom_group"].mend


def test_every_component_that_it_names_exists() -> None:
    names = {
        value
        for name, value in vars(pod_check).items()
        if name.isupper() and isinstance(value, str)
    }
    assert names <= {path.name for path in COMPONENTS.iterdir()}


def test_this_machine_has_facts() -> None:
    facts = read_facts(61_000)
    assert set(facts.steps) <= set(STEPS)
    assert facts.steps["unshare"] == 0
    assert set(get_type_hints(PodFacts)) == {each.name for each in fields(facts)}


# ------------------------------------------------------------ what it reaches


def test_a_name_that_dns_does_not_know() -> None:
    settings = Settings(peers=["dns://nobody.invalid:8080"], advertise_url="http://10.0.0.7:8080")
    [found] = list(reach_checks(settings))
    assert (found.name, found.ok, found.required) == ("dns", False, True)
    assert "nobody.invalid" in found.detail


def test_nobody_answers_and_no_password_is_told() -> None:
    settings = Settings(
        redis_url=SecretStr("redis://:hush@127.0.0.1:1/0"),
        journal=SecretStr("postgresql://proctor:hush@127.0.0.1:1/journal"),
    )
    found = {check.name: check for check in reach_checks(settings)}
    assert found["dns"].ok
    assert found["redis"].components == (("redis",), ("redis-external",))
    assert found["postgresql"].components == (("postgresql",), ("postgresql-external",))
    assert not found["redis"].ok
    assert not found["postgresql"].ok
    assert "hush" not in repr(found)


def test_what_is_not_set_is_not_asked_for() -> None:
    assert list(reach_checks(Settings(journal=SecretStr("off")))) == []
    assert list(reach_checks(Settings(journal=SecretStr("sqlite:////tmp/journal.db")))) == []


# ------------------------------------------------------------ the command


def sound_machine(settings: Settings) -> list[MachineCheck]:
    """The checks of a machine that lacks nothing."""
    return [MachineCheck("namespaces", True, "in a user namespace", guards=True), *CGROUPS]


def test_the_command_prints_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proctor_service.composition, "doctor", sound_machine)
    monkeypatch.setenv("PROCTOR_PEERS", '["dns://nobody.invalid:8080"]')
    monkeypatch.setenv("PROCTOR_ADVERTISE_URL", "http://10.0.0.7:8080")
    said = proctor("doctor", "--kubernetes", "--json")
    body = json.loads(said.stdout)
    assert body["complete"] is False
    assert said.exit_code == 1
    assert {each["name"] for each in body["machine"]} == {
        "namespaces",
        "memory_cgroup",
        "pids_cgroup",
    }
    assert "dns" in {each["name"] for each in body["pod"] if not each["ok"]}


def test_a_backend_that_does_not_start_is_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(settings: Settings) -> list[MachineCheck]:
        raise StartError("no interpreter")

    monkeypatch.setattr(proctor_service.composition, "doctor", broken)
    said = proctor("doctor", "--kubernetes", "--json")
    found = {each["name"]: each for each in json.loads(said.stdout)["pod"]}
    assert said.exit_code == 1
    assert found["backend"]["detail"] == "no interpreter"
    assert "cgroups" not in found


def test_without_kubernetes_json_has_the_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proctor_service.composition, "doctor", sound_machine)
    said = proctor("doctor", "--json")
    assert said.exit_code == 0
    assert json.loads(said.stdout)["pod"] == []


@pytest.mark.parametrize(
    ("variable", "value", "hint"),
    [
        ("PROCTOR_PORT", "tcp://10.0.0.1:8080", "enableServiceLinks"),
        ("PROCTOR_HOST", "0.0.0.0", "proctor-tokens"),
        ("PROCTOR_TOKENS_FILE", "/nonexistent/tokens.json", "proctor-tokens"),
    ],
)
def test_invalid_settings_are_a_check_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, hint: str
) -> None:
    monkeypatch.setenv(variable, value)
    said = proctor("doctor", "--kubernetes")
    assert said.exit_code == 1
    assert hint in said.stdout
    assert "Isolation is incomplete: settings" in said.stdout
