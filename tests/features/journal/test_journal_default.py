"""The journal that a service keeps where no other is set: its file, and when it keeps none."""

from __future__ import annotations

import asyncio
import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import forget_settings, proctor
from fastapi import FastAPI
from journals import Evaluated, written
from pydantic import SecretStr

import proctor_service.app
from proctor_service.features.journal import default
from proctor_service.features.journal.default import own_journal
from proctor_service.sandbox.local import seen_in_sandboxes
from proctor_service.settings import Settings
from proctor_service.settings.state_folder import (
    NoStateFolder,
    journal_path,
    make_private,
    state_folder,
)

ANOTHER_UID = 61_432


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder and a home of the test's own."""
    forget_settings(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def unseen(settings: Settings, path: Path) -> bool:
    """Says of each path that sandboxes do not see it."""
    return False


# ------------------------------------------------------------ the path


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.0.0.1:8080", "journal-127.0.0.1-8080.db"),
        ("http://10.0.0.7:8080", "journal-10.0.0.7-8080.db"),
        ("https://Proctor.Test:8443/", "journal-proctor.test-8443.db"),
        ("http://[fe80::1]:8080", "journal-fe80-1-8080.db"),
        ("../../etc:1", "journal-etc-1.db"),
    ],
)
def test_each_address_has_a_file(address: str, name: str, tmp_path: Path) -> None:
    assert journal_path(address) == tmp_path / "state" / "proctor" / name


def test_the_address_is_the_advertised_one_or_host_and_port() -> None:
    assert Settings(port=9000).address() == "127.0.0.1:9000"
    assert Settings(advertise_url="http://10.0.0.7:8080").address() == "http://10.0.0.7:8080"


@pytest.mark.parametrize("state", [None, "", "relative/folder"])
def test_the_folder_is_in_the_home_by_default(
    state: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    if state is not None:
        monkeypatch.setenv("XDG_STATE_HOME", state)
    assert state_folder() == tmp_path / "home" / ".local" / "state" / "proctor"
    monkeypatch.delenv("HOME")
    with pytest.raises(NoStateFolder, match="neither HOME nor XDG_STATE_HOME"):
        state_folder()


# ------------------------------------------------------------ the file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_file_and_its_folder_are_their_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state" / "proctor" / "journal.db"
    before = os.umask(0)
    try:
        make_private(path)
    finally:
        os.umask(before)
    assert (mode(path), mode(path.parent), mode(path.parent.parent)) == (0o600, 0o700, 0o700)
    path.write_text("kept")
    path.chmod(0o644)
    path.parent.chmod(0o755)
    make_private(path)
    assert (mode(path), mode(path.parent), path.read_text()) == (0o600, 0o700, "kept")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("owned", ["home", "home/state/proctor"])
def test_what_belongs_to_another_user_is_left_alone(owned: str, tmp_path: Path) -> None:
    path = tmp_path / "home" / "state" / "proctor" / "journal.db"
    other = tmp_path / owned
    other.mkdir(parents=True)
    os.chown(other, ANOTHER_UID, -1)
    with pytest.raises(NoStateFolder, match=f"{other} belongs to another user"):
        make_private(path)
    assert list(other.iterdir()) == []


def test_what_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NoStateFolder, match="file: File exists"):
        make_private(tmp_path / "file" / "state" / "journal.db")
    (tmp_path / "journal.db").mkdir()
    with pytest.raises(NoStateFolder, match=r"journal\.db: Is a directory"):
        make_private(tmp_path / "journal.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NoStateFolder, match=r"link\.db: Too many levels of symbolic links"):
        make_private(tmp_path / "link.db")
    with pytest.raises(NoStateFolder, match="File name too long"):
        make_private(tmp_path / ("x" * 300))


@pytest.mark.parametrize(("kind", "remote"), [("nfs4", True), ("lustre", True), ("ext4", False)])
def test_a_file_system_that_machines_share_is_not_for_it(
    kind: str, remote: bool, tmp_path: Path
) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 0:99 / /proc rw,relatime shared:5 - proc proc rw\n"
        f"36 35 {os.major(device)}:{os.minor(device)} / /home rw shared:1 - {kind} a:/home rw\n"
    )
    path = tmp_path / "proctor" / "journal.db"
    if not remote:
        make_private(path, mounts)
        return
    with pytest.raises(NoStateFolder, match="other machines"):
        make_private(path, mounts)
    assert not path.exists()


# ------------------------------------------------------------ a service


