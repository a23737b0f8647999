"""Grading of a stateful sandbox: its files are judged in a fresh sandbox.

Files removed or broken by the agent are a verdict rather than an error: an error would let the
agent avoid a bad reward.
"""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack, closing

from proctor_client.wire import GradeRequest, HarborGrader
from proctor_service.errors import FileMissing, FileRefused, InvalidRequest, SandboxEnded
from proctor_service.http.responses import Line
from proctor_service.judge.extract import PYTHON_TEXTS, Around, assembled, reference_program
from proctor_service.judge.submission import (
    SOLUTION,
    Submission,
    TreeRules,
    integrity_of,
    needs_solution,
    source_of,
    test_count,
)
from proctor_service.outcomes import Item, NoCode, Origin
from proctor_service.rewards.machine import Machine, refuse_compiler
from proctor_service.rewards.routes import RewardHandler
from proctor_service.sandbox.interface import Limits
from proctor_service.sandboxes.registry import Registry, Session
from proctor_service.sandboxes.tree_files import tree_file
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

    def check(self, request: GradeRequest, session: Session) -> Limits:
        """Return the requested limits; the default is the sandbox's own, so its files fit.

        Raises InvalidRequest.
        """
        self._machine.check_grader(request.grader, "grader")
        if request.compiler is not None:
            refuse_compiler("compiler")
        self._machine.check_place(request.grader, session.environment, "grader")
        has_code_around = request.prelude or request.prompt_code or request.suffix_code
        if has_code_around and self._tree_of(request) is not None:
            raise InvalidRequest("no prelude, prompt_code or suffix_code belongs to a change")
        return self._machine.limits(request.limits, "limits", session.limits)

    async def grade(
        self, session: Session, request: GradeRequest, limits: Limits, begun: float
    ) -> Line:
        """Return the result of a grading that began at `begun` (monotonic clock)."""
        deadline = begun + GRADING_SECONDS
        if isinstance(request.grader, HarborGrader):  # the verifier may run twice
            deadline += 2 * request.grader.timeout_seconds
        if self._tree_of(request) is not None:  # the tests may run without the change, too
            deadline += 2 * (limits.cpu_seconds + limits.wall_seconds)
        with closing(self.queue.reserve(1, (session.tenant, session.job))):
            async with AsyncExitStack() as held:
                turn = self.queue.admit(session.tenant, session.job, deadline)
                await held.enter_async_context(turn)
                try:
                    submission = await self._submission(session, request, limits, held)
                except SandboxEnded as ended:
                    if not session.by_own_act:
                        raise
                    submission = _nothing_to_judge(request, session, limits, ended.message)
                item = Item(
                    evaluation_id=f"ev_{uuid.uuid4().hex}",
                    submission=submission,
                    tenant=session.tenant,
                    job=session.job,
                    deadline=deadline,
                    tags=session.tags,
                    graded_sandbox_id=session.id,
                    origin=Origin(step=request.step),
                )
                batch = self._rewards.judge_one(item)
                with batch.reading():
                    await batch.wait()
        return batch.results()[0]

    def _tree_of(self, request: GradeRequest) -> TreeRules | None:
        return self._machine.graders[request.grader.kind].tree

    async def _submission(
        self, session: Session, request: GradeRequest, limits: Limits, held: AsyncExitStack
    ) -> Submission | NoCode:
        """Return a submission from the sandbox's files, with its solution.py if any.

        `held`: keeps the files of the service that the submission names.
        """
        where = (session.tenant, session.id)
        tree = self._tree_of(request)
        if tree is not None:
            path = await held.enter_async_context(tree_file())
            try:
                saving = tree.save(request.grader, session.limits, path)
                await self._registry.operate(*where, saving)
            except FileRefused as refusal:
                return _nothing_to_judge(request, session, limits, refusal.message)
            return Submission(
                "",
                request.grader,
                limits,
                request.scoring,
                environment=session.environment,
                tree_file=path,
            )
        solution = b""
        try:
            solution = await self._registry.read_file(*where, SOLUTION)
        except (FileMissing, FileRefused) as refusal:
            if needs_solution(request.grader):
                return _nothing_to_judge(request, session, limits, refusal.message)
        try:
            state = await self._registry.snapshot(*where)
        except FileRefused as refusal:
            return _nothing_to_judge(request, session, limits, refusal.message)
        source = source_of(solution, request.grader)
        around = Around.of(request.grader, request)
        return Submission(
            assembled(source, PYTHON_TEXTS, around),
            request.grader,
            limits,
            request.scoring,
            state=state,
            environment=session.environment,
            negative_control=request.negative_control,
            reference=await reference_program(request.grader, "auto", PYTHON_TEXTS, around),
        )


def _nothing_to_judge(
    request: GradeRequest, session: Session, limits: Limits, why: str
) -> Submission | NoCode:
    if request.grader.judges == "completion":  # it decides about nothing, too
        environment = session.environment
        return Submission("", request.grader, limits, environment=environment)
    message = f"There is nothing to judge: {why}"
    integrity = integrity_of(request.grader)
    return NoCode(test_count(request.grader), message, session.environment, integrity)
