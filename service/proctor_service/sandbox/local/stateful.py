"""Service side of a stateful sandbox: orders to the session process inside, and command endings.

The sandbox is an ordinary sandbox; its program (`guest/session/main.py`) starts commands. The
output of a command comes straight from its own pipes, and its ending from the session process,
which is out of reach of the sandbox's other processes. The monitor (`monitor.py`) measures the time
of a command: wall time minus the sandbox's run-queue wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from proctor_service.errors import SandboxEnded, SandboxLost, SandboxUnavailable, StartError
from proctor_service.guest.session.file_operations import (
    FROZEN,
    MISSING,
    OF_THE_MACHINE,
    OPERATE,
    REFUSED,
)
from proctor_service.sandbox.file_operations import FileOperations, limits_of_operation
from proctor_service.sandbox.interface import (
    CHARGE,
    Command,
    Ended,
    Ending,
    GuestMessage,
    Hear,
    Limits,
    Operation,
    charge_nobody,
)
from proctor_service.sandbox.linux import procfs
from proctor_service.sandbox.linux.channel import OVER, SHORT_OF_MEMORY, Evidence, outside_cause
from proctor_service.sandbox.linux.socket_memory import MachineMemory
from proctor_service.sandbox.linux.time_limits import UNSEEN_TIMES
from proctor_service.sandbox.local.cgroups import RESTING
from proctor_service.sandbox.local.core_shares import Owner
from proctor_service.sandbox.local.execution import CommandExecution, Pipes
from proctor_service.sandbox.local.idle import Measurement
from proctor_service.sandbox.local.memory import MemoryLimit, SocketLimit
from proctor_service.sandbox.local.monitor import Monitor
from proctor_service.sandbox.local.reads import background, left_running
from proctor_service.sandbox.local.sandbox import LocalSandbox

log = logging.getLogger(__name__)

MakeReadOnly = Callable[[int, bytes, list[bytes]], Awaitable[int]]
"""Called with a mount namespace, a directory, and paths below: see `Spawner.make_read_only`."""
_PROGRAMS = ("argv", "code")  # the other kinds of runs are file operations
_UNTIMED_SECONDS = 1e8
_DESCRIPTORS = 8192  # limit for the session process, which needs three for each running command
_FILE_SECONDS = 10.0
_MARGIN_SECONDS = 5  # CPU time allowed for background processes over all periods between commands
_KILL_SECONDS = 10.0  # after this time without an answer, the whole sandbox is killed


class LocalStatefulSandbox(FileOperations):
    """Implements `sandbox.interface.StatefulSandbox`, and `monitor.Monitored` while a command runs."""

    def __init__(
        self,
        sandbox: LocalSandbox,
        limits: Limits,
        monitor: Monitor,
        make_read_only: MakeReadOnly,
    ) -> None:
        self.id = sandbox.id
        self._make_read_only = make_read_only
        self.started_at = 0.0
        self._sandbox = sandbox
        self._limits = limits
        self._monitor = monitor
        self._flood_bytes = sandbox.launch.flood_bytes
        self._numbers = itertools.count(1)
        self._running: dict[int, CommandExecution] = {}
        # Exchanges of ended commands, and the running commands. A thread reads both, so each change is
        # a new tuple.
        self._counted: tuple[int, tuple[CommandExecution, ...]] = 0, ()
        self._listener: asyncio.Task[None] | None = None
        self._commands = 0
        self._has_run_programs = False
        self._cpu_base = 0.0
        self._charge: Callable[[float], None] = charge_nobody
        self._charged_seconds = 0.0
        self._background_base: float | None = None
        self._background_used = 0.0  # between earlier commands
        self._background_busy = 0  # samples with a runnable process, a second apart
        self._is_alone = True  # only the session process is known to run

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        """Start the session process. Raises SandboxLost on failure."""
        job = {"kind": "session", "descriptors": self._sandbox.descriptor_limit}
        message = GuestMessage(json.dumps(job).encode() + b"\n", self._limits)
        self._sandbox.begin(message, _DESCRIPTORS, is_timed=False)  # its commands have limits
        first_line = await self._sandbox.receive()
        if first_line != b'["ready"]':
            text = (first_line or b"")[:8000].decode("ascii", "replace")
            log.error("the program inside did not start: %s", text)
            self._sandbox.kill()
            raise SandboxLost("the program inside did not start")
        self._listener = asyncio.create_task(self._listen())

    async def close(self) -> None:
        """Kill the sandbox with all its processes, and wait until they are gone."""
        self._sandbox.kill()
        with contextlib.suppress(SandboxLost):
            await self._sandbox.ended()
        if self._listener is not None:
            await asyncio.wait({self._listener})

    async def ended(self) -> Ended:
        """See `StatefulSandbox.ended`."""
        return await self._sandbox.ended()

    def kill(self) -> None:
        """See `StatefulSandbox.kill`."""
        self._sandbox.kill()

    # ------------------------------------------------------------ commands and files

    async def exec(self, command: Command, hear: Hear | None = None) -> Ended:
        """See `StatefulSandbox.exec`."""
        kind = "argv" if command.code is None else "code"
        work = list(command.argv) if command.code is None else command.code
        timeout = command.timeout_seconds
        limits = self._limits if timeout is None else self._limits.with_time(_UNTIMED_SECONDS)
        seconds = math.ceil(limits.cpu_seconds if timeout is None else timeout)
        return await self._run(
            kind,
            [seconds + _MARGIN_SECONDS, work],
            lambda number, channel: CommandExecution(
                number,
                limits,
                channel,
                command.stdin,
                self._flood_bytes,
                timeout,
                hear,
                self._sandbox.poller,
            ),
        )

    async def _file_operation(
        self, kind: str, what: list[object], keep_bytes: int = 0, stdin: bytes = b""
    ) -> Ended:
        limits = limits_of_operation(self._limits, _FILE_SECONDS, keep_bytes)
        return await self._run(
            kind,
            what,
            lambda number, channel: CommandExecution(
                number,
                limits,
                channel,
                stdin,
                max(self._flood_bytes, keep_bytes + 1),
                None,
                None,
                self._sandbox.poller,
            ),
        )

    async def _operation(self, operation: Operation, keep_bytes: int) -> Ended:
        limits = limits_of_operation(self._limits, _FILE_SECONDS, keep_bytes)
        kind = FROZEN if operation.freezes else OPERATE
        with contextlib.ExitStack() as opened:

            def descriptor(path: str | None, flags: int) -> int | None:
                if path is None:
                    return None
                found = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
                opened.callback(os.close, found)
                return found

            files = (
                descriptor(operation.stdin, os.O_RDONLY),
                descriptor(operation.stdout, os.O_WRONLY | os.O_APPEND),
            )
            return await self._run(
                kind,
                [operation.source, operation.most_written_bytes, list(operation.arguments)],
                lambda number, channel: CommandExecution(
                    number,
                    limits,
                    channel,
                    b"",
                    max(self._flood_bytes, keep_bytes + 1),
                    None,
                    None,
                    self._sandbox.poller,
                ),
                partial(Pipes, *files),
            )

    async def set_command_defaults(self, directory: str, variables: Mapping[str, str]) -> None:
        """See `StatefulSandbox.set_command_defaults`."""
        order = ["defaults", directory, dict(variables)]
        self._sandbox.send(json.dumps(order).encode() + b"\n")

    async def make_read_only(self, directory: str, paths: Sequence[bytes]) -> int:
        """See `StatefulSandbox.make_read_only`."""
        namespace = self._sandbox.mounts
        if self._sandbox.is_over:
            raise await self._over()
        if namespace is None or not paths:
            return 0
        duplicate = os.dup(namespace)  # the sandbox may end meanwhile
        try:
            return await self._make_read_only(duplicate, os.fsencode(directory), list(paths))
        except (OSError, TimeoutError, StartError) as error:
            raise SandboxLost(f"files cannot be made read-only: {error}") from error
        finally:
            os.close(duplicate)

    # ------------------------------------------------------------ runs

    async def _run(
        self,
        kind: str,
        what: list[object],
        make: Callable[[int, Pipes], CommandExecution],
        open_pipes: Callable[[], Pipes] = Pipes,
    ) -> Ended:
        cpu_base = 0.0 if self._running else await self._cpu_total()
        if self._sandbox.is_over or self._listener is None or self._listener.done():
            raise await self._over()
        if self._is_short_of_memory():
            self._sandbox.on_lost(SHORT_OF_MEMORY)
            raise await self._over()
        # No program runs beside a restore.
        is_touched = self._has_run_programs and kind != "take_over"
        self._has_run_programs |= kind in _PROGRAMS
        number = next(self._numbers)
        try:
            pipes = open_pipes()
        except OSError as error:
            raise SandboxUnavailable(f"a command has no pipes: {error}") from error
        execution = make(number, pipes)
        execution.kills_before = self._sandbox.group.out_of_memory_kills()
        execution.kills_around_before = self._sandbox.kills_around()
        execution.before_shortages = self._sandbox.mark_shortages()
        self._begin(execution, cpu_base)
        order = json.dumps(["run", number, kind, what]).encode() + b"\n"
        self._sandbox.send(order, pipes.theirs)
        try:
            report = await execution.reported
        except asyncio.CancelledError:
            self._tell_kill(execution, "killed")
            raise  # `_listen` finishes the execution after its end
        if report is None:
            self._finish(execution)
            raise await self._over()
        code = os.waitstatus_to_exitcode(report[0])
        is_short = not execution.has_started or (kind not in _PROGRAMS and code == OF_THE_MACHINE)
        if is_short and not is_touched:
            self._finish(execution)
            self._sandbox.on_lost("the machine lacks the processes or open files for a command")
            raise await self._over()
        evidence = self._evidence(execution, *report[:2])
        if kind not in _PROGRAMS and code in (MISSING, REFUSED):
            evidence = replace(evidence, kills_around=0)  # our own helper has answered
        why = outside_cause(evidence)
        if why is not None:
            self._finish(execution)
            self._sandbox.on_lost(why)
            raise await self._over()
        # The agent sees for itself what was refused, and keeps its sandbox.
        in_shortage = await self._sandbox.were_shortages(execution.before_shortages)
        ended = execution.ended(replace(evidence, in_shortage=in_shortage), *report[1:])
        self._finish(execution)
        return ended

    def _begin(self, execution: CommandExecution, cpu_base: float) -> None:
        self._commands += 1
        if not self._running:
            self.started_at = time.monotonic()
            self._cpu_base = cpu_base
            self._charge, self._charged_seconds = CHARGE.get(), 0.0
            if self._background_base is not None and self._sandbox.is_counted:
                self._background_used += max(0.0, cpu_base - self._background_base)
            self._background_base = None
            self._monitor.add(self)
        self._running[execution.number] = execution
        self._counted = self._counted[0], tuple(self._running.values())

    def _finish(self, execution: CommandExecution) -> None:
        if self._running.pop(execution.number, None) is None:
            return
        past = self._counted[0] + execution.exchanges
        self._counted = past, tuple(self._running.values())
        execution.close()
        self._sandbox.send(json.dumps(["settled", execution.number]).encode() + b"\n")
        if not self._running:
            self._monitor.remove(self)
            self._background_base = self._sandbox.group.cpu_seconds()
            if self._background_base is not None:
                self._charge_up_to(self._background_base - self._cpu_base)
            self._background_busy = 0
            self._is_alone = False
            self._sandbox.group.forget_kills()
            self._sandbox.set_weight(RESTING)

    def _tell_kill(self, execution: CommandExecution, reason: Ending) -> None:
        if execution.stop(reason):
            self._sandbox.send(json.dumps(["kill", execution.number]).encode() + b"\n")

    def _is_short_of_memory(self) -> bool:
        """Return True if the surroundings ran out of memory and a background process was killed."""
        kills = 0 if self._running else self._sandbox.group.out_of_memory_kills()
        return kills > 0 and not self._sandbox.group.at_memory_limit()

    def _evidence(self, execution: CommandExecution, status: int, cpu_seconds: float) -> Evidence:
        kills = self._sandbox.group.out_of_memory_kills() - execution.kills_before
        at_memory_limit = self._sandbox.group.at_memory_limit()
        if status == 0 and at_memory_limit:
            kills = 0  # the command got along without the killed process
        return Evidence(
            status,
            execution.stopped_for,
            kills,
            execution.is_over(cpu_seconds),
            at_memory_limit=at_memory_limit,
            kills_around=self._sandbox.kills_since(execution.kills_around_before),
        )

    async def _listen(self) -> None:
        """Read the endings of commands until the sandbox is gone."""
        while (line := await self._sandbox.receive()) is not None:
            with contextlib.suppress(ValueError, TypeError, KeyError):
                word, number, status, cpu_seconds, peak_kb = json.loads(line)
                execution = self._running[number]
                if word in ("exited", "not started"):
                    execution.has_started = word == "exited"
                    execution.on_exit((int(status), float(cpu_seconds), int(peak_kb)))
                    if execution.abandoned:
                        self._finish(execution)
        # The session process ended, or closed its channel and is of no more use.
        self._sandbox.stop("signalled")
        for execution in list(self._running.values()):
            execution.on_exit(None)
            self._finish(execution)

    async def _over(self) -> SandboxEnded:
        """Return the error for a call to an ended sandbox. Raises SandboxLost."""
        ended = await self._sandbox.ended()
        return SandboxEnded(OVER.get(ended.ending, "the sandbox ended by its own act"))

    # ------------------------------------------------------------ callbacks of the monitor

    @property
    def is_idle(self) -> bool:
        """True while no command runs."""
        return not self._running

    @property
    def owner(self) -> Owner:
        """Tenant and job of the sandbox."""
        return self._sandbox.owner

    @property
    def turns(self) -> None:
        """None: a stateful sandbox has no peer."""
        return None

    def init_pid(self) -> None:
        """See `Monitored`: the session is process 1 itself."""

    def host_pid(self) -> int | None:
        """Return the PID of the sandbox's first process."""
        return self._sandbox.host_pid()

    def set_weight(self, weight: float) -> None:
        """Set the sandbox's part of the cores."""
        self._sandbox.set_weight(weight)

    def cpu_seconds(self, summed: float) -> float:
        """Return CPU seconds since the first of the running commands began."""
        return self._sandbox.cpu_seconds(summed) - self._cpu_base

    @property
    def memory_limit(self) -> MemoryLimit | None:
        """Memory limit, unless a cgroup enforces the limit; `ours` is the first process."""
        limit = self._sandbox.memory_limit
        if limit is None:
            return None
        return replace(limit, megabytes=self._limits.memory_mb, ours=self.host_pid())

    def note_machine(self, machine: MachineMemory) -> None:
        """Note the machine's memory; the first call counts."""
        self._sandbox.note_machine(machine)

    @property
    def socket_limit(self) -> SocketLimit | None:
        """Memory limit for all that sockets hold."""
        return self._sandbox.socket_limit

    @property
    def exchanges(self) -> int:
        """Number of transfers so far in which a command may have waited for the service."""
        past, running = self._counted
        return past + sum(execution.exchanges for execution in running)

    @property
    def is_counted(self) -> bool:
        """True if a cgroup counts the CPU time."""
        return self._sandbox.is_counted

    def on_measurement(self, measurement: Measurement) -> None:
        """Stop the commands over their time limit."""
        self._charge_up_to(measurement.cpu_seconds)
        share = 1 / len(self._running)
        for execution in list(self._running.values()):
            execution.on_measurement(measurement, share)
            reason = execution.overrun()
            if reason is not None:
                self._tell_kill(execution, reason)
            if execution.is_overdue(_KILL_SECONDS):
                self._sandbox.stop("wall_limit")

    def _charge_up_to(self, cpu_seconds: float) -> None:
        """Charge the job with the CPU time of the running commands so far."""
        self._charge(cpu_seconds - self._charged_seconds)
        self._charged_seconds = cpu_seconds

    def on_memory_exceeded(self) -> None:
        """Stop the sandbox."""
        self._sandbox.stop("memory_limit")

    def check_memory(self) -> None:
        """Check the memory of background processes between commands, as far as no cgroup counts."""
        if not self._running:
            self._monitor.look_at_sockets(self)
        limit = self.memory_limit
        if limit is None or self._running or self._is_alone:
            return
        pid = self._sandbox.host_pid()
        if pid is None:
            return
        read = partial(left_running, pid, limit)
        self._monitor.reads.start(
            self, "memory", read, partial(self._on_memory_read, self._commands)
        )

    def _on_memory_read(self, commands: int, found: tuple[bool, bool]) -> None:
        alone, exceeded = found
        if exceeded:
            self.on_memory_exceeded()
        if commands == self._commands:
            self._is_alone = alone

    def check_background(self) -> None:
        """Limit the CPU time of background processes between commands.

        Between two commands, background processes may use as much CPU time as a command. Over all
        such periods together the total may be only slightly larger. Without a cgroup, short-lived
        processes escape the sum, so samples with a runnable process count, too.
        """
        if self._running or self._sandbox.is_over:
            return
        pid = self.host_pid()
        counted = self._sandbox.group.cpu_seconds()
        if counted is not None:
            self._on_background_read(self._commands, (counted, False))
        elif pid is not None:
            then = partial(self._on_background_read, self._commands)
            self._monitor.reads.start(self, "background", partial(background, pid), then)

    def _on_background_read(self, commands: int, found: tuple[float, bool]) -> None:
        total, runnable = found
        if self._running or self._sandbox.is_over or commands != self._commands:
            return
        if self._background_base is None:
            self._background_base, self._background_busy = total, 0
        self._background_busy += runnable
        used = total - self._background_base
        busy = self._background_busy / UNSEEN_TIMES
        all_used = self._background_used + used - _MARGIN_SECONDS
        if max(used, busy, all_used) > self._limits.cpu_seconds:
            self._background_base, self._background_used = None, 0.0
            self._sandbox.send(b'["clear"]\n')

    async def _cpu_total(self) -> float:
        counted = self._sandbox.group.cpu_seconds()
        pid = self._sandbox.host_pid()
        if counted is not None or pid is None:
            return counted or 0.0
        try:
            return await self._monitor.cpu_total(pid)
        except procfs.Unread as error:
            raise SandboxUnavailable(f"the machine cannot start a command: {error}") from error