def test_a_service_that_is_told_nothing_keeps_one(tmp_path: Path) -> None:
    url, why = own_journal(Settings(port=9000), unseen)
    path = tmp_path / "state" / "proctor" / "journal-127.0.0.1-9000.db"
    assert url == f"sqlite:///{path}"
    assert (why, mode(path)) == ("", 0o600)


def test_what_is_set_stays(tmp_path: Path) -> None:
    proctor_service.app.build_app(Settings(journal=SecretStr("off")), keeps_state=True)
    assert not (tmp_path / "state").exists()


def test_no_journal_is_kept_where_submissions_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state" / "proctor" / "journal.db"
    assert not seen_in_sandboxes(Settings(), path)
    assert not seen_in_sandboxes(Settings(backend="aviato", allow_degraded=True), path)
    assert seen_in_sandboxes(Settings(allow_degraded=True), path)
    assert seen_in_sandboxes(Settings(), Path("/usr/local/state/proctor/journal.db"))
    shown = Settings(sandbox_paths=[tmp_path / "link"])
    (tmp_path / "link").symlink_to(tmp_path)
    assert seen_in_sandboxes(shown, path)
    url, why = own_journal(shown)
    assert url == "off"
    assert why.startswith("submissions could read ")
    assert not (tmp_path / "state").exists()


class Ends:
    """A server that serves nobody."""

    start_error = None
    close_failed = False

    def run(self) -> None:
        """Ends at once."""


def test_a_service_starts_without_a_journal_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    apps: list[FastAPI] = []

    def made(app: FastAPI) -> Ends:
        apps.append(app)
        return Ends()

    monkeypatch.setattr(proctor_service.app, "make_server", made)
    monkeypatch.setattr(proctor_service.app, "configure_logging", lambda *arguments: None)
    monkeypatch.setattr(default, "own_journal", partial(own_journal, is_seen=unseen))
    proctor_service.app.serve(Settings())
    assert not [line for line in caplog.messages if "journal" in line]
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_STATE_HOME")
    proctor_service.app.serve(Settings())
    asyncio.run(apps[1].state.parts.feature("journal").open())
    [told] = [line for line in caplog.messages if "journal" in line]
    assert told.startswith("no journal is kept: neither HOME nor XDG_STATE_HOME names a folder; ")
    assert "set PROCTOR_JOURNAL to sqlite:////path/to/file, postgresql://… or off" in told
    assert [app.state.parts.feature("journal").recorder is None for app in apps] == [False, True]


# ------------------------------------------------------------ commands


def put(name: str, *evaluated: Evaluated) -> str:
    """Writes a journal into the state folder."""
    state_folder().mkdir(parents=True, exist_ok=True)
    return written(state_folder() / name, *evaluated)


def test_commands_take_the_file_of_the_default_address(monkeypatch: pytest.MonkeyPatch) -> None:
    put("journal-127.0.0.1-8080.db", Evaluated(1))
    put("journal-127.0.0.1-9000.db", Evaluated(2))
    for port, number in ((None, 1), ("9000", 2)):
        if port is not None:
            monkeypatch.setenv("PROCTOR_PORT", port)
        said = proctor("journal", "list", "--json")
        assert said.exit_code == 0, said.output
        assert f'"{Evaluated(number).id}"' in said.stdout
        assert len(said.stdout.splitlines()) == 1


@pytest.mark.parametrize("command", [["journal", "list"], ["replay", "--job", "run"]])
def test_a_command_that_finds_no_file_names_the_others(command: list[str]) -> None:
    missing = state_folder() / "journal-127.0.0.1-8080.db"
    said = proctor(*command)
    assert said.exit_code == 2
    assert f"no journal is at {missing}; set PROCTOR_JOURNAL to" in said.stderr
    others = [put(f"journal-{name}.db") for name in ("10.0.0.7-80", "127.0.0.1-9000")]
    said = proctor(*command)
    assert said.exit_code == 2
    lines = said.stderr.splitlines()
    assert lines[0].endswith(f"no journal is at {missing}; services at other addresses have:")
    assert lines[1:] == [f"  PROCTOR_JOURNAL={url}" for url in others]


def test_a_command_without_a_home_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_STATE_HOME")
    said = proctor("journal", "list")
    assert said.exit_code == 2
    assert "no journal: neither HOME nor XDG_STATE_HOME names a folder; set " in said.stderr


def test_temporary_services_keep_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor_service.cli import temporary

    environment: Any = temporary._environment(1, "token")
    assert environment["PROCTOR_JOURNAL"] == "off"
    monkeypatch.setenv("PROCTOR_JOURNAL", "sqlite:////set/by/the/user.db")
    assert temporary._environment(1, "token")["PROCTOR_JOURNAL"] == "sqlite:////set/by/the/user.db"
