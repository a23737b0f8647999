"""Builds of environments in processes of their own: killed, interrupted, and two at once."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from command_line import forget_settings
from tiny_packages import DEFAULT, offline, write_source, write_wheel
from waits import WAIT_SECONDS

from proctor_service.errors import StartError
from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.settings.environments import read_environments

pytestmark = pytest.mark.slow
WAIT = """
import contextlib, socket
with socket.socket(socket.AF_UNIX) as gate, contextlib.suppress(FileNotFoundError):
    gate.connect({gate!r})
    gate.recv(1)
"""
BUILD_WHEEL = """
import shutil
name = "proctortest_source-1.0-py3-none-any.whl"
shutil.copy({wheel!r}, directory + "/" + name)
return name
"""


class Project:
    """A file of one environment, whose build waits at a socket until the gate is removed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
        forget_settings(monkeypatch)
        wheels = offline(monkeypatch, folder)
        self._gate = folder / "gate"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(WAIT_SECONDS)
        self._listener.bind(str(self._gate))
        self._listener.listen()
        wait = WAIT.format(gate=str(self._gate))
        if where == "import":
            write_wheel(wheels, "proctortest_blocks", {"proctortest_blocks.py": wait})
            requirement = "proctortest-blocks"
        else:
            wheel = write_wheel(folder, "proctortest_source", {"proctortest_source.py": ""})
            code = wait + BUILD_WHEEL.format(wheel=str(wheel))
            requirement = write_source(folder / "source", code)
        file = folder / "environments.toml"
        file.write_text(
            f'[environments.one]\npython = "{DEFAULT}"\nrequirements = ["{requirement}"]'
        )
        self.store = EnvironmentStore(folder / "store")
        self.definition = read_environments(file)["one"]
        # A killed build leaves its temporary folder: here it goes with the test.
        (folder / "temporary").mkdir()
        monkeypatch.setenv("TMPDIR", str(folder / "temporary"))
        monkeypatch.setenv("PROCTOR_ENVIRONMENTS", str(file))
        monkeypatch.setenv("PROCTOR_ENVIRONMENTS_FOLDER", str(self.store.folder))

    @contextmanager
    def build(self, umask: int = 0o022) -> Iterator[subprocess.Popen[str]]:
        """`proctor env build` in a process of its own."""
        command = [sys.executable, "-m", "proctor_service", "env", "build"]
        with subprocess.Popen(
            command, text=True, umask=umask, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def waiting(self) -> Iterator[socket.socket]:
        """Waits until a build has come to the gate; afterwards it goes on."""
        connection, _ = self._listener.accept()
        connection.settimeout(WAIT_SECONDS)
        with connection:
            yield connection

    def remove_gate(self) -> None:
        """Lets later builds pass; one that waits still does."""
        self._gate.unlink()

    def close(self) -> None:
        self._listener.close()

    def folders(self) -> list[str]:
        return sorted(each.name for each in self.store.folder.iterdir() if each.name != "locks")

    def is_built(self) -> bool:
        try:
            self.store.built("one", self.definition, DEFAULT)
        except StartError:
            return False
        return True


@pytest.fixture(params=["import", "wheel"])
def project(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    with closing(Project(tmp_path, monkeypatch, request.param)) as found:
        yield found


@pytest.fixture
def importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    with closing(Project(tmp_path, monkeypatch, "import")) as found:
        yield found


def test_a_killed_build_leaves_nothing_in_use_and_the_next_one_succeeds(project: Project) -> None:
    with project.build() as process, project.waiting() as gate:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert gate.recv(1) == b""  # all that it had started has ended
    (left,) = project.folders()
    assert left.endswith(".part")
    assert not project.is_built()
    project.remove_gate()
    with project.build() as process:
        assert process.wait() == 0
    (built,) = project.folders()
    assert left.startswith(built)
    assert project.is_built()


def test_prune_removes_what_a_killed_build_has_left(importing: Project) -> None:
    with importing.build() as process, importing.waiting() as gate:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert gate.recv(1) == b""
    assert [each.is_busy for each in importing.store.prune(())] == [False]
    assert importing.folders() == []


def test_ctrl_c_leaves_nothing(project: Project, interruptible: None) -> None:
    with project.build() as process:
        with project.waiting() as gate:
            process.send_signal(signal.SIGINT)
            assert gate.recv(1) == b""
        _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.endswith("proctor: stopped\n")
    assert "Traceback" not in errors
    assert project.folders() == []


def test_a_second_build_waits_and_finds_it_built(importing: Project) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(importing.build())
        with importing.waiting():
            second = stack.enter_context(importing.build())
            assert second.stderr is not None
            assert second.stderr.readline() == "one: another process is building it: waiting\n"
            importing.remove_gate()
        assert first.wait() == 0
        _, rest = second.communicate()
        assert (second.returncode, "proctortest" in rest) == (0, False)
    assert len(importing.folders()) == 1
    assert importing.is_built()


def test_prune_leaves_a_running_build(importing: Project) -> None:
    with importing.build() as process:
        with importing.waiting():
            pruned = importing.store.prune(())
            assert [(each.is_busy, each.folder.name) for each in pruned] == [
                (True, importing.folders()[0])
            ]
            importing.remove_gate()
        assert process.wait() == 0
    assert importing.is_built()


def test_every_user_may_read_an_environment_whatever_the_umask(project: Project) -> None:
    project.remove_gate()
    with project.build(umask=0o077) as process:
        assert process.wait() == 0
    assert project.store.folder.stat().st_mode & 0o777 == 0o755
    (folder,) = (each for each in project.store.folder.iterdir() if each.name != "locks")
    for each in (folder, *folder.rglob("*")):
        mode = each.lstat().st_mode
        if not stat.S_ISLNK(mode):
            assert mode & 0o777 == (0o755 if stat.S_ISDIR(mode) or mode & 0o100 else 0o644), each
