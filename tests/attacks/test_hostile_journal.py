"""The journal that a service keeps by default: no submission finds it, though it may be its user's file."""

from __future__ import annotations

import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import exec_request
from recorded_steps import recorded_steps

from hostile.rooms import Room
from hostile.services import Started, reserved_users, started_service

LIMITS = {"cpu_seconds": 20, "wall_seconds": 30, "memory_mb": 256}
SEARCH = """
import os, sqlite3

path = {path!r}
folder = os.path.dirname(path)
inodes = {inodes!r}
roots = ["", "/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../../../.."]
roots += [f"/proc/{{number}}/root" for number in os.listdir("/proc") if number.isdigit()]


def tried(what, act):
    try:
        act()
    except (OSError, sqlite3.Error):
        return
    print("ESCAPED", what)


for root in roots:
    for each in (path, path + "-wal", path + "-shm"):
        tried(f"stat {{root}}{{each}}", lambda: os.stat(root + each))
        tried(f"read {{root}}{{each}}", lambda: open(root + each, "rb"))
    tried(f"list {{root}}{{folder}}", lambda: os.listdir(root + folder))
    for how in ("ro", "rw"):
        address = f"file:{{root}}{{path}}?mode={{how}}"
        tried(address, lambda: sqlite3.connect(address, uri=True).execute("select 1 from evaluations"))
tried("link", lambda: (os.symlink(path, "link"), open("link", "rb")))
tried("hard link", lambda: os.link(path, "hard"))
for root in ("/proc/self/fd", "/proc/1/fd"):
    try:
        names = os.listdir(root)
    except OSError:
        continue
    for name in names:
        try:
            target = os.readlink(f"{{root}}/{{name}}")
        except OSError:
            continue
        if "journal" in target or folder in target:
            print("ESCAPED open", target)
for place, folders, names in os.walk("/"):
    folders[:] = [each for each in folders if os.path.join(place, each) not in ("/proc", "/sys")]
    for name in names:
        try:
            found = os.lstat(os.path.join(place, name))
        except OSError:
            continue
        if [found.st_dev, found.st_ino] in inodes:
            print("ESCAPED found", place, name)
print("searched")
"""


@dataclass(frozen=True)
class Recorded:
    """A service that keeps a journal in its user's state folder, and the journal's file."""

    service: Started
    path: Path

    def search(self) -> str:
        """The program that looks for the file."""
        files = [self.path.with_name(self.path.name + end).stat() for end in ("", "-wal", "-shm")]
        inodes = [[each.st_dev, each.st_ino] for each in files]
        return SEARCH.format(path=str(self.path), inodes=inodes)


@pytest.fixture(scope="module", params=[False, True], ids=["as root", "as an ordinary user"])
def recorded(request: pytest.FixtureRequest) -> Iterator[Recorded]:
    with (
        tempfile.TemporaryDirectory() as name,
        reserved_users() as users,
        started_service(ordinary=request.param, users=users, state=Path(name)) as service,
    ):
        [path] = Path(name).glob("proctor/journal-127.0.0.1-*.db")
        with service.client() as client:
            body = exec_request("x = 'a secret of another job'", cache=False, step=1)
            assert client.post("/reward", json=body).json()["results"][0]["reward"] == 1.0
        assert recorded_steps(service.url, path) == {1: 1}
        yield Recorded(service, path)


def test_the_file_is_its_owners_alone(recorded: Recorded) -> None:
    folder = recorded.path.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    with closing(sqlite3.connect(recorded.path)) as database:
        [(count,)] = database.execute("SELECT count(*) FROM evaluations").fetchall()
    assert count > 0


def test_no_submission_finds_it(recorded: Recorded) -> None:
    with recorded.service.client() as client:
        body = exec_request(recorded.search(), limits=LIMITS, cache=False)
        [result] = client.post("/reward", json=body).json()["results"]
    assert result["stdout"].splitlines() == ["searched"], result
    assert result["verdict"] == "passed"


def test_no_agent_finds_it(recorded: Recorded) -> None:
    with recorded.service.client() as client:
        room = Room(client, **LIMITS)
        try:
            assert room.python(recorded.search())["stdout"].splitlines() == ["searched"]
            room.shell(f"ln -s {recorded.path} link; ln -s / away")
            for path in (str(recorded.path), "link", f"away{recorded.path}"):
                assert room.get(path).status_code == 404, path
            room.put(str(recorded.path), b"x")  # in a /tmp of its own
        finally:
            room.stop()
    assert recorded.path.read_bytes().startswith(b"SQLite format 3")
