"""Runs of a small repository's tests with the observer in an environment of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor_service.features.repositories.reports.in_process import InProcess
from proctor_service.features.repositories.reports.interface import ImageFacts, Reported, TestRun
from proctor_service.features.repositories.reports.listener import Listener

NEEDED = (
    "_pytest",
    "pytest",
    "py.py",
    "pluggy",
    "iniconfig",
    "packaging",
    "pygments",
    "xdist",
    "execnet",
)


@dataclass(frozen=True, slots=True)
class Observed:
    """What a run reported, and what it printed."""

    reported: Reported
    output: str
    lines: Sequence[bytes]


class Environment:
    """A virtual environment with pytest; a run puts the observer into it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self._site = folder / "lib" / version / "site-packages"
        for name in NEEDED:
            (self._site / name).symlink_to(Path(sysconfig.get_path("purelib"), name))

    def run(
        self,
        directory: Path,
        arguments: Sequence[str],
        kind: str = "pytest",
        changed: Sequence[str] = (),
        doctests: Mapping[str, str] | None = None,
    ) -> Observed:
        """Run `python *arguments` in a repository; `changed` and `doctests` are below it."""
        directory = directory.resolve()
        with tempfile.TemporaryDirectory() as folder:
            socket = f"{folder}/events"
            report = InProcess(
                kind,
                socket,
                str(directory),
                [str(directory / name) for name in changed],
                {str(directory / name): text for name, text in (doctests or {}).items()},
            )
            files = report.files(ImageFacts((str(self._site),)))
            for path, content in files.items():
                Path(path).parent.mkdir(exist_ok=True)
                Path(path).write_bytes(content)
            try:
                return self._observed(report, socket, directory, arguments)
            finally:
                shutil.rmtree(self._site / report.name)
                (self._site / f"{report.name}.pth").unlink()

    def _observed(
        self, report: InProcess, socket: str, directory: Path, arguments: Sequence[str]
    ) -> Observed:
        lines, output, status = listened_run(
            socket,
            [str(self.python), *arguments],
            directory,
            {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        )
        run = TestRun(lines, output, exit_status=status)
        return Observed(report.read(run), output.decode(), lines)


def listened_run(
    socket: str, command: Sequence[str], directory: Path, variables: Mapping[str, str]
) -> tuple[Sequence[bytes], bytes, int]:
    """Run a command with a listener beside it; return the listener's lines, the output and the status."""
    lines: list[bytes] = []
    processes: list[int] = []
    listener = Listener(socket, lines.append, lambda: next(iter(processes), None))
    stop, wake = os.pipe()
    thread = threading.Thread(target=listener.serve, args=(stop,))
    thread.start()
    try:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        processes.append(process.pid)
        output, _ = process.communicate()
    finally:
        os.close(wake)
        thread.join()
        os.close(stop)
    return lines, output, process.returncode


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    """Write a repository's files and return its folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
