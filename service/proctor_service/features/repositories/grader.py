"""`repository`: the change of a repository, judged by named tests of its project.

Only the change crosses into a fresh sandbox of the image, whether the change comes as a text or as an agent's
sandbox. There the files that decide how tests are found and run are the task's (`taking_out.py`), and the
task's tests lie on top. Named tests alone decide (`rule.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from proctor_client.wire import (
    MAX_FAILURES,
    Extract,
    Failure,
    LeftOutFile,
    NamedTests,
    RepositoryGrader,
    RepositoryResult,
)
from proctor_service.errors import (
    FileMissing,
    FileRefused,
    InvalidRequest,
    InvalidTask,
    SandboxEnded,
    SandboxLost,
)
from proctor_service.features.repositories import changes, running
from proctor_service.features.repositories.brought import Brought, bring, listed_tests, report_kind
from proctor_service.features.repositories.change import Change, LeftOut
from proctor_service.features.repositories.diff_text import diff_of_change
from proctor_service.features.repositories.extraction import diff_of, edits_of
from proctor_service.features.repositories.patches import PatchFailed
from proctor_service.features.repositories.prepared import PreparedStates
from proctor_service.features.repositories.read_only_files import read_only_files
from proctor_service.features.repositories.reports import FALLBACKS, doctest_paths, report_of
from proctor_service.features.repositories.reports.interface import Reported
from proctor_service.features.repositories.rule import Decision, decide
from proctor_service.features.repositories.taking_out import Crossing, graded, take_out
from proctor_service.features.repositories.trees import (
    SavedFiles,
    TooMuch,
    saving,
)
from proctor_service.features.repositories.workspace import Workspace, shell_of
from proctor_service.judge.run import LIMITS, of_silence, text_of
from proctor_service.judge.stored_results import StoredResults
from proctor_service.judge.submission import (
    DefaultLimits,
    GraderRules,
    Judgement,
    Place,
    Submission,
    TreeRules,
)
from proctor_service.sandbox.interface import (
    Ended,
    Limits,
    Operation,
    Sandboxes,
    StatefulSandbox,
    Usage,
)

DEFAULTS = DefaultLimits(
    cpu_seconds=1800, wall_seconds=1800, memory_mb=4096, disk_mb=4096, processes=512
)
MOST_LEFT_OUT = 100
_STORED_TASKS = 4096
_STORED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Verified:
    """A run of the tests on some change. `ended`: None for an unfinished run."""

    reported: Reported
    ended: Ended | None
    signals: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Crossed:
    """Files brought into grading by a submission, and the repairs of their reading."""

    change: Change
    how: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    signals: tuple[str, ...] = ()


class RepositoryJudge:
    """Judge of repositories; keeps the outcomes of a task's tests with its reference, or without a change."""

    def __init__(self) -> None:
        self._states = PreparedStates()
        self._stored: StoredResults[Reported] = StoredResults(
            _STORED_TASKS, _STORED_BYTES, lambda found: sum(map(len, found.outcomes)) + 200
        )

    async def judge(
        self, submission: Submission, grader: RepositoryGrader, backend: Sandboxes
    ) -> Judgement:
        """Return the judgement of a change. Raises InvalidTask for tests unreported even without a change."""
        if not listed_tests(grader) and report_kind(grader) != "exit_code":
            raise InvalidTask("the task names no test: fail_to_pass and pass_to_pass are empty")
        own = self._stored.get(_key(submission, grader))
        return await self._judged(submission, grader, backend, _fallback(grader, own))

    async def _judged(
        self, submission: Submission, grader: RepositoryGrader, backend: Sandboxes, fallback: str
    ) -> Judgement:
        """Return the judgement of a change. `fallback`: kind of report in place of the task's."""
        async with self._workspace(submission, grader, backend) as (workspace, folder):
            sandbox_id = workspace.sandbox.id
            brought = await bring(workspace, grader)
            try:
                crossed = await _crossed(submission, workspace, brought)
            except PatchFailed as failed:
                return _unread(failed, grader, sandbox_id)
            except TooMuch as too_much:
                message = f"The repository is too large: {too_much}."
                return _decided("output_limit", message, grader, sandbox_id)
            if not crossed.change:
                message = "The change has nothing that counts."
                result = _result(crossed, None, None)
                return _decided("failed", message, grader, sandbox_id, result, crossed.signals)
            try:
                verified = await _verified(
                    workspace, grader, brought, crossed.change, folder, backend, fallback
                )
            except FileRefused as refused:
                message = f"The change cannot be put in place: {refused.message}"
                return _decided("output_limit", message, grader, sandbox_id)
        decision = await self._decision(submission, grader, verified.reported, None)
        if not decision.reported and not _is_limited(verified.ended):
            own = await self._own_run(submission, grader, backend)
            if not await asyncio.to_thread(_names_listed, grader, own):
                state = "without the change" if grader.reference is None else "with the reference"
                raise InvalidTask(f"{state}, too, the run reports none of the listed tests")
            if not fallback and (other := _fallback(grader, own)):
                return await self._judged(submission, grader, backend, other)
        if decision.needs_reference and grader.reference is not None:
            reference = await self._own_run(submission, grader, backend)
            decision = await self._decision(submission, grader, verified.reported, reference)
        return _judgement(submission, grader, crossed, verified, decision, sandbox_id)

    async def _decision(
        self,
        submission: Submission,
        grader: RepositoryGrader,
        reported: Reported,
        reference: Reported | None,
    ) -> Decision:
        # a submission's run may report very many names
        return await asyncio.to_thread(decide, grader, reported, submission.scoring, reference)

    async def _own_run(
        self, submission: Submission, grader: RepositoryGrader, backend: Sandboxes
    ) -> Reported:
        """Return the outcomes with the task's reference, or without a change if the task lacks a reference.

        The run is made once for a task, by the kind of report that works in the task's image: so the task
        decides the kind, never a submission.
        """

        async def make() -> Reported:
            for fallback in ("", *FALLBACKS.get(report_kind(grader), ())):
                found = await self._run_of_task(submission, grader, backend, fallback)
                if not fallback:
                    first = found
                    observes = found.reported.is_complete and found.reported.outcomes
                    if observes or _is_limited(found.ended):
                        break
                works = not fallback or found.reported.is_complete
                if works and await asyncio.to_thread(_names_listed, grader, found.reported):
                    return found.reported
            return first.reported

        return await self._stored.once(_key(submission, grader), make)

    async def _run_of_task(
        self, submission: Submission, grader: RepositoryGrader, backend: Sandboxes, fallback: str
    ) -> Verified:
        async with self._workspace(submission, grader, backend) as (workspace, folder):
            brought = await bring(workspace, grader)
            change = brought.reference or Change({})
            return await _verified(workspace, grader, brought, change, folder, backend, fallback)

    @asynccontextmanager
    async def _workspace(
        self, submission: Submission, grader: RepositoryGrader, backend: Sandboxes
    ) -> AsyncIterator[tuple[Workspace, str]]:
        """Open a sandbox with the task's repository, and a folder for crossing files."""
        opened = self._states.opened(
            grader, backend, submission.limits, submission.environment, submission.files
        )
        async with opened as (sandbox, facts, folder):
            yield Workspace.of(sandbox, grader, facts, folder), folder

    @asynccontextmanager
    async def open_for_agent(
        self,
        grader: RepositoryGrader,
        sandboxes: Sandboxes,
        limits: Limits,
        environment: str,
        files: Mapping[str, str],
        tags: Sequence[str],
    ) -> AsyncIterator[StatefulSandbox]:
        """Open an agent's sandbox, in the agent's first state; see `TreeRules`."""
        opened = self._states.opened(
            grader, sandboxes, limits, environment, files, for_agent=True, tags=tags
        )
        del files
        async with opened as (sandbox, facts, _):
            shell = shell_of(grader, facts)
            await sandbox.set_command_defaults(shell.directory, shell.variables)
            yield sandbox


