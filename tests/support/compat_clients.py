"""A judge that fails, for tests of the compatible routes."""

from __future__ import annotations

from proctor_service.errors import Failure, SandboxUnavailable
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes


class Failing:
    """A judge that fails so many times, then is content."""

    def __init__(self, times: int, failure: Failure | None = None) -> None:
        self.left = times
        self.asked = 0
        self._failure = failure or SandboxUnavailable("none can be had")

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """Judges nothing."""
        self.asked += 1
        if self.left > 0:
            self.left -= 1
            raise type(self._failure)(self._failure.message)
        return Judgement("passed", passed=1, total=1)
