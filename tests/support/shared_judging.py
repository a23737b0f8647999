"""Judging beside the submission: the runner, called through its grader with a real backend."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from proctor_client.wire import AssertsGrader
from proctor_service.backends import make_backend
from proctor_service.judge.analysis.levels import Analysis, TestSource
from proctor_service.judge.graders import in_process
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend, Limits
from proctor_service.settings import Settings

LIMITS = Limits(
    cpu_seconds=10, wall_seconds=10, memory_mb=512, output_kb=64, processes=16, disk_mb=64
)


@dataclass(frozen=True)
class SharedJudge:
    """An open backend, and the loop that it runs in."""

    runner: asyncio.Runner
    backend: Backend

    def __call__(
        self,
        source: str,
        *tests: str | TestSource,
        setup: str = "",
        reveal: bool = False,
        files: dict[str, str] | None = None,
    ) -> Judgement:
        """Judges one source."""
        return self.many([source], *tests, setup=setup, reveal=reveal, files=files)[0]

    def many(
        self, sources: Sequence[str], *tests: str | TestSource, setup: str = "",
        reveal: bool = False, files: dict[str, str] | None = None,
    ) -> list[Judgement]:  # fmt: skip
        """Judges several sources by the same tests, at once."""
        listed = [TestSource(test) if isinstance(test, str) else test for test in tests]
        grader = AssertsGrader(
            kind="asserts", tests=[test.source for test in listed], setup=setup, reveal=reveal
        )

        analysis = Analysis("in_process", "", (setup, ""), tuple(listed))

        async def judged() -> list[Judgement]:
            made: list[Any] = [
                in_process.judge_shared(
                    Submission(source, grader, LIMITS, files=files or {}),
                    grader,
                    self.backend,
                    analysis,
                )
                for source in sources
            ]
            return list(await asyncio.gather(*made))

        return self.runner.run(judged())


@contextmanager
def shared_judge(settings: Settings | None = None) -> Iterator[SharedJudge]:
    """A judge with a local backend of its own."""
    backend = make_backend(settings or Settings())
    with asyncio.Runner() as runner:
        runner.run(backend.start())
        try:
            yield SharedJudge(runner, backend)
        finally:
            runner.run(backend.close())
