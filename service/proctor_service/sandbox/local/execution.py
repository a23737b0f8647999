"""Service side of a command in a stateful sandbox: pipes, clock, ending."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from functools import partial

from proctor_service.sandbox.interface import Ended, Ending, Hear, Limits, StreamName, Usage
from proctor_service.sandbox.linux.channel import Evidence, Poller, Stream, ended_by
from proctor_service.sandbox.linux.time_limits import UNSEEN_TIMES
from proctor_service.sandbox.local.idle import Measurement

_LAST_BYTES = 1 << 20  # capacity of a pipe; background processes may keep filling the pipe

Report = tuple[int, float, int]
"""Status of wait(2), seconds of CPU time, peak memory in kilobytes."""


class Pipes:
    """Pipes of a command: the service's ends, and `theirs`, the ends for the sandbox.

    `theirs`: the command's stdin, stdout, stderr, and copies of the service's two output ends; their
    sender closes them. A file in place of stdin or stdout is for the command alone: the service's end is
    closed, or at its end. Raises OSError, with all closed, when descriptors run out.
    """

    def __init__(self, stdin_file: int | None = None, stdout_file: int | None = None) -> None:
        with contextlib.ExitStack() as on_failure:

            def opened(*descriptors: int) -> tuple[int, ...]:
                for descriptor in descriptors:
                    on_failure.callback(os.close, descriptor)
                return descriptors

            stdin_read, self.stdin = opened(*os.pipe2(os.O_CLOEXEC))
            self.stdout, stdout_write = opened(*os.pipe2(os.O_CLOEXEC))
            self.stderr, stderr_write = opened(*os.pipe2(os.O_CLOEXEC))
            copies = *opened(os.dup(self.stdout)), *opened(os.dup(self.stderr))
            for pipe, file in ((stdin_read, stdin_file), (stdout_write, stdout_file)):
                if file is not None:
                    os.dup2(file, pipe, inheritable=False)
            on_failure.pop_all()
        self.theirs = [stdin_read, stdout_write, stderr_write, *copies]
        os.set_blocking(self.stdin, False)


class CommandExecution:
    """Feeds stdin, drains output, and measures time.

    `timeout_seconds` bounds `active_seconds`, wall time minus run-queue wait. Without a timeout,
    the limits on CPU and idle time in `limits` apply.
    """

    def __init__(
        self,
        number: int,
        limits: Limits,
        pipes: Pipes,
        stdin: bytes,
        flood_bytes: int,
        timeout_seconds: float | None,
        hear: Hear | None,
        poller: Poller,
    ) -> None:
        self.number = number
        self.limits = limits
        self.started_at = time.monotonic()
        self.cpu_seconds = 0.0
        self.active_seconds = 0.0
        self.idle_seconds = 0.0
        self._unseen_seconds = 0.0
        self.kills_before = 0
        self.kills_around_before: int | None = 0
        self.before_shortages = 0
        self.stopped_for: Ending | None = None
        self.has_started = True
        self._stopped_at_active = 0.0
        self._timeout_seconds = timeout_seconds
        self._flood_bytes = flood_bytes
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self.reported: asyncio.Future[Report | None] = self._loop.create_future()
        self.out = Stream(pipes.stdout, partial(self._on_output, "stdout"), poller)
        self.err = Stream(pipes.stderr, partial(self._on_output, "stderr"), poller)
        self.out.room = self.err.room = limits.output_kb << 10
        for stream in (self.out, self.err):
            poller.add(stream.descriptor, stream.read)
        self._stdin = pipes.stdin
        self._unfed = memoryview(stdin)
        self._late_feeds = 0
        self._feed()

    @property
    def abandoned(self) -> bool:
        """True if the caller was cancelled."""
        return self.reported.cancelled()

    @property
    def exchanges(self) -> int:
        """Number of transfers so far in which the command may have waited for the service."""
        return self._late_feeds + self.out.late_transfers + self.err.late_transfers

    def on_measurement(self, measurement: Measurement, share: float) -> None:
        """Add the time of a sample. `share`: this command's part among concurrent commands.

        The waits for a core are unknown per command. Unless a process waits for a core, all the time
        counts; otherwise the command's share of the time used, plus the idle time.
        """
        settled = min(measurement.settled_seconds, time.monotonic() - self.started_at)
        idle = min(measurement.idle_seconds, settled)
        self.cpu_seconds += measurement.used_seconds * share
        self.idle_seconds += idle
        used = (measurement.active_seconds - measurement.idle_seconds) * share
        alone_or_contended = share == 1 or measurement.contended
        self.active_seconds += min(settled, used + idle) if alone_or_contended else settled
        self._unseen_seconds += measurement.unseen_seconds

    def overrun(self) -> Ending | None:
        """Return the exceeded limit; None within the limits or after a stop."""
        if self.stopped_for is not None:
            return None
        if self.out.total + self.err.total > self._flood_bytes:
            return "output_limit"
        unseen = self._unseen_seconds / UNSEEN_TIMES
        if self._timeout_seconds is not None:
            late = max(self.active_seconds, unseen) > self._timeout_seconds
            return "wall_limit" if late else None
        if self.is_over(self.cpu_seconds):
            return "cpu_limit"
        if unseen > self.limits.cpu_seconds + self.limits.wall_seconds:
            return "cpu_limit"
        return "wall_limit" if self.idle_seconds > self.limits.wall_seconds else None

    def is_over(self, cpu_seconds: float) -> bool:
        """Tell whether this CPU time is above the limit."""
        return cpu_seconds > self.limits.cpu_seconds

    def stop(self, reason: Ending) -> bool:
        """Record the reason for stopping the command; False if a reason is already recorded."""
        if self.stopped_for is not None:
            return False
        self.stopped_for, self._stopped_at_active = reason, self.active_seconds
        return True

    def is_overdue(self, seconds: float) -> bool:
        """True if the command still runs `seconds` after its stop, without run-queue wait."""
        since = self.active_seconds - self._stopped_at_active
        return self.stopped_for is not None and since > seconds

    def ended(self, evidence: Evidence, cpu_seconds: float, peak_kb: int) -> Ended:
        """Return the ending, output and usage of the command.

        `cpu_seconds`: of its processes for which another process waited.
        """
        out, err = self.out, self.err
        return ended_by(
            evidence,
            stdout=bytes(out.stored),
            stderr=bytes(err.stored),
            truncated=out.total + err.total > len(out.stored) + len(err.stored),
            usage=Usage(
                # The monitor's figure includes killed children for which no process waited.
                cpu_seconds=max(cpu_seconds, self.cpu_seconds),
                wall_seconds=time.monotonic() - self.started_at,
                peak_memory_mb=peak_kb / 1024,
                idle_seconds=self.idle_seconds,
                active_seconds=self.active_seconds,
            ),
        )

    def on_exit(self, report: Report | None) -> None:
        """Read the remaining output; `report` is None if the sandbox itself ended."""
        for stream in (self.out, self.err):
            end = stream.total + _LAST_BYTES
            while stream.open and stream.total < end and stream.read():
                pass
        if not self.reported.done():
            self.reported.set_result(report)

    def close(self) -> None:
        """Close the service's ends of the pipes."""
        self._close_stdin()
        self.out.close()
        self.err.close()

    # ------------------------------------------------------------ event loop callbacks

    def _on_output(self, name: StreamName, data: bytes) -> None:
        if self._hear is not None and data and not self.reported.done():
            self._hear(name, data)

    def _feed(self) -> None:
        """Write as much stdin as the pipe accepts; the rest follows when the pipe has room."""
        try:
            while self._unfed:
                self._unfed = self._unfed[os.write(self._stdin, self._unfed) :]
        except BlockingIOError:
            self._late_feeds += 1
            self._loop.add_writer(self._stdin, self._feed)
            return
        except OSError:
            pass  # the command closed its stdin
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
