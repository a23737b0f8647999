"""A copy of the working tree with an environment of its own, and runs of tests in it.

The environment's packages and commands are copied too and lead to the copied sources, so the
services and judge processes of a test run the mutant, too. `supervised.py` bounds each run and ends
all its processes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants.supervised import OVERTIME

SELECTED = Path(__file__).with_name("selected.py")
SUPERVISOR = Path(__file__).with_name("supervised.py")
SOURCES = ("client", "service", "trainers")
_OWN_VARIABLES = frozenset(
    [
        *("PYTHONPATH", "VIRTUAL_ENV", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"),
        "PYTHONDONTWRITEBYTECODE",  # each run would compile all packages again
    ]
)


class CopyFailed(Exception):
    """The copy does not run its own sources."""


@dataclass(frozen=True, slots=True)
class Report:
    """One run of tests: the failed test, the last test, and the end of the run."""

    failed: str | None
    last_started: str | None
    ended: bool
    timed_out: bool
    seconds: float
    last_seconds: float
    started_count: int


class Copy:
    """A copy of `root` in `folder`, made and checked here."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.tree = folder / "tree"
        self._folder = folder
        self._temporary = folder / "t"  # short, since paths of sockets are
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name not in _OWN_VARIABLES and not name.startswith("PYTEST_")
        } | {"TMPDIR": str(self._temporary)}
        folder.mkdir()
        folder.chmod(0o755)  # sandboxes have users of their own
        self._clone(root)
        self._copy_environment(root / ".venv")
        shared = root.parent / "shared"
        if shared.is_dir():
            (folder / "shared").symlink_to(shared)
        self._check()

    @property
    def _python(self) -> str:
        return str(self.tree / ".venv" / "bin" / "python")

    def _clone(self, root: Path) -> None:
        command = ["git", "clone", "--quiet", "--shared", "--no-checkout", str(root)]
        subprocess.run([*command, str(self.tree)], check=True)
        listed = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others"]
        output = subprocess.run([*listed, "--exclude-standard"], check=True, capture_output=True)
        for name in filter(None, output.stdout.decode().split("\0")):
            if (root / name).exists():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.tree / name, follow_symlinks=False)
        # Compiled files are checked by content: a mutant may have the size and time of its original.
        compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode"]
        folders = [str(self.tree / name) for name in SOURCES]
        subprocess.run([*compiling, "checked-hash", *folders], check=True)

    def _copy_environment(self, original: Path) -> None:
        own = self.tree / ".venv"
        subprocess.run(["cp", "-a", str(original), str(own)], check=True)
        root = f"{original.parent}/".encode()
        changed = [*own.glob("lib/*/site-packages/*.pth")]
        changed += [path for path in (own / "bin").iterdir() if path.is_file()]
        for path in changed:
            text = path.read_bytes()
            if not path.is_symlink() and root in text and b"\0" not in text:
                path.write_bytes(text.replace(root, f"{self.tree}/".encode()))

    def _check(self) -> None:
        """Raise CopyFailed unless the interpreter and the command of the copy import the copy."""
        code = "import proctor_client, proctor_service; print(proctor_client, proctor_service)"
        commands = (
            [self._python, "-c", code],
            [self._python, "-I", "-c", code],
        )
        for command in commands:
            done = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True)
            if done.stdout.count(f"'{self.tree}/") != 2:
                raise CopyFailed(f"{command} imports {done.stdout or done.stderr}")
        script = (self.tree / ".venv" / "bin" / "proctor").read_text()
        if not script.startswith(f"#!{self._python}\n"):
            raise CopyFailed(f"the command proctor has another interpreter: {script[:200]}")

    def run(self, tests: Sequence[str], start_seconds: float, limit_seconds: float) -> Report:
        """Run tests until a failure; tests begin within `start_seconds`, and all end at the
        limit."""
        self._temporary.mkdir(exist_ok=True)
        self._temporary.chmod(0o1777)
        report, order = self._folder / "report.jsonl", self._folder / "order.json"
        report.unlink(missing_ok=True)
        order.write_text(
            json.dumps(
                {"tests": [*tests], "report": str(report), "stop_after_seconds": start_seconds}
            )
        )
        begin = time.monotonic()
        selected = [self._python, str(SELECTED), str(order)]
        with (self._folder / "output.txt").open("wb") as output:
            status = subprocess.run(
                [sys.executable, str(SUPERVISOR), str(limit_seconds), *selected],
                cwd=self.tree,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ).returncode
        seconds = time.monotonic() - begin
        shutil.rmtree(self._temporary, ignore_errors=True)
        shutil.rmtree(self.tree / ".hypothesis", ignore_errors=True)
        return self._read(report, status == OVERTIME, seconds)

    def _read(self, report: Path, timed_out: bool, seconds: float) -> Report:
        text = report.read_text() if report.exists() else ""
        lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        failed = [line["failed"] for line in lines if "failed" in line]
        started = [line for line in lines if "started" in line]
        ended = [line for line in lines if "ended" in line]
        for line in ended:
            if line["imported"] and not line["imported"].startswith(f"{self.tree}/"):
                raise CopyFailed(f"a test imported {line['imported']}")
        return Report(
            failed=failed[0] if failed else None,
            last_started=started[-1]["started"] if started else None,
            ended=bool(ended) and ended[0]["ended"] in (0, 1, 2),
            timed_out=timed_out,
            seconds=seconds,
            last_seconds=seconds - started[-1]["at"] if started else seconds,
            started_count=len(started),
        )
