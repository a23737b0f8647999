"""The judge: takes a submission, its grader and a backend, and returns a verdict.

The sandboxes of a task have a hash seed of its own. The order of a set of strings depends on the seed:
with the same seed for all tasks, a program relying on an order would be right always, and a policy could
learn the order.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from pydantic_core import PydanticSerializationError

from proctor_client.wire import CommandGrader, ExecGrader, Grader
from proctor_service.codec.limits import MAX_LINE_BYTES, ValueTooLarge
from proctor_service.errors import InvalidTask, JudgeFailed
from proctor_service.judge.control.second_run import controlled
from proctor_service.judge.rest import with_rest
from proctor_service.judge.run import JobTooLong, Unfit
from proctor_service.judge.submission import (
    Graders,
    Judgement,
    Submission,
    integrity_of,
    test_count,
)
from proctor_service.sandbox.interface import (
    DEFAULT,
    HASH_SEEDS,
    Limits,
    PassedSandboxes,
    Sandbox,
    Sandboxes,
)

_BYTE_ORDER_MARK = "\ufeff"
_LONGEST_ESCAPE = 6  # of a character in JSON


class Judge:
    """Judge of submissions by the graders of the registry."""

    def __init__(self, graders: Graders) -> None:
        self._graders = graders
        self._seeded: tuple[Grader, int] | None = None

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """Return the judgement. Raises a `Failure` when a verdict is impossible."""
        _check_language(submission, backend)
        backend = SeededSandboxes(backend, self._hash_seed(submission.grader))
        if submission.source.startswith(_BYTE_ORDER_MARK):
            # Python accepts a byte order mark in files but rejects one in text.
            submission = replace(submission, source=submission.source[1:])
        judgement = await self._judge(submission, backend)
        passed = judgement.verdict == "passed" and judgement.integrity == "in_process"
        if passed and submission.negative_control != "off":
            control = self._graders[submission.grader.kind].control
            tests = control and control(submission.grader)
            if tests:
                judgement = await controlled(self._judge, tests, submission, backend, judgement)
        _check_language(submission, backend)  # by now the sandboxes of its environment are known
        return judgement

    def _hash_seed(self, grader: Grader) -> int:
        """Return the hash seed of a task; computed once for the submissions of a request."""
        if self._seeded is None or self._seeded[0] is not grader:
            self._seeded = grader, hash_seed_of(grader)
        return self._seeded[1]

    async def _judge(self, submission: Submission, backend: Sandboxes) -> Judgement:
        grader = submission.grader
        rules = self._graders[grader.kind]
        decide = rules.integrity
        integrity = integrity_of(grader) if decide is None else await decide(grader)
        try:
            judgement = await rules.judge(submission, grader, backend)
            if judgement.limited is not None:
                judgement = await with_rest(self._by_grader, submission, backend, judgement)
        except Unfit as unfit:
            judgement = unfit.judgement
        except (JobTooLong, ValueTooLarge):
            judgement = _too_large(submission)
        return replace(judgement, integrity=integrity)

    async def _by_grader(self, submission: Submission, backend: Sandboxes) -> Judgement:
        grader = submission.grader
        return await self._graders[grader.kind].judge(submission, grader, backend)


def _too_large(submission: Submission) -> Judgement:
    """Return the judgement of a submission too large for a sandbox.

    Raises InvalidTask if the tests are too large.
    """
    own = len(submission.source) + sum(map(len, submission.files.values()))
    if own * _LONGEST_ESCAPE < MAX_LINE_BYTES // 2:
        raise InvalidTask("the tests are larger than a sandbox takes")
    message = "The program and its files are larger than a sandbox takes."
    return Judgement("runtime_error", total=test_count(submission.grader), message=message)


def _check_language(submission: Submission, backend: Sandboxes) -> None:
    """Raise JudgeFailed if the image of an environment is known to lack the language."""
    grader = submission.grader
    if isinstance(grader, CommandGrader) and grader.runner is None:
        return
    missing_languages = backend.traits.missing_languages.get(submission.environment, ())
    if submission.language in missing_languages:
        where = f"the image of {submission.environment}"
        raise JudgeFailed(f"{where} has not all programs of {submission.language}")


def hash_seed_of(grader: Grader) -> int:
    """Return the hash seed of a task: the same for its grader on each replica, and at a replay.

    Programs with their tests in themselves are no task of their own, and have the first seed.
    """
    if isinstance(grader, ExecGrader) and not (grader.setup or grader.tests):
        return HASH_SEEDS[0]
    try:
        # Without defaults: the seed stays the same when a version adds a field.
        whole = grader.model_dump_json(exclude_defaults=True).encode()
    except PydanticSerializationError:  # a lone surrogate
        whole = repr(grader).encode()
    return HASH_SEEDS[hashlib.blake2b(whole, digest_size=1).digest()[0] % len(HASH_SEEDS)]


class SeededSandboxes(PassedSandboxes):
    """Source of sandboxes with the hash seed of a task; stateful ones have the first seed."""

    def __init__(self, sandboxes: Sandboxes, hash_seed: int) -> None:
        super().__init__(sandboxes)
        self._hash_seed = hash_seed

    def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = HASH_SEEDS[0]
    ) -> AbstractAsyncContextManager[Sandbox]:
        """Lease a sandbox with the task's seed, in place of `hash_seed`."""
        return super().lease(limits, environment, self._hash_seed)
