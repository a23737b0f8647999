"""`verifier`: a program of the task's author judges a completion, with its submission as a tool.

    verifier's sandbox ──▶ requests ──▶ this service ──▶ sandboxes of the submission (`subject.py`)

Only data comes back. A failure before the verifier has read from a completion is an InvalidTask; a later
failure may be the doing of the submission, and scores 0.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from proctor_client.wire import VerifierGrader
from proctor_service.errors import DeadlinePassed, InvalidTask
from proctor_service.features.verifiers.author_programs import (
    AuthorPrograms,
    author_limits,
    digest_of,
)
from proctor_service.features.verifiers.checkers import CHECKER_FAILED
from proctor_service.features.verifiers.conversation import Conversation, VerifierResult
from proctor_service.features.verifiers.interactors import with_relay
from proctor_service.features.verifiers.pairs import Wanted
from proctor_service.features.verifiers.program_conversation import ProgramConversation
from proctor_service.features.verifiers.subject import Subject
from proctor_service.judge.run import message
from proctor_service.judge.stored_results import StoredResults
from proctor_service.judge.submission import (
    GraderRules,
    Judgement,
    Submission,
    author_programs,
)
from proctor_service.sandbox.interface import DEFAULT, GuestMessage, Sandbox, Sandboxes
from proctor_service.settings.languages import PYTHON, language_named

_LONGEST_CHARACTERS = 4 << 20
_LONG_CHARACTERS = 1 << 16
_MOST_REFERENCES = 10_000
_MOST_REFERENCES_BYTES = 16 << 20
_ENTRY_BYTES = 200
_SUBMISSION = "submission"
_SPARE_SECONDS = 0.5  # between the end of the judgement and the item's deadline
_OWN_PART = 0.5  # of the time up to the deadline, from which on the submission is too slow
_TOO_SLOW = "time limit: its runs and calls took most of the time up to the deadline"


class Verifiers:
    """Judge of `verifier`, by its source: `named_verifiers.py` has replaced a request's name."""

    def __init__(self, programs: AuthorPrograms) -> None:
        self._programs = programs
        self._references: StoredResults[str | None] = StoredResults(
            _MOST_REFERENCES, _MOST_REFERENCES_BYTES, lambda text: _ENTRY_BYTES + len(text or "")
        )

    def rules(self) -> Sequence[GraderRules]:
        """Return the rules of `verifier`."""
        return (GraderRules("verifier", self.judge),)

    async def judge(
        self, submission: Submission, grader: VerifierGrader, backend: Sandboxes
    ) -> Judgement:
        """Have the verifier judge a completion. Raises InvalidTask."""
        if grader.name is not None:
            raise InvalidTask(f"verifier: there is no {grader.name[:100]!r} here")
        if submission.reference is not None:
            await self._check_reference(submission, submission.reference, grader, backend)
        result, subject = await self._judged(submission, grader, backend)
        return _judgement(result, subject, grader)

    async def _check_reference(
        self, submission: Submission, source: str, grader: VerifierGrader, backend: Sandboxes
    ) -> None:
        """Have the verifier judge the task's own completion, once for a task. Raises InvalidTask.

        The files may be a policy's: a reference passing without the files is right, too.
        """
        own = replace(submission, source=source, completion=grader.reference or "", state=None)
        problem = await self._problem(own, grader, backend)
        if problem is not None and own.files:
            problem = await self._problem(replace(own, files={}), grader, backend) and problem
        if problem is not None:
            raise InvalidTask(f"verifier: it does not accept the reference: {problem}")

    async def _problem(
        self, own: Submission, grader: VerifierGrader, backend: Sandboxes
    ) -> str | None:
        """Return why the verifier rejects the reference; None for an accepted reference."""

        async def make() -> str | None:
            result, subject = await self._judged(own, grader, backend)
            if result.score == 1:
                return None
            subject.check_blame()
            why = result.trouble or result.message
            how = result.verdict or ("it failed" if result.trouble else f"score {result.score}")
            return f"{how}: {why}" if why else how

        conditions = (own.limits, own.language, own.environment, own.compiler, own.files)
        prompt = json.dumps(own.prompt, sort_keys=True)
        key = digest_of(grader, own.source, repr(conditions), prompt)
        return await self._references.once(key, make)

    async def _judged(
        self, submission: Submission, grader: VerifierGrader, backend: Sandboxes
    ) -> tuple[VerifierResult, Subject]:
        subject = Subject(submission, backend, self._programs.languages)
        try:
            work = self._result(submission, grader, backend, subject)
            return await _in_time(submission, subject, work), subject
        finally:
            await subject.close_all()

    async def _result(
        self, submission: Submission, grader: VerifierGrader, backend: Sandboxes, subject: Subject
    ) -> VerifierResult:
        """Run the verifier in a sandbox of its own, to its score."""
        if len(submission.completion) > _LONGEST_CHARACTERS:
            return VerifierResult(0.0, message="the completion is longer than a verifier reads")
        inputs = {
            "completion": submission.completion,
            "code": submission.source or None,
            "prompt": submission.prompt,
            "params": grader.params,
        }
        if language_named(grader.verifier_language, {}) == PYTHON:
            return await self._by_function(submission, grader, backend, subject, inputs)
        return await self._by_program(submission, grader, backend, subject, inputs)

    async def _by_function(
        self,
        submission: Submission,
        grader: VerifierGrader,
        backend: Sandboxes,
        subject: Subject,
        inputs: Mapping[str, object],
    ) -> VerifierResult:
        limits = author_limits(grader.verifier_limits, submission.limits)
        line = message("verify", source=grader.source, files=grader.files, inputs=inputs)
        is_long = len(submission.completion) + len(submission.source) > _LONG_CHARACTERS
        uses_submission = any(
            _SUBMISSION in text for text in (grader.source, *grader.files.values())
        )
        wanted = Wanted(limits, grader.environment or DEFAULT)
        async with self._leased(backend, wanted, subject, uses_submission) as sandbox:
            sandbox.begin(GuestMessage(line, limits, takes_turns=True))
            return await Conversation(sandbox, subject, may_be_blamed=is_long).result()

    async def _by_program(
        self,
        submission: Submission,
        grader: VerifierGrader,
        backend: Sandboxes,
        subject: Subject,
        inputs: Mapping[str, object],
    ) -> VerifierResult:
        [(name, author)] = author_programs(grader)
        program = await self._programs.prepared(name, author, submission, backend)
        limits = with_relay(program.submission.limits)
        wanted = Wanted(limits, program.submission.environment)
        async with self._leased(backend, wanted, subject, True) as sandbox:
            return await ProgramConversation(sandbox, program, subject).result(limits, inputs)

    @asynccontextmanager
    async def _leased(
        self, backend: Sandboxes, wanted: Wanted, subject: Subject, uses_submission: bool
    ) -> AsyncIterator[Sandbox]:
        """Lease the verifier's sandbox, and the first sandbox of a submission used by the verifier."""
        first = subject.first_wanted if uses_submission else None
        if first is None:
            async with backend.lease(wanted.limits, wanted.environment) as sandbox:
                yield sandbox
            return
        async with self._programs.pairs.pair(backend, wanted, first) as (sandbox, spare):
            subject.spare = spare
            yield sandbox


