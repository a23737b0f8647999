"""`proctor serve` and `proctor doctor`: what is said before anything is served."""

from __future__ import annotations

import os
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from command_line import proctor
from fastapi import FastAPI
from harness import free_ports, running_service
from pydantic import SecretStr
from typer.testing import Result
from waits import WAIT_SECONDS

import proctor_service.app
import proctor_service.composition
from proctor_service.cli.failures import Trouble
from proctor_service.cli.temporary import temporary_service
from proctor_service.errors import StartError
from proctor_service.http.server import browser_url
from proctor_service.sandbox.interface import MachineCheck
from proctor_service.settings import Settings

pytestmark = pytest.mark.usefixtures("no_settings")


# ---------------------------------------------------------------- doctor


def doctored(monkeypatch: pytest.MonkeyPatch, *checks: MachineCheck) -> Result:
    """What is said about a machine on which this was found."""
    found = [
        *checks,
        MachineCheck("language c", True, "gcc"),
        MachineCheck("language go", False, "needs go"),
    ]

    def examine(settings: Settings) -> list[MachineCheck]:
        return found

    monkeypatch.setattr(proctor_service.composition, "doctor", examine)
    return proctor("doctor")


def test_doctor_is_content_with_a_sound_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [
        MachineCheck("namespaces", True, "as root", guards=True),
        MachineCheck("bonus", False, "none"),
    ]
    said = doctored(monkeypatch, *checks)
    assert said.exit_code == 0
    assert "Languages: python, c. Not installed: go." in said.stdout
    assert said.stdout.endswith("Isolation is complete.\n")


def test_doctor_says_how_to_mend_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = doctored(
        monkeypatch, MachineCheck("seccomp", False, "none [here]", "get one", guards=True)
    )
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
    said, [settings] = served(monkeypatch, "--port", "2", "--allow-degraded")
    assert said.exit_code == 0
    assert (settings.port, settings.slots) == (2, 3)
    assert settings.allow_degraded


@pytest.mark.parametrize(
    ("environment", "arguments", "message"),
    [
        ({"PROCTOR_PORT": "x"}, [], "PROCTOR_PORT: Input should be a valid integer"),
        ({}, ["--host", "0.0.0.0"], "host 0.0.0.0: without a token"),
        ({}, ["--port", "99999"], "PROCTOR_PORT: "),
        ({"PROCTOR_LANGUAGES": "{"}, [], "PROCTOR_LANGUAGES must be JSON: "),
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": "hush",\n "b": }', "not JSON: Expecting value at line 2 column 7"),
        ('{"a": "hush",\n "b": "hush"}', " line 2: tenants 'a' and 'b' have one token"),
        ('{"a": "hush",\n\n "a": "quiet"}', " line 3: tenant 'a' stands there twice"),
        ('{"a": "hush", "b": ""}', " line 1: tenant 'b' has no JSON string"),
        ('{"a": "hush", "b": {"c": "d"}}', " line 1: tenant 'b' has no JSON string"),
        ('{"b": "zzz",\n "a": "",\n "c": "a"}', " line 2: tenant 'a' has no JSON string"),
        ('{"a": "hu\\nsh"}', " line 1: tenant 'a' has a token that no header can carry"),
        ('[["a", "hush"]]', ": not a JSON object"),
        ("[" * 100_000, ": nested too deeply"),
    ],
)
def test_wrong_tokens_are_named_by_variable_file_and_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text)
    for settings, where in (
        (Settings(tokens=SecretStr(text)), "PROCTOR_TOKENS"),
        (Settings(tokens_file=path), f"PROCTOR_TOKENS_FILE {path}"),
    ):
        with pytest.raises(StartError) as refused:
            settings.tokens_by_tenant()
        assert str(refused.value).startswith(where)
        assert message in str(refused.value)
        assert "hush" not in str(refused.value)


