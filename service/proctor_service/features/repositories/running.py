"""One run of a task's tests in its grading sandbox: listener, command, files, outcomes."""

from __future__ import annotations

import asyncio
import os
import posixpath
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from proctor_client.wire import RepositoryGrader
from proctor_service.features.repositories.change import Change, FileState
from proctor_service.features.repositories.guest import listening
from proctor_service.features.repositories.reports import listener
from proctor_service.features.repositories.reports.interface import (
    ImageFacts,
    Report,
    Reported,
    TestRun,
)
from proctor_service.features.repositories.reports.script import ScriptReport, UnreadableOutput
from proctor_service.features.repositories.trees import Tree
from proctor_service.features.repositories.workspace import Workspace
from proctor_service.sandbox.interface import (
    Command,
    Ended,
    Limits,
    Operation,
    Sandboxes,
)

SOURCE = Path(listener.__file__).read_text() + Path(listening.__file__).read_text().replace(
    "from __future__ import annotations", ""
).replace("Listener: Any = None", "")
MOST_EVENTS_BYTES = 256 << 20
SCRIPT_LIMITS = Limits(
    cpu_seconds=60, wall_seconds=60, memory_mb=1024, output_kb=65_536, processes=64, disk_mb=64
)
"""Of a program of the task's author that reads a run."""


@dataclass(frozen=True, slots=True)
class Tested:
    """A run of the tests: its ending, and the outcomes."""

    ended: Ended
    reported: Reported


def socket_path() -> str:
    """Return a path in a sandbox for the listener of one run."""
    return f"/tmp/.{secrets.token_hex(8)}/events"


async def run_tests(
    workspace: Workspace,
    grader: RepositoryGrader,
    report: Report,
    socket: str,
    builds: bool,
    folder: str,
    backend: Sandboxes,
) -> Tested:
    """Run the command of the tests. Raises SandboxEnded, and the errors of the sandbox."""
    sandbox = workspace.sandbox
    image = Tree(sandbox, "/", folder)
    facts = ImageFacts(workspace.site_packages)
    files = report.files(facts)
    await image.put(
        {name.lstrip("/").encode(): FileState("644", data) for name, data in files.items()}
    )
    record = posixpath.join(folder, "events")
    await asyncio.to_thread(Path(record).touch, 0o600)
    listening_at = Operation(
        SOURCE, ("listen", socket), stdout=record, most_written_bytes=MOST_EVENTS_BYTES
    )
    await sandbox.operate(listening_at)
    process = int((await asyncio.to_thread(_lines, record))[0])
    shell = workspace.shell
    variables = {**shell.variables, **report.variables(shell.all_variables)}
    shell = replace(shell, variables=variables)
    ended = await sandbox.exec(shell.command(grader.test, grader.build if builds else None))
    await sandbox.operate(Operation(SOURCE, ("end", process)))
    events = (await asyncio.to_thread(_lines, record))[1:]
    collected = await workspace.tree.collected(report.collects())
    exited = ended.exit_code if ended.ending == "exited" else None
    run = TestRun(events, ended.stdout, ended.stderr, collected, exited)
    if isinstance(report, ScriptReport):
        return Tested(ended, await _read_by_script(report, run, backend))
    return Tested(ended, await asyncio.to_thread(report.read, run))


async def _read_by_script(report: ScriptReport, run: TestRun, backend: Sandboxes) -> Reported:
    """Return the outcomes that the task's program reads from a run, in a sandbox of its own."""
    stdin = await asyncio.to_thread(report.stdin, run)
    async with backend.open(SCRIPT_LIMITS) as sandbox:
        ended = await sandbox.exec(Command(code=report.program, stdin=stdin))
    try:
        return await asyncio.to_thread(report.outcomes_of, ended.stdout)
    except UnreadableOutput:
        return report.read(run)


def _lines(path: str) -> list[bytes]:
    return Path(path).read_bytes().splitlines()


def is_built(grader: RepositoryGrader, change: Change) -> bool:
    """Return True if the task has a build, and this change needs it."""
    if grader.build is None:
        return False
    return not grader.build_if or any(
        fnmatchcase(name, pattern) or fnmatchcase(posixpath.basename(name), pattern)
        for name in map(os.fsdecode, change.files)
        for pattern in grader.build_if
    )


def changed_tests(
    before: Mapping[bytes, FileState],
    after: Mapping[bytes, FileState | None],
    writable: Sequence[str],
) -> Sequence[bytes]:
    """Return the paths of the task's files that a run has changed. `writable`: patterns of others."""
    changed = [path for path, state in before.items() if after.get(path) != state]
    return [
        path
        for path in changed
        if not any(fnmatchcase(os.fsdecode(path), pattern) for pattern in writable)
    ]