def _names_listed(grader: RepositoryGrader, reported: Reported) -> bool:
    return decide(grader, reported, "all", None).reported > 0


def _fallback(grader: RepositoryGrader, own: Reported | None) -> str:
    """Return the kind of report used by the task's own run in place of the grader's, or ""."""
    return own.kind if own is not None and own.kind != report_kind(grader) else ""


async def _crossed(submission: Submission, workspace: Workspace, brought: Brought) -> _Crossed:
    """Return the crossing part of a submission. Raises PatchFailed and TooMuch."""
    base, rules = workspace.base, brought.rules
    if submission.tree_file is not None:
        assert isinstance(submission.grader, RepositoryGrader)
        saved = await asyncio.to_thread(SavedFiles, submission.tree_file)
        hidden = changes.hiding(submission.grader.hide, workspace.shell.directory)
        found = await changes.of_saved(saved, base, hidden)
    elif submission.source:
        found = await changes.of_text(submission.source, base, rules.reason)
    else:  # an agent without a sandbox
        found = changes.Submitted(Change({}))
    if any(path.endswith((b".py", b".so")) for path in found.change.files.keys() - base.paths()):
        installed = await running.installed_modules(workspace)
        rules = rules.with_installed(installed)
    crossing: Crossing = await asyncio.to_thread(take_out, found.change, rules)
    left_out = (*found.left_out, *crossing.left_out)
    return _Crossed(crossing.change, found.how, left_out, crossing.signals)


