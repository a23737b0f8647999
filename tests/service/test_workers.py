"""Judge processes: what they do together, and what becomes of the work of one that ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from scripted_sandboxes import ROOMY

from proctor_client.wire import ExecGrader
from proctor_service.errors import (
    FileMissing,
    FileRefused,
    InvalidTask,
    SandboxEnded,
    SandboxLost,
    StartError,
)
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Command
from proctor_service.settings import Settings
from proctor_service.workers.pool import Pool
from proctor_service.workers.values import WorkerFault

SUPPORT = Path(__file__).resolve().parents[1] / "support"
JUDGES = (sys.executable, str(SUPPORT / "worker_judges.py"))
GRADER = ExecGrader(kind="exec")
WAIT_SECONDS = 60.0


class Under:
    """A pool under test, and what it told."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.causes: list[str] = []
        self.cleared: list[int] = []

    async def judge(self, source: str) -> Judgement:
        """Have a submission judged; its source tells the scripted judge what to do."""
        return await self.pool.judge(Submission(source, GRADER, ROOMY), self.pool.backend)

    async def pids(self) -> set[int]:
        """The judge processes that work, once there are two."""
        while len(self.pool.working()) < 2:  # noqa: ASYNC110  a process starts, which has no event
            await asyncio.sleep(0.01)
        return {worker.pid for worker in self.pool.working()}


@asynccontextmanager
async def two_workers(**settings: Any) -> AsyncIterator[Under]:
    """Two judge processes with two slots each, replaced after half a second of CPU time."""
    parts = Settings(workers="2", slots=4, **settings).for_workers()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    found: Under

    async def clear(pid: int) -> None:
        found.cleared.append(pid)

    pool = Pool(parts, environment, lambda cause: found.causes.append(cause), clear, JUDGES, 0.5)
    found = Under(pool)
    await pool.open()
    try:
        yield found
    finally:
        await pool.close()


