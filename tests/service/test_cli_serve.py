"""`proctor serve` and `proctor doctor`: what is said before anything is served."""

from __future__ import annotations

import pytest
from typer.testing import Result

import proctor_service.app
import proctor_service.sandbox.backends
from command_line import forget_settings, proctor
from proctor_service.cli.console import Trouble
from proctor_service.cli.temporary import temporary_service
from proctor_service.errors import StartError
from proctor_service.sandbox.interface import Check
from proctor_service.settings import Settings


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_settings(monkeypatch)


# ---------------------------------------------------------------- doctor


def doctored(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> Result:
    """What is said about a machine on which this was found."""
    found = [*checks, Check("language c", True, "gcc"), Check("language go", False, "needs go")]

    def examine(settings: Settings) -> list[Check]:
        return found

    monkeypatch.setattr(proctor_service.sandbox.backends, "doctor", examine)
    return proctor("doctor")


def test_doctor_is_content_with_a_sound_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [Check("namespaces", True, "as root", guards=True), Check("bonus", False, "none")]
    said = doctored(monkeypatch, *checks)
    assert said.exit_code == 0
    assert "Languages: python, c. Not installed: go." in said.stdout
    assert said.stdout.endswith("Isolation is complete.\n")


def test_doctor_says_how_to_mend_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = doctored(monkeypatch, Check("seccomp", False, "none [here]", "get one", guards=True))
    assert said.exit_code == 1
    assert "none [here]" in said.stdout
    assert "to mend: get one" in said.stdout
    assert said.stdout.endswith("Isolation is incomplete: seccomp.\n")


# ---------------------------------------------------------------- serve


def served(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[Result, list[Settings]]:
    """What would be served."""
    seen: list[Settings] = []
    monkeypatch.setattr(proctor_service.app, "serve", seen.append)
    return proctor("serve", *arguments), seen


def test_flags_outrank_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_PORT", "1")
    monkeypatch.setenv("PROCTOR_SLOTS", "3")
    said, [settings] = served(
        monkeypatch, "--port", "2", "--log-level", "error", "--allow-degraded"
    )
    assert said.exit_code == 0
    assert (settings.port, settings.slots, settings.log_level) == (2, 3, "error")
    assert settings.allow_degraded


@pytest.mark.parametrize(
    ("environment", "arguments", "message"),
    [
        ({"PROCTOR_PORT": "x"}, [], "PROCTOR_PORT: Input should be a valid integer"),
        ({}, ["--host", "0.0.0.0"], "host 0.0.0.0: without a token"),
        ({}, ["--port", "99999"], "PROCTOR_PORT: "),
        ({"PROCTOR_LANGUAGES": "{"}, [], "error parsing value for field"),
        ({}, ["--end-with-parent", "1"], "the command that wanted this service is gone"),
    ],
)
def test_serve_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    arguments: list[str],
    message: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    said, seen = served(monkeypatch, *arguments)
    assert said.exit_code == 2
    assert said.stderr.startswith(f"proctor: {message}")
    assert not seen


def test_a_secret_is_not_in_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_TOKENS", '{"a": "hush"')
    said, _ = served(monkeypatch, "--host", "0.0.0.0")
    assert said.exit_code == 2
    assert "hush" not in said.output


def test_a_service_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(settings: Settings) -> None:
        raise StartError("no isolation here")

    monkeypatch.setattr(proctor_service.app, "serve", refuse)
    said = proctor("serve")
    assert said.exit_code == 2
    assert said.stderr == "proctor: no isolation here\n"


def test_a_service_of_its_own_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_SLOTS", "-1")
    with (
        pytest.raises(Trouble, match=r"did not start:\nproctor: PROCTOR_SLOTS: "),
        temporary_service(),
    ):
        raise AssertionError