def _doctests(
    workspace: Workspace, grader: RepositoryGrader, brought: Brought, change: Change
) -> dict[bytes, bytes]:
    """Return the task's text of changed source files with listed doctests."""
    found = {}
    for path in doctest_paths(grader) & change.files.keys():
        state = workspace.base.state(path)
        if brought.reference is not None:
            state = brought.reference.files.get(path, state)
        if state is not None:
            found[path] = state.content
    return found


async def _verified(
    workspace: Workspace,
    grader: RepositoryGrader,
    brought: Brought,
    change: Change,
    folder: str,
    backend: Sandboxes,
    fallback: str = "",
) -> Verified:
    """Put a change and the task's tests in place, and run the tests.

    `fallback`: kind of report in place of the task's.
    """
    delivered = grader.deliver is not None
    state = await asyncio.to_thread(
        graded,
        brought.rules,
        Change({}) if delivered else change,
        brought.reference,
        brought.tests,
        brought.removed,
    )
    await workspace.tree.put(state.files)
    if grader.deliver is not None:
        diff = await asyncio.to_thread(diff_of_change, change, workspace.base)
        await workspace.sandbox.write_file(grader.deliver, diff)
    read_only = await asyncio.to_thread(read_only_files, brought.rules, state.files, change.files)
    socket = running.socket_path()
    doctests = await asyncio.to_thread(_doctests, workspace, grader, brought, change)
    directory = workspace.shell.directory
    report = report_of(grader, directory, socket, change, doctests, fallback)
    builds = running.is_built(grader, {*change.files, *brought.tests})
    try:
        tested = await running.run_tests(
            workspace, grader, report, socket, builds, folder, backend, read_only
        )
        after = await workspace.tree.states(brought.tests.keys())
    except SandboxEnded as ended:
        nothing = Reported({}, report_kind(grader), is_complete=False)
        return Verified(nothing, None, message=f"the sandbox ended: {ended.message}")
    except FileMissing as missing:
        nothing = Reported({}, report_kind(grader), is_complete=False)
        return Verified(nothing, None, message=f"the run moved the repository: {missing.message}")
    rewritten = running.changed_tests(brought.tests, after, grader.writable)
    signals = ("tests_changed",) if rewritten else ()
    return Verified(tested.reported, tested.ended, signals)


def _key(submission: Submission, grader: RepositoryGrader) -> bytes:
    """Return the digest of a task: all but the submission's own change."""
    key = hashlib.blake2b(digest_size=20)
    key.update(repr(grader).encode("utf-8", "surrogatepass"))
    key.update(repr((submission.environment, sorted(submission.files.items()))).encode())
    return key.digest()


def _is_limited(ended: Ended | None) -> bool:
    return ended is None or ended.ending in LIMITS


def _unread(failed: PatchFailed, grader: RepositoryGrader, sandbox_id: str) -> Judgement:
    where = f"{failed.file}: " if failed.file else ""
    hunk = "" if failed.hunk is None else f"hunk {failed.hunk}: "
    message = f"The diff does not apply: {where}{hunk}{failed.message}"
    return _decided("syntax_error", message, grader, sandbox_id)


