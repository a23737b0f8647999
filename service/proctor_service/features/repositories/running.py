"""One run of a task's tests in its grading sandbox: listener, command, files, outcomes."""

from __future__ import annotations

import asyncio
import json
import os
import posixpath
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from proctor_client.wire import RepositoryGrader
from proctor_service.features.repositories.change import FileState
from proctor_service.features.repositories.guest import listening
from proctor_service.features.repositories.patch_text import parse
from proctor_service.features.repositories.reports import listener
from proctor_service.features.repositories.reports.interface import (
    ImageFacts,
    Report,
    Reported,
    TestRun,
)
from proctor_service.features.repositories.reports.script import ScriptReport, UnreadableOutput
from proctor_service.features.repositories.trees import SOURCE as TREES
from proctor_service.features.repositories.trees import Tree
from proctor_service.features.repositories.workspace import Workspace
from proctor_service.sandbox.interface import (
    Command,
    Ended,
    Limits,
    Operation,
    Sandboxes,
    StatefulSandbox,
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
    facts = ImageFacts(await site_packages(sandbox, workspace.shell.directory))
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


async def site_packages(sandbox: StatefulSandbox, directory: str) -> tuple[str, ...]:
    """Return the folders with packages of the interpreters of an image."""
    operation = Operation(TREES, ("site_packages", directory))
    return tuple(json.loads(await sandbox.operate(operation)))


def is_built(grader: RepositoryGrader, changed: Collection[bytes]) -> bool:
    """Return True if the task has a build, and a file that is not the image's needs it.

    `changed`: files of the submission and of the task's tests. What `prepare` has changed is no less new to
    the image, whose build is that of other sources.
    """
    if grader.build is None:
        return False
    return not grader.build_if or any(
        fnmatchcase(name, pattern) or fnmatchcase(posixpath.basename(name), pattern)
        for name in map(os.fsdecode, {*changed, *_prepared(grader)})
        for pattern in grader.build_if
    )


def _prepared(grader: RepositoryGrader) -> Iterator[bytes]:
    """The files that `prepare.patch` names, which applied."""
    if grader.prepare is None or not grader.prepare.patch:
        return
    for file in parse(grader.prepare.patch.encode("utf-8", "surrogateescape")).files:
        for name in (file.old, file.new):
            if name is not None:
                yield name.raw if name.is_bare else name.raw.partition(b"/")[2] or name.raw


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
