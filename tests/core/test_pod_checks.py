"""`proctor doctor --kubernetes`: ten checks of the pod."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import proctor
from pydantic import SecretStr

import proctor_service.composition
from proctor_service.cli import pod
from proctor_service.cli.pod import BITS, pod_checks
from proctor_service.errors import StartError
from proctor_service.sandbox.interface import MachineCheck
from proctor_service.settings import Settings

pytestmark = pytest.mark.usefixtures("no_settings")

COMPONENTS = Path(__file__).resolve().parents[2] / "deploy" / "components"
COMPONENT = sum(1 << bit for bit in BITS.values())
CGROUPS = [
    MachineCheck("memory_cgroup", True, "cgroup v2"),
    MachineCheck("pids_cgroup", True, "cgroup v2"),
]


def checks(
    settings: Settings, machine: list[MachineCheck] | None = None
) -> dict[str, MachineCheck]:
    found = pod_checks(settings, CGROUPS if machine is None else machine)
    return {check.name: check for check in found}


def test_a_pod_without_sandboxes_of_its_own_needs_fewer_checks() -> None:
    local = {"user", "capabilities", "sandbox", "cgroups", "memory_limit", "hardening"}
    local |= {"service_account", "first_process", "network"}
    assert checks(Settings()).keys() == local
    away = checks(Settings(backend="aviato"))
    assert away.keys() == local - {"sandbox", "cgroups", "memory_limit"}


@pytest.mark.parametrize("user", [0, 10001])
def test_a_pod_without_sandboxes_of_its_own_may_have_any_user_but_root(
    monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    check = checks(Settings(backend="aviato"))["user"]
    assert (check.ok, check.detail) == (user != 0, f"user {user}")
    assert "runAsNonRoot" in check.mend


@pytest.mark.parametrize(
    ("held", "is_root", "ok", "required", "text"),
    [
        (0, False, True, False, "no capability"),
        (COMPONENT, True, True, False, "SYS_ADMIN"),
        (COMPONENT | 1 << 30, True, False, False, "1 others"),
        (COMPONENT & ~(1 << BITS["KILL"]), True, False, True, "without KILL"),
        (COMPONENT, False, False, False, "SYS_ADMIN"),
    ],
)
def test_root_of_the_pod_has_the_capabilities_of_the_component_and_no_other(
    held: int, is_root: bool, ok: bool, required: bool, text: str
) -> None:
    check = pod._capabilities(held, is_root=is_root)
    assert (check.ok, check.required) == (ok, required)
    assert text in check.detail


@pytest.mark.parametrize(
    ("output", "ok", "text"),
    [
        ("unshare 0\nmount 0\nproc 0\n", True, "all steps"),
        ("unshare 1\n", False, "unshare (Operation not permitted)"),
        ("mount 0\nproc 1\npivot_root 13\n", False, "proc (Operation not permitted), pivot"),
        ("", False, ""),
    ],
)
def test_a_step_of_a_sandbox_that_is_refused_is_named(
    monkeypatch: pytest.MonkeyPatch, output: str, ok: bool, text: str
) -> None:
    done = SimpleNamespace(stdout=output)
    monkeypatch.setattr("subprocess.run", lambda *command, **more: done)
    check = pod._sandbox(Settings(), 0)
    assert (check.ok, check.required) == (ok, True)
    assert text in check.detail
    assert "component user-namespaces" in check.mend


def test_memory_is_that_of_all_sandboxes_and_the_service() -> None:
    settings = Settings(slots=4, max_stateful_sandboxes=4, memory_mb=500, disk_mb=12)
    assert pod._memory(settings, 1024 + 8 * 512).ok
    short = pod._memory(settings, 1023 + 8 * 512)
    assert not short.ok
    assert "PROCTOR_SLOTS" in short.mend
    assert not pod._memory(settings, None).ok


def test_cgroups_are_those_of_the_machine() -> None:
    assert checks(Settings())["cgroups"].ok
    lost = checks(Settings(), [CGROUPS[0], MachineCheck("pids_cgroup", False, "read-only")])[
        "cgroups"
    ]
    assert (lost.ok, lost.detail) == (False, "no pids_cgroup: read-only")
    assert "cgroups" not in checks(Settings(), [])


@pytest.mark.parametrize(
    "name",
    ["capabilities", "dns-nodelocal", "dns-openshift", "postgresql", "postgresql-external",
     "redis", "redis-external", "seccomp-profile", "user-namespaces", "writable-cgroups"],
)  # fmt: skip
def test_every_component_that_it_names_exists(name: str) -> None:
    assert name in Path(pod.__file__).read_text()
    assert (COMPONENTS / name).is_dir()


# ------------------------------------------------------------ what it reaches


def test_what_does_not_answer_is_named_without_its_password() -> None:
    settings = Settings(
        peers=["dns://nobody.invalid:8080"],
        advertise_url="http://10.0.0.7:8080",
        redis_url=SecretStr("redis://:hush@127.0.0.1:1/0"),
        journal=SecretStr("postgresql+psycopg://proctor:hush@127.0.0.2:1/journal"),
    )
    check = checks(settings)["network"]
    assert (check.ok, check.required) == (False, True)
    for host in ("nobody.invalid", "127.0.0.1", "127.0.0.2"):
        assert host in check.detail
    assert "hush" not in repr(check)
    wrong = checks(Settings(redis_url=SecretStr("redis://a:hu/sh@b:c/0")))["network"]
    assert not wrong.ok
    assert "hu" not in wrong.detail


def test_what_answers_is_reached_and_a_file_is_no_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        assert checks(Settings(redis_url=SecretStr(url)))["network"].ok
    for journal in ("off", "sqlite:////tmp/journal.db"):
        assert checks(Settings(journal=SecretStr(journal)))["network"].ok


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
    assert "network" in {each["name"] for each in body["pod"] if not each["ok"]}


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


def test_a_removed_variable_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proctor_service.composition, "doctor", sound_machine)
    monkeypatch.setenv("PROCTOR_CACHE_ENTRIES", "0")
    said = proctor("doctor", "--json")
    assert said.exit_code == 0
    [row] = [each for each in json.loads(said.stdout)["machine"] if "CACHE" in each["name"]]
    assert (row["ok"], "PROCTOR_CACHE_MB" in row["mend"]) == (False, True)