def _decided(
    verdict: str,
    message: str,
    grader: RepositoryGrader,
    sandbox_id: str,
    result: RepositoryResult | None = None,
    signals: Sequence[str] = (),
) -> Judgement:
    """Return a judgement without a run of the tests."""
    if result is None:
        result = _result(_Crossed(Change({})), None, None)
    result = result.model_copy(
        update={
            "fail_to_pass": NamedTests(total=len(grader.fail_to_pass)),
            "pass_to_pass": NamedTests(total=len(grader.pass_to_pass)),
        }
    )
    return Judgement(
        verdict,  # type: ignore[arg-type]
        total=len(listed_tests(grader)),
        message=message,
        integrity="in_process",
        sandbox_id=sandbox_id,
        score=0.0,
        hack_signals=tuple(signals),
        repository=result,
    )


def _result(
    crossed: _Crossed, reported: Reported | None, decision: Decision | None
) -> RepositoryResult:
    left_out = [LeftOutFile(path=each.path, reason=each.reason) for each in crossed.left_out]
    found = RepositoryResult(
        applied=list(crossed.how),
        left_out=left_out[:MOST_LEFT_OUT],
        report=None if reported is None else reported.kind,
    )
    if decision is None:
        return found
    return found.model_copy(
        update={"fail_to_pass": decision.fail_to_pass, "pass_to_pass": decision.pass_to_pass}
    )


def _judgement(
    submission: Submission,
    grader: RepositoryGrader,
    crossed: _Crossed,
    verified: Verified,
    decision: Decision,
    sandbox_id: str,
) -> Judgement:
    """Return the judgement of a run of the tests. Raises SandboxLost in doubt about a failure."""
    ended = verified.ended
    verdict, message = decision.verdict, decision.message
    if verdict != "passed":
        if ended is None:
            verdict, message = "runtime_error", verified.message
        elif ended.doubt:
            raise SandboxLost(ended.doubt)
        elif ended.ending in LIMITS:
            verdict, message = LIMITS[ended.ending]
        elif ended.ending == "killed":
            of_silence(ended)
    signals = (*crossed.signals, *verified.reported.signals, *verified.signals, *decision.signals)
    return Judgement(
        verdict,
        passed=decision.passed,
        total=decision.total,
        failures=tuple(
            Failure(index=index, test=name, message=why)
            for index, name, why in decision.failures[:MAX_FAILURES]
        ),
        message=message,
        stdout="" if ended is None else text_of(ended.stdout),
        stderr="" if ended is None else text_of(ended.stderr),
        truncated=ended is not None and ended.truncated,
        exit_code=None if ended is None else ended.exit_code,
        integrity="in_process",
        hack_signals=tuple(dict.fromkeys(signals)),
        usage=Usage() if ended is None else ended.usage,
        sandbox_id=sandbox_id,
        score=decision.score,
        repository=_result(crossed, verified.reported, decision),
    )


def _code(completion: str, rule: Extract) -> str | None:
    """Return the diff of a completion, or its edits behind EDITS; None if absent."""
    if rule == "none":
        return completion or None
    if rule == "edits":
        found = edits_of(completion)
        return changes.EDITS + found if found else None
    return diff_of(completion) or None


def _check(grader: RepositoryGrader, place: Place, where: str) -> None:
    if not place.has_operations:
        raise InvalidRequest(f"{where}: repository needs sandboxes on the service's machine")
    if not place.keeps_files:
        raise InvalidRequest(
            f"{where}: repository judges what an agent leaves in its sandbox: the agent must be of the "
            "kind tools, without submit_solution"
        )


def _save(grader: RepositoryGrader, limits: Limits, path: str) -> Operation:
    return saving(grader.directory, limits.disk_mb << 20, path)


def rules() -> GraderRules:
    """Return the rules of the grader."""
    judge = RepositoryJudge()
    return GraderRules(
        "repository",
        judge.judge,
        check=_check,
        code=_code,
        limits=DEFAULTS,
        tree=TreeRules(judge.open_for_agent, _save),
    )
