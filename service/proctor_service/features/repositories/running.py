"""A run of a task's tests in its grading sandbox: listener, command, files, outcomes."""

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
from proctor_service.features.repositories.holding import Holding
from proctor_service.features.repositories.patch_text import parse
from proctor_service.features.repositories.reports import listener
from proctor_service.features.repositories.reports.in_process import InProcess
from proctor_service.features.repositories.reports.interface import (
    ImageFacts,
    Report,
    Reported,
    TestRun,
)
from proctor_service.features.repositories.reports.junit import SIGN, JunitReport
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
)

SOURCE = Path(listener.__file__).read_text() + Path(listening.__file__).read_text().replace(
    "from __future__ import annotations", ""
).replace("Listener: Any = None\nparent_of: Any = None\n", "")
RUNNER_MODULES = ("pytest", "_pytest", "pluggy", "iniconfig", "xdist", "execnet")
MOST_EVENTS_BYTES = listener.MOST_BYTES + (1 << 20)
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
    """Return a path in a sandbox for the listener of a run."""
    return f"/tmp/.{secrets.token_hex(8)}/events"


async def run_tests(
    workspace: Workspace,
    grader: RepositoryGrader,
    report: Report,
    socket: str,
    builds: bool,
    folder: str,
    backend: Sandboxes,
    read_only: Sequence[bytes],
) -> Tested:
    """Run the command of the tests. Raises SandboxEnded, and the errors of the sandbox.

    `read_only`: paths of files made read-only once a runner begins.
    """
    sandbox = workspace.sandbox
    image = Tree(sandbox, "/", folder)
    facts = ImageFacts(workspace.site_packages)
    files = report.files(facts)
    await image.put(
        {name.lstrip("/").encode(): FileState("644", data) for name, data in files.items()}
    )
    sign = SIGN if isinstance(report, JunitReport) else ""
    before = await workspace.tree.marked(report.collects(), sign)
    record = posixpath.join(folder, "events")
    await asyncio.to_thread(Path(record).touch, 0o600)
    runner = _runner_files(report, facts, workspace) if builds else []
    listening_at = Operation(
        SOURCE, ("listen", socket, runner), stdout=record, most_written_bytes=MOST_EVENTS_BYTES
    )
    await sandbox.operate(listening_at)
    process = int((await asyncio.to_thread(_lines, record))[0])
    holding = Holding(sandbox, image, workspace.shell.directory, read_only, socket, record)
    await holding.open()
    shell = workspace.shell
    variables = {**shell.variables, **report.variables(shell.all_variables)}
    shell = replace(shell, variables=variables)
    command = shell.command(
        grader.test, grader.build if builds else None, _restart(process, socket)
    )
    ended = await holding.during(sandbox.exec(command))
    await sandbox.operate(Operation(SOURCE, ("end", process)))
    events = (await asyncio.to_thread(_lines, record))[1:]
    collected = await workspace.tree.collected(report.collects(), before)
    exited = ended.exit_code if ended.ending == "exited" else None
    run = TestRun(events, ended.stdout, ended.stderr, collected, exited)
    if isinstance(report, ScriptReport):
        return Tested(ended, await _read_by_script(report, run, backend))
    return Tested(ended, await asyncio.to_thread(report.read, run))


async def _read_by_script(report: ScriptReport, run: TestRun, backend: Sandboxes) -> Reported:
    """Return the outcomes read from a run by the task's program, in a sandbox of its own."""
    stdin = await asyncio.to_thread(report.stdin, run)
    async with backend.open(SCRIPT_LIMITS) as sandbox:
        ended = await sandbox.exec(Command(code=report.program, stdin=stdin))
    try:
        return await asyncio.to_thread(report.outcomes_of, ended.stdout)
    except UnreadableOutput:
        return report.read(run)


def _runner_files(report: Report, facts: ImageFacts, workspace: Workspace) -> list[str]:
    """Return the places of the runner and its observer, except for a runner contained in the repository."""
    if not isinstance(report, InProcess):
        return []
    parts = {part for path in workspace.base.paths() for part in path.split(b"/")[:3]}
    modules = [each for each in RUNNER_MODULES if each.encode() not in parts]
    names = [*modules, "pytest.py", report.name, f"{report.name}.pth"]
    return [posixpath.join(folder, each) for folder in facts.site_packages for each in names]


def _restart(process: int, socket: str) -> str:
    """Return lines for a shell that make the listener discard its events so far."""
    waiting = f"until [ -e {socket}{listener.RESTARTED} ] || [ $proctor_tries -ge 200 ]; do"
    return (
        f"command kill -USR1 {process} 2>/dev/null; proctor_tries=0\n{waiting} "
        "proctor_tries=$((proctor_tries + 1)); sleep 0.05; done; unset proctor_tries"
    )


def _lines(path: str) -> list[bytes]:
    with Path(path).open("rb") as file:
        return [line.rstrip(b"\n") for line in file]


async def installed_modules(workspace: Workspace) -> frozenset[bytes]:
    """Return the names of the modules installed for the interpreters of an image."""
    operation = Operation(TREES, ("modules", list(workspace.site_packages)))
    found = await workspace.sandbox.operate(operation)
    return frozenset(os.fsencode(each) for each in json.loads(found))


def is_built(grader: RepositoryGrader, changed: Collection[bytes]) -> bool:
    """Return True if the task has a build, and a changed file needs the build.

    `changed`: files of the submission and of the task's tests. Files changed by `prepare` count, too: the
    image was built from other sources.
    """
    if grader.build is None:
        return False
    return not grader.build_if or any(
        fnmatchcase(name, pattern) or fnmatchcase(posixpath.basename(name), pattern)
        for name in map(os.fsdecode, {*changed, *_prepared(grader)})
        for pattern in grader.build_if
    )


def _prepared(grader: RepositoryGrader) -> Iterator[bytes]:
    """Yield the files named by `prepare.patch`, already applied."""
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
    """Return the paths of the task's files changed by a run. `writable`: patterns of exempt files."""
    changed = [path for path, state in before.items() if after.get(path) != state]
    return [
        path
        for path in changed
        if not any(fnmatchcase(os.fsdecode(path), pattern) for pattern in writable)
    ]
