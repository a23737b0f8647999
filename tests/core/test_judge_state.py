"""What the judge does with a submission's state, as far as no sandbox is needed to see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from pydantic import TypeAdapter

from proctor_client.wire import ExecGrader, Grader
from proctor_service.composition import all_graders
from proctor_service.judge.judge import Judge
from proctor_service.judge.run import RunnerFailed, Unfit, room_for, run, with_files
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import (
    DEFAULT,
    Asleep,
    Backend,
    Ended,
    GuestMessage,
    Limits,
    Sandbox,
    StatefulSandbox,
    Traits,
    Usage,
)
from proctor_service.settings.languages import LANGUAGES

LIMITS = Limits(1, 1, 64, 64, 8, 16)
GRADERS: dict[str, dict[str, Any]] = {
    "exec": {},
    "asserts": {"tests": ["assert f(1) == 2"]},
    "rooms": {"kind": "asserts", "tests": ["for i in (1,):\n    assert f(i) == 2"]},
    "calls": {"entry_point": "f", "cases": [{"args": [1], "expected": 2}]},
    "stdio": {"cases": [{"stdout": "2"}]},
    "pytest": {"files": {"test_it.py": "def test(): pass"}},
    "command": {"argv": ["true"]},
}


def grader(name: str) -> Grader:
    made: Grader = TypeAdapter(Grader).validate_python({"kind": name, **GRADERS[name]})
    return made


class Says:
    """A backend whose sandboxes say these lines and end so; it notes what they are sent.

    They say first that the submission began, unless its files do not fit.
    """

    traits = Traits("says")

    def __init__(self, *lines: list[Any], code: int = 1, began: bool = True) -> None:
        said = [json.dumps(line, separators=(",", ":")).encode() for line in lines]
        self.lines = [b"!began 1000 5000000", *said] if began else said
        self.code = code
        self.sent: list[Any] = []
        self.limits: list[Limits] = []

    def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = 0
    ) -> AbstractAsyncContextManager[Sandbox]:
        self.limits.append(limits)
        return self._lease()

    @asynccontextmanager
    async def _lease(self) -> AsyncIterator[Sandbox]:
        yield _Saying(self, list(self.lines))

    def open(
        self, limits: Limits, environment: str = DEFAULT, tags: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[StatefulSandbox]:
        raise AssertionError("nothing is kept here")

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def when_asleep(self, tell: Asleep) -> None: ...

    def census(self) -> dict[str, int]:
        return {}


class _Saying:
    id = "sb_says"

    def __init__(self, backend: Says, lines: list[bytes]) -> None:
        self.backend, self.lines = backend, lines

    def begin(self, message: GuestMessage) -> None:
        self.send(message.line)

    def send(self, line: bytes) -> None:
        first, *_ = line.splitlines()  # a call may come with its job
        self.backend.sent.append(json.loads(first) if line.startswith(b"{") else line)

    def begin_test(self) -> None: ...

    async def drain(self) -> None: ...

    def hang_up(self) -> None: ...

    async def receive(self) -> bytes | None:
        return self.lines.pop(0) if self.lines else None

    async def ended(self) -> Ended:
        return Ended("exited", self.backend.code, None, b"", b"", False, Usage(0.25))

    def kill(self) -> None: ...


def judge(backend: Backend, name: str, **fields: Any) -> Judgement:
    submission = Submission("x = 1", grader(name), LIMITS, **fields)
    return asyncio.run(Judge(all_graders(LANGUAGES))(submission, backend))


def test_a_state_goes_before_the_job_and_not_into_it() -> None:
    backend = Says(["reached", "x"], code=0)
    asyncio.run(run(backend, b'{"kind": "python"}\n', LIMITS, DEFAULT, state=b"tar"))
    assert backend.sent == [{"kind": "state", "size_bytes": 3}, b"tar", {"kind": "python"}]
    backend = Says(code=0)
    asyncio.run(run(backend, b'{"kind": "python"}\n', LIMITS, DEFAULT))
    assert (backend.sent, backend.limits) == ([{"kind": "python"}], [LIMITS])


@pytest.mark.parametrize("name", GRADERS)
def test_a_state_that_does_not_fit_is_a_verdict(name: str) -> None:
    backend = Says(["unfit", "no room"], code=0, began=False)
    judged = judge(backend, name, state=b"tar")
    assert (judged.verdict, judged.passed, judged.sandbox_id) == ("runtime_error", 0, "sb_says")
    assert judged.message == "its files could not be put in place: no room"
    assert judged.usage.cpu_seconds == 0.25
    assert len(backend.limits) == 1


@pytest.mark.parametrize(
    "line", [["unfit"], ["unfit", 1, 2], ["unfit", {"a": []}], ["unfit", "x" * 90_000]]
)
@pytest.mark.parametrize("name", GRADERS)
def test_nobody_gets_an_error_by_saying_that_it_does_not_fit(name: str, line: list[Any]) -> None:
    judged = judge(Says(line), name)
    assert judged.verdict in ("runtime_error", "failed", "early_exit")
    assert len(judged.message) <= 4000


def test_it_is_said_first_or_not_at_all() -> None:
    finished = asyncio.run(run(Says(["loaded"], ["unfit", "x"]), b"{}\n", LIMITS, DEFAULT))
    assert len(finished.lines) == 2
    with pytest.raises(Unfit):
        asyncio.run(run(Says(["unfit", "x"], ["loaded"], began=False), b"{}\n", LIMITS, DEFAULT))


def test_who_ends_before_the_submission_began_is_a_runner_of_ours() -> None:
    for lines in ([], [["broken", "Traceback: no"]], [["loaded"]], [["unfit"]]):
        with pytest.raises(RunnerFailed):
            asyncio.run(run(Says(*lines, began=False), b"{}\n", LIMITS, DEFAULT))
    finished = asyncio.run(
        run(Says(["loaded"], ["broken", "Trace\nE: no"]), b"{}\n", LIMITS, DEFAULT)
    )
    assert (finished.lines, finished.fault) == ((b'["loaded"]',), "Trace\nE: no")
    assert "runner failed: E" in finished.how_it_ended()


def test_there_is_room_for_every_state_and_few_sizes_of_it() -> None:
    assert room_for(LIMITS, None) == room_for(LIMITS, b"") == LIMITS
    sizes = {room_for(LIMITS, bytes(1024 * size)).disk_mb for size in range(1, 1000, 7)}
    assert sizes == {16 + 64}
    for size_mb in (1, 8, 20, 64):
        room = room_for(LIMITS, bytes(size_mb << 20))
        # A file takes up whole pages, and each has a header in the archive.
        worst = size_mb + min(size_mb * 8, 64)
        assert worst <= room.disk_mb - LIMITS.disk_mb <= worst + 64
        assert (room.memory_mb, room.cpu_seconds) == (LIMITS.memory_mb, LIMITS.cpu_seconds)


def test_an_empty_source_leaves_what_the_state_has() -> None:
    def files(source: str, state: bytes | None) -> dict[str, str]:
        submission = Submission(
            source, ExecGrader(kind="exec"), LIMITS, files={"a": "b"}, state=state
        )
        return with_files(submission, "solution.py", submission.source)

    assert files("", b"tar") == {"a": "b"}
    assert files("x", b"tar") == {"a": "b", "solution.py": "x"}
    assert files("", None) == {"a": "b", "solution.py": ""}
    for name, field in (("pytest", "source"), ("command", "files")):
        backend = Says()
        asyncio.run(
            Judge(all_graders(LANGUAGES))(
                Submission("", grader(name), LIMITS, state=b"tar"), backend
            )
        )
        assert not backend.sent[-1][field]
