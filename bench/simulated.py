"""A service with simulated sandboxes, for `bench/scale.py`: the capacity of a listening process.

    python bench/simulated.py serve --end-with-parent PID        settings: PROCTOR_... variables
    python bench/simulated.py judge DESCRIPTOR MARK PID          a judge process, started by the above

Server, queue, cache, metrics, pool and judge processes are the real ones. Only judge and sandboxes
are replaced: a submission takes 3.5 ms of wall time and hardly any CPU, so a machine with few cores
shows a listening process before many cores.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from proctor_service.app import build_app, make_server
from proctor_service.cli.serve import end_with
from proctor_service.evaluate import Judge
from proctor_service.features.replicas.judge_processes.pool import JudgePool
from proctor_service.features.replicas.judge_processes.process import run
from proctor_service.features.replicas.judge_processes.worker import Cause
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.observe.logs import configure_logging
from proctor_service.sandbox.environments import Environments
from proctor_service.sandbox.interface import (
    DEFAULT,
    Asleep,
    Backend,
    Limits,
    Sandbox,
    Sandboxes,
    StatefulSandbox,
    Traits,
    Usage,
)
from proctor_service.settings import Settings, Share, worker_environment
from proctor_service.settings.garbage import spare_collector

SECONDS = 0.0035
"""Time of a submission in a simulated sandbox, that of three short asserts in a real one."""
PASSED = Judgement(
    "passed", 3, 3, exit_code=0, level="calls", sandbox_id="sb_simulated",
    usage=Usage(cpu_seconds=SECONDS, wall_seconds=SECONDS, peak_memory_mb=10.0),
)  # fmt: skip


class Simulation:
    """A waiting judge. Submissions of the same step of the event loop share a timer.

    A timer is late by up to 1 ms, and by more where all processes of the simulation share two
    cores. The next timer is shorter by as much: over many submissions the mean is `SECONDS`.
    """

    def __init__(self) -> None:
        self._beginning: asyncio.Event | None = None
        self._late_seconds = 0.0

    async def judge(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """Implements `evaluate.Judge`."""
        if self._beginning is None:
            self._beginning = self._begin()
        await self._beginning.wait()
        return PASSED

    def _begin(self) -> asyncio.Event:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        seconds, self._late_seconds = SECONDS - self._late_seconds, 0.0
        due = time.monotonic() + seconds

        def end() -> None:
            self._late_seconds = min(time.monotonic() - due, SECONDS)
            ended.set()

        loop.call_later(seconds, end)
        loop.call_soon(self._close)
        return ended

    def _close(self) -> None:
        self._beginning = None


class NoSandboxes:
    """Implements `Backend` for a judge without sandboxes."""

    traits = Traits("simulated")

    async def start(self) -> None:
        """Ready at once."""

    async def close(self) -> None:
        """Ended at once."""

    def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = 0
    ) -> AbstractAsyncContextManager[Sandbox]:
        """Raise RuntimeError: there are none."""
        raise RuntimeError("sandboxes are simulated")

    def open(
        self, limits: Limits, environment: str = DEFAULT, tags: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[StatefulSandbox]:
        """Raise RuntimeError: there are none."""
        raise RuntimeError("sandboxes are simulated")

    def when_asleep(self, tell: Asleep) -> None:
        """Sandboxes never sleep."""

    def census(self) -> dict[str, int]:
        """Return an empty census."""
        return {}


def serve(settings: Settings) -> None:
    """Run the service until SIGTERM, with at least one judge process."""
    pool = JudgePool(
        settings.for_workers(), worker_environment(), _ended, _clear, (sys.executable, __file__, "judge")
    )  # fmt: skip
    app = build_app(settings, pool.backend, pool.judge)
    pool.send_ahead = app.state.parts.core.queue.send_ahead
    configure_logging("warning", "console")
    server = make_server(app)
    spare_collector()  # as `proctor serve` does
    server.run()


def _ended(cause: Cause) -> None:
    raise SystemExit(f"a simulated judge process ended: {cause}")


async def _clear(pid: int) -> None:
    """Do nothing: a simulated judge process ends clean."""


def _build(settings: Settings, share: Share, environments: Environments) -> tuple[Judge, Backend]:
    return Simulation().judge, NoSandboxes()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", "--end-with-parent", parent]:
            end_with(int(parent))
            serve(Settings())
        case ["judge", *arguments]:
            run(_build, arguments)
        case _:
            raise SystemExit(__doc__)