def run(test: Callable[[Under], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(WAIT_SECONDS), two_workers(**settings) as under:
            await test(under)

    asyncio.run(main())


def test_work_is_spread_over_all_processes() -> None:
    async def test(under: Under) -> None:
        assert {int((await under.judge("pid")).message) for _ in range(1)} <= await under.pids()
        found = await asyncio.gather(*(under.judge("sleep 0.05") for _ in range(4)))
        assert {each.verdict for each in found} == {"passed"}
        told = await asyncio.gather(*(under.judge("pid") for _ in range(8)))
        assert {int(each.message) for each in told} == await under.pids()

    run(test)


def test_failures_keep_their_kind() -> None:
    async def test(under: Under) -> None:
        with pytest.raises(SandboxLost, match="as the test wants it"):
            await under.judge("lost")
        with pytest.raises(InvalidTask, match="the tests are broken"):
            await under.judge("broken")
        with pytest.raises(WorkerFault, match="ZeroDivisionError: a bug"):
            await under.judge("bug")

    run(test)


def test_what_a_killed_process_had_is_judged_again() -> None:
    async def test(under: Under) -> None:
        before = await under.pids()
        work = [asyncio.create_task(under.judge("sleep 0.3")) for _ in range(4)]
        await asyncio.sleep(0)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert [each.verdict for each in await asyncio.gather(*work)] == ["passed"] * 4
        assert not before & await under.pids()
        assert under.causes == ["killed", "killed"]
        assert set(under.cleared) == before

    run(test)


@pytest.mark.parametrize(
    ("source", "cause"), [("burn 60", "stalled"), ("grow 400", "grown"), ("crash", "crashed")]
)
def test_a_submission_that_ends_its_process_twice_has_a_verdict(source: str, cause: str) -> None:
    async def test(under: Under) -> None:
        suspect = asyncio.create_task(under.judge(source))
        others = [asyncio.create_task(under.judge("sleep 0.2")) for _ in range(3)]
        assert [each.verdict for each in await asyncio.gather(*others)] == ["passed"] * 3
        judgement = await suspect
        assert judgement.verdict == "output_limit"
        assert "too much time or memory" in judgement.message
        assert under.causes == [cause, cause]

    run(test, worker_memory_mb=250)


def test_a_process_killed_by_somebody_else_accuses_no_submission(tmp_path: Path) -> None:
    async def test(under: Under) -> None:
        assert (await under.judge(f"killed-once {tmp_path / 'mark'}")).verdict == "passed"
        assert under.causes == ["killed"]
        with pytest.raises(SandboxLost):
            await under.judge("killed")

    run(test)


def test_items_of_the_other_process_are_not_touched_by_a_stall() -> None:
    async def test(under: Under) -> None:
        loop = asyncio.get_running_loop()
        suspect = asyncio.create_task(under.judge("burn 60"))
        turns = 0
        while not suspect.done():
            assert (await under.judge("quick")).message == "quick"
            turns += 1
        assert turns > 10
        assert (await suspect).verdict == "output_limit"
        assert loop.is_running()

    run(test)


def test_a_cancelled_submission_is_cancelled_in_its_process() -> None:
    async def test(under: Under) -> None:
        work = [asyncio.create_task(under.judge("sleep 50")) for _ in range(4)]
        await asyncio.sleep(0)
        for task in work:
            task.cancel()
        found = await asyncio.gather(*work, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in found)
        assert (await under.judge("quick")).verdict == "passed"  # a slot is free again
        assert sum(worker.load for worker in under.pool.working()) == 0

    run(test)


def test_a_submission_that_waits_behind_long_ones_goes_to_the_other_process() -> None:
    async def test(under: Under) -> None:
        long = [asyncio.create_task(under.judge("sleep 20")) for _ in range(3)]
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(under.judge("quick")) for _ in range(6)]
        done = await asyncio.gather(*waiting)
        assert {each.verdict for each in done} == {"passed"}
        assert not any(task.done() for task in long)
        for task in long:
            task.cancel()

    run(test)


def test_a_process_that_cannot_start_stops_the_service() -> None:
    async def main() -> None:
        with pytest.raises(StartError, match="as the test wants it"):
            async with two_workers(aviato_cpu="refuse"):
                raise AssertionError("it started")

    asyncio.run(main())


def test_a_sandbox_lives_in_one_process() -> None:
    async def test(under: Under) -> None:
        heard: list[tuple[str, bytes]] = []
        async with under.pool.backend.open_stateful(ROOMY, ("tag",)) as sandbox:
            await sandbox.write_file("a", b"1")
            assert await sandbox.read_file("a", 10) == b"1"
            assert await sandbox.snapshot() == b"a"
            with pytest.raises(FileMissing):
                await sandbox.read_file("b", 10)
            with pytest.raises(FileRefused):
                await sandbox.write_file("full", b"")
            said = Command(("say", "one", "!two"))
            ended = await sandbox.exec(said, lambda *words: heard.append(words))
            assert (ended.ending, ended.exit_code) == ("exited", 0)
            assert heard == [("stdout", b"one"), ("stderr", b"!two")]
            waiting = asyncio.create_task(sandbox.exec(Command(("wait", "for-ever"))))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            sandbox.kill()
            assert (await sandbox.ended()).ending == "killed"
            with pytest.raises(SandboxEnded):
                await sandbox.exec(Command(("true",)))

    run(test)


def test_a_sandbox_is_lost_with_its_process() -> None:
    async def test(under: Under) -> None:
        backend = under.pool.backend
        async with backend.open_stateful(ROOMY) as sandbox:
            ended = asyncio.create_task(sandbox.ended())
            await asyncio.sleep(0)
            for pid in await under.pids():
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(SandboxLost):
                await ended
            with pytest.raises(SandboxLost):
                await sandbox.exec(Command(("true",)))
        await under.pids()
        async with backend.open_stateful(ROOMY) as sandbox:
            assert (await sandbox.exec(Command(("true",)))).exit_code == 0

    run(test)


def test_every_process_has_its_part_of_the_sandboxes() -> None:
    parts = Settings(
        workers="3", slots=8, max_sandboxes=100, tokens='{"a": "secret"}'
    ).for_workers()
    assert [part.slots for part in parts] == [3, 3, 2]
    assert sum(part.max_sandboxes for part in parts) == 100
    assert not any(part.tokens.get_secret_value() for part in parts)
    assert Settings(workers="5", slots=2).worker_count() == 2
    assert Settings(workers="0").worker_count() == 0
