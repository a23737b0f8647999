"""`repository`: the change of a repository, judged by named tests of its project."""

from __future__ import annotations

from proctor_client.wire import RepositoryGrader
from proctor_service.errors import InvalidTask
from proctor_service.judge.submission import GraderRules, Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes


async def judge(submission: Submission, grader: RepositoryGrader, backend: Sandboxes) -> Judgement:
    """Return the judgement of a change. Raises InvalidTask for a task that names no test."""
    raise InvalidTask("repositories are not judged yet")


RULES = GraderRules("repository", judge)
