"""Judge processes: what they do together, and what becomes of the work of one that ends."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from constants import constants
from pydantic import SecretStr
from scripted_sandboxes import ROOMY
from waits import WAIT_SECONDS

from proctor_client.wire import Call, CallsGrader, ExecGrader, StdioCase, StdioGrader, Tolerance
from proctor_service.errors import (
    FileMissing,
    FileRefused,
    HandedBack,
    InvalidTask,
    SandboxEnded,
    SandboxLost,
    SandboxUnavailable,
    StartError,
)
from proctor_service.evaluate import Evaluator
from proctor_service.features.replicas.judge_processes import worker as worker_module
from proctor_service.features.replicas.judge_processes.pool import JudgePool
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.outcomes import Item, Outcome, outcome_bytes
from proctor_service.processes.values import Graders, WorkerFault
from proctor_service.sandbox.interface import Command
from proctor_service.scheduling.queue import Deadlines, FairQueue
from proctor_service.scheduling.result_cache import Cache
from proctor_service.settings import Settings

SUPPORT = Path(__file__).resolve().parents[3] / "support"
JUDGES = (sys.executable, str(SUPPORT / "worker_judges.py"))
GRADER = ExecGrader(kind="exec")


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[int]:
    """Processes that this one has started and not reaped."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


class Under:
    """A pool under test, and what it told."""

    def __init__(self, pool: JudgePool) -> None:
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

    pool = JudgePool(
        parts, environment, lambda cause: found.causes.append(cause), clear, JUDGES, 0.5
    )
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

    with constants(worker_memory_mb=250):
        run(test)


def test_a_process_killed_by_somebody_else_accuses_no_submission(tmp_path: Path) -> None:
    async def test(under: Under) -> None:
        assert (await under.judge(f"killed-once {tmp_path / 'mark'}")).verdict == "passed"
        assert under.causes == ["killed"]
        with pytest.raises(SandboxLost):
            await under.judge("killed")

    run(test)


def test_a_process_is_watched_further_after_a_shortage_of_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = [OSError(errno.EMFILE, "too many open files") for _ in range(4)]
    whole = worker_module.memory_mb

    def memory_mb(pid: int) -> float:
        if failures:
            raise failures.pop()
        return whole(pid)

    monkeypatch.setattr(worker_module, "memory_mb", memory_mb)

    async def test(under: Under) -> None:
        assert (await under.judge("burn 60")).verdict == "output_limit"
        assert under.causes == ["stalled", "stalled"]
        assert not failures

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


def test_a_cancelled_submission_is_cancelled_in_its_process(
    capfd: pytest.CaptureFixture[str],
) -> None:
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
    assert capfd.readouterr().err == ""  # not even a warning


