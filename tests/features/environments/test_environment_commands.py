"""`proctor env`: its words, its tables and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import forget_settings, proctor
from tiny_packages import DEFAULT, offline, write_wheel

from proctor_service.features.environments.store import EnvironmentStore

FILE = """
[environments.science]
requirements = ["proctortest-one"]
preload = ["proctortest_one"]

[environments.plain]
preload = ["json"]
"""


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentStore:
    """The store of the commands; two environments are configured, and uv knows one package."""
    forget_settings(monkeypatch)
    wheels = offline(monkeypatch, tmp_path)
    write_wheel(wheels, "proctortest_one", {"proctortest_one.py": ""})
    configure(tmp_path, monkeypatch, FILE)
    monkeypatch.setenv("PROCTOR_ENVIRONMENTS_FOLDER", str(tmp_path / "store"))
    monkeypatch.setenv("PROCTOR_SANDBOX_PYTHON", str(DEFAULT))
    return EnvironmentStore(tmp_path / "store")


def configure(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    file = folder / "environments.toml"
    file.write_text(text)
    monkeypatch.setenv("PROCTOR_ENVIRONMENTS", str(file))


def test_build_list_check_and_prune(
    store: EnvironmentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = proctor("env", "list")
    assert listed.exit_code == 0
    assert "run `proctor env build science`" in listed.stderr
    built = proctor("env", "build")
    assert built.exit_code == 0, built.output
    assert "science: Python" in built.stdout
    assert ", 1 package\n" in built.stdout
    assert "plain: Python" in built.stdout
    listed = proctor("env", "list")
    assert (listed.exit_code, listed.stderr) == (0, "")
    lines = listed.stdout.splitlines()
    assert lines[0].split() == ["name", "python", "built", "size", "packages"]
    assert lines[1].split()[2] == lines[2].split()[2] == "yes"
    rows = [json.loads(line) for line in proctor("env", "list", "--json").stdout.splitlines()]
    assert [(row["name"], row["built"]) for row in rows] == [("science", True), ("plain", True)]
    assert rows[0]["packages"] == {"proctortest-one": "1.0"}
    assert rows[0]["size_bytes"] > 0
    assert (rows[1]["size_bytes"], rows[1]["interpreter"]) == (None, str(DEFAULT))
    checked = proctor("env", "check", "science")
    assert (checked.exit_code, checked.stdout) == (0, "science: ok\n")
    assert proctor("env", "prune").stdout == "removed 0 folders, 0.0 MB\n"
    configure(tmp_path, monkeypatch, "")
    shown = proctor("env", "prune", "--dry-run").stdout
    assert shown.startswith(f"would remove {store.folder}/")
    assert "(proctortest-one, " in shown
    assert len(store.entries()) == 1
    assert proctor("env", "prune").stdout.startswith("removed 1 folder, ")
    assert store.entries() == []
    assert proctor("env", "list").stdout == "no environments\n"


def test_a_problem_is_said_by_check_with_status_1_and_by_build_with_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[environments.a]\nrequirements = ["proctortest-missing"]\n[environments.b]\n'
    configure(tmp_path, monkeypatch, text + "preload = ['proctortest_missing']\n[environments.c]")
    checked = proctor("env", "check")
    assert checked.exit_code == 1
    assert "a: environment a is not built: run `proctor env build a`\n" in checked.stdout
    assert "b: preload: ModuleNotFoundError: No module named" in checked.stdout
    assert "c: ok\n" in checked.stdout
    built = proctor("env", "build")
    assert built.exit_code == 2
    assert "proctor: environment a cannot be built: uv failed:" in built.stderr
    assert built.stderr.count("proctortest-missing was not found") == 1
    assert "proctor: environment b cannot be used: preload: " in built.stderr
    assert built.stdout.startswith("c: Python")
    assert "Traceback" not in built.output


@pytest.mark.parametrize("command", ["build", "list", "check", "prune"])
def test_settings_that_cannot_be_used_are_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, monkeypatch, "[environments.a]\nrequirement = []")
    refused = proctor("env", command)
    assert refused.exit_code == 2
    assert refused.stderr.startswith("proctor: PROCTOR_ENVIRONMENTS ")
    assert "environments.a.requirement: Extra inputs" in refused.stderr
    monkeypatch.delenv("PROCTOR_ENVIRONMENTS")
    refused = proctor("env", command)
    assert refused.exit_code == 2
    assert refused.stderr.startswith("proctor: PROCTOR_ENVIRONMENTS is not set")


@pytest.mark.parametrize("command", ["build", "check"])
def test_an_unknown_name_is_refused_with_the_known_ones(command: str) -> None:
    refused = proctor("env", command, "plain", "sience")
    assert refused.exit_code == 2
    assert refused.stderr == "proctor: sience: no such environment; there are: science, plain\n"


def test_a_missing_interpreter_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, monkeypatch, "[environments.a]\npython = '3.99'")
    refused = proctor("env", "build")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("proctor: environment a: Python 3.99 was not found")
    assert refused.stderr.count("\n") == 1