def test_a_file_of_tokens_is_never_ignored(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text("\n")
    for settings, message in (
        (Settings(tokens_file=path), "it is empty"),
        (
            Settings(tokens_file=path, tokens=SecretStr('{"a": "hush"}')),
            "PROCTOR_TOKENS is set, too",
        ),
    ):
        with pytest.raises(StartError, match=message):
            settings.tokens_by_tenant()


def test_a_setting_that_is_no_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_TENANT_SLOTS", '{"a": 1,\n "b" 2}')
    said, _ = served(monkeypatch)
    assert "PROCTOR_TENANT_SLOTS must be JSON: Expecting ':' delimiter at line 2" in said.stderr
    monkeypatch.setenv("PROCTOR_TENANT_SLOTS", '{"a": -1}')
    said, _ = served(monkeypatch)
    assert said.stderr.startswith("proctor: PROCTOR_TENANT_SLOTS: a: Input should be greater")


def test_a_service_says_which_variables_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Ends:
        start_error = None
        close_failed = False

        def run(self) -> None:
            """Serves nobody."""

    def made(app: FastAPI) -> Ends:
        return Ends()

    monkeypatch.setattr(proctor_service.app, "make_server", made)
    monkeypatch.setattr(proctor_service.app, "configure_logging", lambda *arguments: None)
    monkeypatch.setenv("PROCTOR_SLOT", "2")
    monkeypatch.setenv("PROCTOR_FLOOD_MB", "2")
    proctor_service.app.serve(Settings(journal=SecretStr("off")))
    assert "PROCTOR_SLOT is no setting; did you mean PROCTOR_SLOTS?" in caplog.messages
    [removed] = [line for line in caplog.messages if line.startswith("PROCTOR_FLOOD_MB is no")]
    assert removed.endswith("64 MB")


class Refuses(socketserver.StreamRequestHandler):
    """A Redis that wants a password."""

    def handle(self) -> None:
        """Repeats what is asked."""
        while line := self.rfile.readline():
            self.wfile.write(b"-ERR unknown command " + line)


def test_a_redis_that_refuses_us_is_told_at_the_start() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"redis://user:hush@127.0.0.1:{server.server_address[1]}/0"
        try:
            with (
                pytest.raises(StartError, match="PROCTOR_REDIS_URL") as refused,
                running_service(Settings(redis_url=SecretStr(url))),
            ):
                pass
        finally:
            server.shutdown()
    assert "hush" not in str(refused.value)
    assert "unknown command" in str(refused.value)


def test_an_option_that_redis_has_not_is_told_at_the_start() -> None:
    url = SecretStr("redis://:hush@127.0.0.1:1/0?foo=bar")
    with (
        pytest.raises(StartError, match=r"PROCTOR_REDIS_URL: .*foo"),
        running_service(Settings(redis_url=url)),
    ):
        pass


def test_a_redis_that_is_away_is_told_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    [port] = free_ports(1)
    url = SecretStr(f"redis://:hush@127.0.0.1:{port}/0")
    with running_service(Settings(redis_url=url)) as service, service.client() as client:
        assert client.get("/readyz").status_code == 200
        assert "proctor_store_up 0.0" in client.get("/metrics").text
    [told] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert told.message.startswith("Redis cannot be reached")
    assert "hush" not in str(vars(told))


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({}, "http://127.0.0.1:{port}"),
        ({"host": "0.0.0.0", "tokens": SecretStr('{"me": "a-token"}')}, "http://127.0.0.1:{port}"),
        ({"advertise_url": "https://proctor.test:8443/"}, "https://proctor.test:8443"),
    ],
)
def test_a_service_with_a_journal_says_where_its_pages_are(
    fields: dict[str, Any], url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "proctor_service")
    settings = Settings(journal=SecretStr(f"sqlite:///{tmp_path / 'journal.db'}"), **fields)
    with running_service(settings) as service:
        port = service.url.rpartition(":")[2]
    told = [line for line in caplog.messages if line.startswith("console: ")]
    assert told == [f"console: {url.format(port=port)}/console"]


@pytest.mark.parametrize(
    ("host", "url"),
    [("::", "http://127.0.0.1:80"), ("::1", "http://[::1]:80"), ("10.0.0.7", "http://10.0.0.7:80")],
)
def test_the_address_of_a_page_is_one_for_a_browser(host: str, url: str) -> None:
    assert browser_url(Settings(host=host, tokens=SecretStr('{"me": "a-token"}')), 80) == url


def test_a_service_without_a_journal_has_no_pages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "proctor_service")
    with running_service(Settings()):
        pass
    assert not [line for line in caplog.messages if line.startswith("console: ")]


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


UNCLOSABLE = """
import os, signal, sys
from harness import NoBackend
import proctor_service.app
from proctor_service.__main__ import main
from proctor_service.http import health
from proctor_service.errors import StartError
from proctor_service.features.journal.recorder import Recorder

class Unclosable(NoBackend):
    async def start(self):
        if "{opens}" == "fails":
            raise StartError("no isolation here")
        os.kill(os.getpid(), signal.SIGTERM)
    async def close(self):
        raise OSError("this sandbox stays")

close = Recorder.close

async def told(recorder):
    await close(recorder)
    print("the journal is closed", flush=True)

Recorder.close = told
health._FIRST_PROBE_SECONDS = 0.1  # no sandbox answers here
sys.argv = ["proctor", "serve", "--port", "0"]
proctor_service.app.make_backend = lambda settings, environments: Unclosable()
main()
"""


@pytest.mark.parametrize(
    ("opens", "said"),
    [
        ("opens", "the service ended, but a part of it failed to close: see the log"),
        ("fails", "no isolation here"),
    ],
)
def test_a_part_that_fails_to_close_keeps_no_other_open_and_is_told(
    opens: str, said: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", UNCLOSABLE.format(opens=opens)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PROCTOR_GRACE_SECONDS": "1",
            "PROCTOR_JOURNAL": f"sqlite:///{tmp_path}/journal.db",
        },
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == "the journal is closed\n"
    assert "OSError: this sandbox stays" in ended.stderr
    assert ended.stderr.splitlines()[-1] == f"proctor: {said}"


def test_a_service_of_its_own_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_SLOTS", "-1")
    with (
        pytest.raises(Trouble, match=r"did not start:\nproctor: PROCTOR_SLOTS: "),
        temporary_service(),
    ):
        raise AssertionError
