"""The task's own files: tests, and the state made by the reference."""

from __future__ import annotations

import asyncio
import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor_client.wire import JunitReport, RepositoryGrader, ScriptReport
from proctor_service.errors import InvalidTask
from proctor_service.features.repositories.change import Change, FileState
from proctor_service.features.repositories.changes import of_patch
from proctor_service.features.repositories.patches import PatchFailed
from proctor_service.features.repositories.protection import Protection, Rules
from proctor_service.features.repositories.reports import DEFAULT_JUNIT
from proctor_service.features.repositories.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Brought:
    """Files brought into the grading sandbox by the task.

    `tests`: files by path; `removed`: paths absent in grading. `reference`: the change of the reference.
    `rules`: of the task's protected files.
    """

    tests: Mapping[bytes, FileState]
    removed: Sequence[bytes]
    reference: Change | None
    rules: Rules


async def bring(workspace: Workspace, grader: RepositoryGrader) -> Brought:
    """Return the task's files, as its patches make them of the base. Raises InvalidTask."""
    tests: dict[bytes, FileState] = dict(workspace.from_commit)
    removed = [path for path in workspace.base.paths() if _named(path, grader.remove)]
    if grader.test_patch:
        change = await _patched(workspace, grader.test_patch, "test_patch")
        for path, state in change.files.items():
            if state is None:
                removed.append(path)
            else:
                tests[path] = state
    for name, text in grader.files.items():
        tests[name.encode()] = FileState("644", text.encode("utf-8", "surrogatepass"))
    for name, text in grader.binary_files.items():
        tests[name.encode()] = FileState("644", base64.b64decode(text))
    reference = None
    if grader.reference is not None:
        reference = await _patched(workspace, grader.reference, "reference")
    protection = Protection(
        report=report_kind(grader),
        listed=listed_tests(grader),
        brought=[*tests, *removed],
        command=[_relative(grader.test, workspace.shell.directory)],
        protect=grader.protect or (),
        writable=grader.writable,
        reference=[] if reference is None else list(reference.files),
        collected=[
            each.removeprefix(f"{workspace.shell.directory}/") for each in collected_by(grader)
        ],
        python_path=_relative(grader.env.get("PYTHONPATH", ""), workspace.shell.directory),
        path=_relative(grader.env.get("PATH", ""), workspace.shell.directory),
    )
    rules = await asyncio.to_thread(Rules, workspace.base, protection)
    return Brought(tests, removed, reference, rules)


def collected_by(grader: RepositoryGrader) -> Sequence[str]:
    """Return the patterns of files with outcomes after a run."""
    if isinstance(grader.report, JunitReport):
        return grader.report.junit
    if isinstance(grader.report, ScriptReport):
        return grader.report.collect
    return DEFAULT_JUNIT if grader.report == "junit" else ()


def _relative(command: str | Sequence[str], directory: str) -> str:
    """Return a command in which the repository's absolute path is `.`."""
    text = command if isinstance(command, str) else shlex.join(command)
    place = rf"(?<![\w./-]){re.escape(directory.rstrip('/'))}(?![\w.-])"
    return re.sub(place, ".", text)


def report_kind(grader: RepositoryGrader) -> str:
    """Return the name of the kind of report."""
    if isinstance(grader.report, JunitReport):
        return "junit"
    return "script" if isinstance(grader.report, ScriptReport) else grader.report


def listed_tests(grader: RepositoryGrader) -> Sequence[str]:
    """Return the names of all deciding tests."""
    return [*grader.fail_to_pass, *grader.pass_to_pass, *(grader.expected or ())]


def _named(path: bytes, patterns: Sequence[str]) -> bool:
    """Return True for a path equal to a pattern, or below a pattern."""
    return any(path == each or path.startswith(each + b"/") for each in map(_stripped, patterns))


def _stripped(pattern: str) -> bytes:
    return pattern.strip("/").encode()


async def _patched(workspace: Workspace, text: str, field: str) -> Change:
    try:
        return await of_patch(text.encode("utf-8", "surrogateescape"), workspace.base)
    except PatchFailed as failed:
        raise InvalidTask(
            f"{field} does not apply: {failed.file} {failed.message}"[:1000]
        ) from None