async def _in_time(
    submission: Submission, subject: Subject, work: Awaitable[VerifierResult]
) -> VerifierResult:
    """Return the result; `timeout` for a submission which took most of the time up to the deadline itself.

    Raises DeadlinePassed if the service took the time.
    """
    asked_at, deadline = submission.asked_at, submission.deadline
    if math.isinf(deadline):
        return await work
    try:
        async with asyncio.timeout(deadline - time.monotonic() - _SPARE_SECONDS):
            return await work
    except TimeoutError:
        await subject.close_all()
        if subject.own_seconds < _OWN_PART * (deadline - asked_at):
            raise DeadlinePassed("the deadline passed while it was judged") from None
        return VerifierResult(0.0, "timeout", _TOO_SLOW)


def _judgement(result: VerifierResult, subject: Subject, grader: VerifierGrader) -> Judgement:
    """Return the judgement of a result. Raises SandboxLost if a failure may have another cause."""
    verdict, text, signals = result.verdict, result.message, set(result.signals)
    if result.trouble is not None:
        signals.add(CHECKER_FAILED)
        text = "the verifier failed on the submission"
        text += f": {result.trouble}" if grader.reveal else ""
    if verdict is None:
        verdict = "passed" if result.score == 1 else "failed"
    if verdict != "passed":
        subject.check_blame()
    is_counted = result.total > 0
    return Judgement(
        verdict,
        passed=result.passed if is_counted else int(verdict == "passed"),
        total=result.total if is_counted else 1,
        failures=result.failures,
        message=text,
        hack_signals=tuple(sorted(signals)),
        usage=subject.usage,
        sandbox_id=subject.sandbox_id,
        score=result.score,
    )
