"""Grading of a stateful sandbox: its files are judged in a fresh sandbox.

Files removed or broken by the agent are a verdict rather than an error: an error would let the
agent avoid a bad reward.
"""

from __future__ import annotations

import uuid
from contextlib import closing

from proctor_client.wire import GradeRequest, HarborGrader
from proctor_service.errors import FileMissing, FileRefused, SandboxEnded
from proctor_service.evaluate import Item, NoCode, Origin
from proctor_service.http.responses import Line
from proctor_service.judge.extract import PYTHON_TEXTS, Around, assembled
from proctor_service.judge.submission import (
    SOLUTION,
    Submission,
    integrity_of,
    needs_solution,
    source_of,
    test_count,
)
from proctor_service.rewards.checks import check_files_of, refuse_compiler
from proctor_service.rewards.items import Machine
from proctor_service.rewards.routes import RewardHandler
from proctor_service.sandbox.interface import Limits
from proctor_service.sandboxes import Registry, Session
from proctor_service.scheduling.queue import FairQueue

GRADING_SECONDS = 600.0
"""Deadline of a waiting grading; after that the result has the error `deadline`, as in /reward."""


class Gradings:
    """Gradings of sandboxes; `queue` limits how many gradings hold a sandbox's files in memory."""

    def __init__(
        self, machine: Machine, registry: Registry, rewards: RewardHandler, queue: FairQueue
    ) -> None:
        self.queue = queue
        self._machine = machine
        self._registry = registry
        self._rewards = rewards

    def check(self, asked: GradeRequest, session: Session) -> Limits:
        """Return the requested limits; the default is the sandbox's own, so its files fit.

        Raises InvalidRequest.
        """
        check_files_of(asked.grader, "grader")
        if asked.compiler is not None:
            refuse_compiler("compiler")
        self._machine.check_place(asked.grader, session.environment, "grader")
        return self._machine.limits(asked.limits, "limits", session.limits)

    async def grade(
        self, session: Session, asked: GradeRequest, limits: Limits, begun: float
    ) -> Line:
        """Return the result of a grading that began at `begun` (monotonic clock)."""
        deadline = begun + GRADING_SECONDS
        if isinstance(asked.grader, HarborGrader):  # the verifier may run twice
            deadline += 2 * asked.grader.timeout_seconds
        with closing(self.queue.reserve(1, (session.tenant, session.job))):
            async with self.queue.admit(session.tenant, session.job, deadline):
                try:
                    submission = await self._submission(session, asked, limits)
                except SandboxEnded as ended:
                    if not session.by_own_act:
                        raise
                    submission = _nothing_to_judge(asked, session, ended.message)
                item = Item(
                    evaluation_id=f"ev_{uuid.uuid4().hex}",
                    submission=submission,
                    tenant=session.tenant,
                    job=session.job,
                    deadline=deadline,
                    tags=session.tags,
                    graded_sandbox_id=session.id,
                    origin=Origin(step=asked.step),
                )
                batch = self._rewards.judge_one(item)
                with batch.reading():
                    await batch.wait()
        return batch.results()[0]

    async def _submission(
        self, session: Session, asked: GradeRequest, limits: Limits
    ) -> Submission | NoCode:
        """Return a submission from the sandbox's files, with its solution.py if any."""
        where = (session.tenant, session.id)
        solution = b""
        try:
            solution = await self._registry.read_file(*where, SOLUTION)
        except (FileMissing, FileRefused) as refusal:
            if needs_solution(asked.grader):
                return _nothing_to_judge(asked, session, refusal.message)
        try:
            state = await self._registry.snapshot(*where)
        except FileRefused as refusal:
            return _nothing_to_judge(asked, session, refusal.message)
        source = source_of(solution, asked.grader)
        return Submission(
            assembled(source, PYTHON_TEXTS, Around.of(asked.grader, asked)),
            asked.grader,
            limits,
            asked.scoring,
            state=state,
            environment=session.environment,
            negative_control=asked.negative_control,
        )


def _nothing_to_judge(asked: GradeRequest, session: Session, why: str) -> NoCode:
    message = f"There is nothing to judge: {why}"
    integrity = integrity_of(asked.grader)
    return NoCode(test_count(asked.grader), message, session.environment, integrity)