def test_a_submission_that_waits_behind_long_ones_goes_back_to_the_queue() -> None:
    async def test(under: Under) -> None:
        long = [asyncio.create_task(under.judge("sleep 20")) for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(HandedBack):
            await under.judge("quick")
        assert under.pool.working()[0].load + under.pool.working()[1].load == 4
        for task in long:
            task.cancel()
        await asyncio.gather(*long, return_exceptions=True)
        assert (await under.judge("quick")).verdict == "passed"

    run(test)


def test_the_queue_takes_submissions_back_and_all_are_judged() -> None:
    async def test(under: Under) -> None:
        deadlines = Deadlines()
        queue = FairQueue(4, 1000, deadlines)
        cache: Cache[Outcome] = Cache(0, 0, outcome_bytes, deadlines)
        evaluator = Evaluator(under.pool.judge, under.pool.backend, queue, cache)
        queue.send_ahead(40)  # far too many: these are long
        under.pool.send_ahead = queue.send_ahead
        deadline = queue.clock() + WAIT_SECONDS
        items = [
            Item(f"e{n}", Submission("sleep 0.7", GRADER, ROOMY), "a", "j", deadline)
            for n in range(12)
        ]
        found = await asyncio.gather(*(evaluator.evaluate(item) for item in items))
        assert [each.reward for each in found] == [1.0] * 12
        assert max(each.queue_seconds for each in found) > 0.7
        assert (queue.busy, queue.running) == (0, 0)
        deadlines.close()

    run(test)


def test_requests_to_a_process_that_just_ended_go_to_another(tmp_path: Path) -> None:
    async def test(under: Under) -> None:
        first, second = under.pool.working()
        first.kill("killed")  # its end is known here long before it is buried
        found = await asyncio.gather(*(under.judge("quick") for _ in range(20)))
        assert {each.verdict for each in found} == {"passed"}
        second.kill("killed")
        assert (await under.judge("quick")).verdict == "passed"
        assert under.causes == ["killed", "killed"]

    run(test)


def test_all_that_a_grown_process_had_is_judged_alone() -> None:
    async def test(under: Under) -> None:
        work = [asyncio.create_task(under.judge("grow 400")) for _ in range(1)]
        work += [asyncio.create_task(under.judge("sleep 0.2")) for _ in range(7)]
        found = await asyncio.gather(*work)
        assert [each.verdict for each in found] == ["output_limit"] + ["passed"] * 7

    with constants(worker_memory_mb=250):
        run(test)


def test_what_others_left_in_a_process_gives_nobody_a_verdict() -> None:
    async def test(under: Under) -> None:
        work = [asyncio.create_task(under.judge("leave 140")) for _ in range(4)]
        found = await asyncio.gather(*work)
        assert [each.verdict for each in found] == ["passed"] * 4
        async with asyncio.timeout(WAIT_SECONDS):
            while "grown" not in under.causes:
                await under.judge("quick")

    with constants(worker_memory_mb=250):
        run(test)


def test_a_message_that_cannot_be_sent_lets_nobody_wait() -> None:
    async def test(under: Under) -> None:
        suspect = asyncio.create_task(under.judge("unsendable"))
        others = [asyncio.create_task(under.judge("quick")) for _ in range(4)]
        assert {each.verdict for each in await asyncio.gather(*others)} == {"passed"}
        assert (await suspect).verdict == "output_limit"

    run(test)


def test_a_cancellation_from_inside_is_a_failure() -> None:
    async def test(under: Under) -> None:
        with pytest.raises(WorkerFault, match="CancelledError"):
            await under.judge("cancelled")

    run(test)


def test_stateful_sandboxes_are_spread() -> None:
    async def test(under: Under) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(6):
                opening = under.pool.backend.open(ROOMY)
                sandbox = await stack.enter_async_context(opening)
            assert [worker.sandboxes for worker in under.pool.working()] == [3, 3]
            waiting = [
                asyncio.create_task(sandbox.exec(Command(("wait", "for-ever")))) for _ in range(3)
            ]
            await asyncio.sleep(0)
            assert sum(worker.load for worker in under.pool.working()) == 1
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        assert [worker.sandboxes for worker in under.pool.working()] == [0, 0]
        assert sum(worker.load for worker in under.pool.working()) == 0

    run(test)


def test_a_start_without_descriptors_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()

    def refused(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    async def main(name: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refused)
            with pytest.raises(StartError, match="too many open"):
                async with two_workers():
                    raise AssertionError("it started")

    for name in ("pidfd_open", "memfd_create"):
        asyncio.run(main(name))
    assert descriptors() == before


def test_a_closed_pool_leaves_no_descriptor_and_no_process() -> None:
    async def main() -> None:
        before = descriptors()
        async with two_workers() as under:
            for pid in await under.pids():
                os.kill(pid, signal.SIGKILL)
            await under.judge("quick")
            pids = await under.pids()
        assert not pids & {int(each) for each in os.listdir("/proc") if each.isdigit()}  # noqa: PTH208
        assert descriptors() == before
        with pytest.raises(SandboxUnavailable):
            await under.judge("quick")

    asyncio.run(main())


def test_a_replacement_that_starts_while_the_pool_closes_is_ended_too() -> None:
    async def main() -> None:
        before = descriptors(), children()
        async with two_workers(aviato_image="slow to end") as under:
            os.kill(min(await under.pids()), signal.SIGKILL)
            while not under.causes:  # noqa: ASYNC110  the next process starts now, without an event
                await asyncio.sleep(0.01)
        assert (descriptors(), children()) == before

    asyncio.run(main())


def test_few_bytes_of_graders_are_kept() -> None:
    graders = Graders()
    for number in range(40):
        text = "x" * (3 << 20) + str(number)
        grader = StdioGrader(kind="stdio", cases=[StdioCase(stdin=text, stdout="\ud800")])
        assert graders.decode(graders.encode(grader)) == grader
    kept = sum(len(text) for _, text in graders._encoded.values())
    assert kept == graders._encoded_bytes == graders._decoded_bytes <= 32 << 20
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    calls = CallsGrader(kind="calls", entry_point="f", cases=[Call(args=[deep], expected=deep)])
    assert graders.decode(graders.encode(calls)) == calls
    case = StdioCase(stdout=["1", "2"], argv=["a"], files={"b": "c"}, output_file="d")
    stdio = StdioGrader(kind="stdio", cases=[case], tolerance=Tolerance(absolute=1e-3))
    found = graders.decode(graders.encode(stdio))
    assert (found, repr(found)) == (stdio, repr(stdio))


def test_a_process_that_cannot_start_stops_the_service() -> None:
    async def main() -> None:
        with pytest.raises(StartError, match="as the test wants it"):
            async with two_workers(aviato_image="refuse"):
                raise AssertionError("it started")

    asyncio.run(main())


def test_a_sandbox_lives_in_one_process() -> None:
    async def test(under: Under) -> None:
        heard: list[tuple[str, bytes]] = []
        async with under.pool.backend.open(ROOMY, tags=("tag",)) as sandbox:
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
        async with backend.open(ROOMY) as sandbox:
            ended = asyncio.create_task(sandbox.ended())
            await asyncio.sleep(0)
            for pid in await under.pids():
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(SandboxLost):
                await ended
            with pytest.raises(SandboxLost):
                await sandbox.exec(Command(("true",)))
        await under.pids()
        async with backend.open(ROOMY) as sandbox:
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


def test_no_process_with_sandboxes_gets_credentials() -> None:
    secret = "hunter2hunter2"
    settings = Settings(
        workers="2",
        slots=4,
        tokens=json.dumps({"a": secret}),
        redis_url=f"redis://:{secret}@127.0.0.1:1/0",
        journal=f"postgresql://me:{secret}@127.0.0.1:1/x",
        mcp_servers=json.dumps({"a": {"url": "http://a", "headers": {"Authorization": secret}}}),
    )
    for part in settings.for_workers():
        told = {
            name: value.get_secret_value()
            for name, value in part
            if isinstance(value, SecretStr) and value.get_secret_value() not in ("", "off")
        }
        assert told == {}
