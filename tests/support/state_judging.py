"""A judge of submissions in the final state of a sandbox, and graders for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from archives import Entry

from proctor_client.wire import (
    AssertsGrader,
    Call,
    CallsGrader,
    CommandGrader,
    ExecGrader,
    Grader,
    PytestGrader,
)
from proctor_service.judge.judge import Judge
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend, Limits
from proctor_service.settings.languages import Language

LIMITS = Limits(
    cpu_seconds=5, wall_seconds=20, memory_mb=256, output_kb=64, processes=32, disk_mb=16
)
GLUED = Language(
    source="solution.glue",
    compile=("sh", "-c", "cat head solution.glue > solution && chmod +x solution"),
    run=("./solution",),
    needs=("sh",),
)
EXEC = ExecGrader(kind="exec")
DOUBLE = "def f(x):\n    return 2 * x\n"
WRONG = "def f(x):\n    return 3 * x\n"
TESTS = (
    "from solution import f\ndef test_one(): assert f(1) == 2\ndef test_two(): assert f(2) == 4\n"
)
PYTEST = PytestGrader(kind="pytest", files={"test_it.py": TESTS})


Ask = Callable[..., Judgement]


@dataclass(frozen=True)
class Places:
    """An open backend, the judge, and the loop that they run in."""

    runner: asyncio.Runner
    backend: Backend
    whole: Judge

    def judge(self, source: str, grader: Grader, state: bytes | None, **fields: Any) -> Judgement:
        """Judges a source by a grader, in a state."""
        limits = replace(LIMITS, **fields.pop("limits", {}))
        submission = Submission(source, grader, limits, state=state, **fields)
        return self.runner.run(self.whole(submission, self.backend))


def shell(script: str, code: int = 0) -> CommandGrader:
    return CommandGrader(kind="command", argv=["sh", "-c", script], expect_exit_code=code)


GRADERS: dict[str, Grader] = {
    "asserts": AssertsGrader(kind="asserts", tests=["assert f(1) == 2", "assert f(4) == 8"]),
    "asserts in two rooms": AssertsGrader(
        kind="asserts", tests=["for n in range(5):\n    assert f(n) == n + n"]
    ),
    "calls": CallsGrader(kind="calls", entry_point="f", cases=[Call(args=[2], expected=4)]),
    "pytest": PYTEST,
    "command": shell("python3 -c 'from solution import f; assert f(3) == 6'"),
}


Members = list[tuple[str, str | Entry]]


def at(place: str, **files: str) -> Members:
    return [(f"{place}/{name}.py", text) for name, text in files.items()]
