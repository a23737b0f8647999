"""`stdio` with cases judged by programs of the task's author."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence

from proctor_client.wire import GeneratedCases, StdioCase, StdioGrader
from proctor_service.features.verifiers.author_programs import AuthorPrograms, digest_of
from proctor_service.features.verifiers.checkers import ByChecker
from proctor_service.features.verifiers.generated_cases import CaseMaker
from proctor_service.features.verifiers.interactors import ByInteractor
from proctor_service.features.verifiers.named_checkers import named_checker
from proctor_service.judge.graders.programs import prepared
from proctor_service.judge.graders.stdio import ByOutput, CaseJudge, judge_cases
from proctor_service.judge.stored_results import StoredResults
from proctor_service.judge.submission import GraderRules, Judgement, Submission
from proctor_service.judge.text import Closeness, Comparison
from proctor_service.sandbox.interface import Sandboxes

_MOST_ANSWERS = 100_000
_MOST_ANSWERS_BYTES = 16 << 20
_ENTRY_BYTES = 200


class StdioTasks:
    """Judge of `stdio`, with the stored results of each task."""

    def __init__(self, programs: AuthorPrograms) -> None:
        self._programs = programs
        self._maker = CaseMaker(programs)
        self._digests = GraderDigests()
        self._accepted: StoredResults[str | None] = StoredResults(
            _MOST_ANSWERS, _MOST_ANSWERS_BYTES, lambda text: _ENTRY_BYTES + len(text or "")
        )

    def rules(self) -> Sequence[GraderRules]:
        """Return the rules of `stdio`."""
        return (GraderRules("stdio", self.judge),)

    async def judge(
        self, submission: Submission, grader: StdioGrader, backend: Sandboxes
    ) -> Judgement:
        """Judge each case by the checker or the interactor of the task, or else by its output."""
        cases = await self._cases(submission, grader, backend)
        program = await prepared(submission, backend, self._programs.languages)
        if isinstance(program, Judgement):
            return program
        judge_case = await self._judge_of(submission, grader, backend)
        return await judge_cases(program, grader, cases, judge_case)

    async def _cases(
        self, submission: Submission, grader: StdioGrader, backend: Sandboxes
    ) -> Sequence[StdioCase]:
        if not isinstance(grader.cases, GeneratedCases):
            return grader.cases
        digest = await self._digests.of(grader)
        return await self._maker.cases(grader.cases, digest, submission, backend)

    async def _judge_of(
        self, submission: Submission, grader: StdioGrader, backend: Sandboxes
    ) -> CaseJudge:
        closeness = Closeness.of(grader.tolerance)
        checker = grader.checker
        if grader.interactor is not None:
            return ByInteractor(self._programs, grader.interactor, submission, grader, backend)
        if checker is None:
            comparison = Comparison(grader.compare, closeness, grader.ignore_case)
            return ByOutput(backend, comparison, reveal=grader.reveal)
        if isinstance(checker, str):
            named = named_checker(checker, closeness, ignore_case=grader.ignore_case)
            return ByOutput(backend, named, reveal=grader.reveal)
        digest = await self._digests.of(grader)
        return ByChecker(
            self._programs, self._accepted, checker, digest, submission, grader, backend
        )


class GraderDigests:
    """Digests of the graders in use; the submissions of a request share theirs."""

    def __init__(self) -> None:
        self._digests: dict[int, bytes] = {}

    async def of(self, grader: StdioGrader) -> bytes:
        """Return the digest of a grader; a thread digests new graders, of any size."""
        name = id(grader)
        if name not in self._digests:
            digest = await asyncio.to_thread(digest_of, grader)
            if name not in self._digests:
                self._digests[name] = digest
                weakref.finalize(grader, self._digests.pop, name).atexit = False
        return self._digests[name]
