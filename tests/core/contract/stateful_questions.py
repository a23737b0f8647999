"""What every backend's stateful sandboxes are asked: one list, each backend.

A question takes a `Rooms`, opens the sandboxes that it needs, and asserts. `QUESTIONS` has them all.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from proctor_service.errors import FileMissing, FileRefused, SandboxEnded
from proctor_service.sandbox.interface import (
    Backend,
    Command,
    Ended,
    Limits,
    StatefulSandbox,
    StreamName,
)

LIMITS = Limits(
    cpu_seconds=5, wall_seconds=10, memory_mb=256, output_kb=64, processes=32, disk_mb=16
)
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Rooms:
    """An open backend, and how to have a sandbox of it."""

    backend: Backend

    def open_stateful(self, **limits: Any) -> AbstractAsyncContextManager[StatefulSandbox]:
        """A sandbox for the length of a block."""
        return self.backend.open(replace(LIMITS, **limits), tags=("asked",))


Question = Callable[[Rooms], Coroutine[Any, Any, None]]


async def sh(sandbox: StatefulSandbox, line: str, **more: Any) -> Ended:
    """A line of shell."""
    return await sandbox.exec(Command(argv=("sh", "-c", line), **more))


async def py(sandbox: StatefulSandbox, code: str, **more: Any) -> Ended:
    """Python code."""
    return await sandbox.exec(Command(code=code, **more))


async def an_argv_is_no_shell(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        ended = await sandbox.exec(Command(argv=("echo", "$HOME", "a b", "")))
    assert (ended.ending, ended.exit_code, ended.stdout) == ("exited", 0, b"$HOME a b \n")


async def exit_codes_and_signals_are_told(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        assert (await sh(sandbox, "exit 7")).exit_code == 7
        killed = await sh(sandbox, "kill -SEGV $$")
        missing = await sandbox.exec(Command(argv=("no-such-program",)))
        refused = await sandbox.exec(Command(argv=("/etc/passwd",)))
        raised = await py(sandbox, "import sys; sys.exit('last words')")
    assert (killed.ending, killed.exit_code, killed.signal) == ("signalled", None, 11)
    assert (missing.exit_code, refused.exit_code) == (127, 126)
    assert b"no-such-program" in missing.stderr
    assert (raised.exit_code, raised.stderr) == (1, b"last words\n")


async def a_traceback_shows_the_code(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        ended = await py(sandbox, "def f():\n    return 1 / 0\nf()")
    text = ended.stderr.decode()
    assert ended.exit_code == 1
    assert text.startswith("Traceback")
    assert "return 1 / 0" in text
    assert text.rstrip().endswith("ZeroDivisionError: division by zero")


async def stdin_reaches_the_command(rooms: Rooms) -> None:
    data = bytes(range(256)) * 4096
    async with rooms.open_stateful() as sandbox:
        counted = await sandbox.exec(Command(argv=("wc", "-c"), stdin=data))
        code = await py(sandbox, "import sys; print(len(sys.stdin.buffer.read()))", stdin=data)
        ignored = await sandbox.exec(Command(argv=("true",), stdin=data))
    assert int(counted.stdout) == int(code.stdout) == len(data)
    assert ignored.exit_code == 0


async def output_is_kept_up_to_the_limit(rooms: Rooms) -> None:
    async with rooms.open_stateful(output_kb=1) as sandbox:
        ended = await sh(sandbox, "yes x | head -c 100000; echo done >&2")
    assert (len(ended.stdout), ended.truncated, ended.stderr) == (1024, True, b"done\n")


async def output_is_heard_as_it_comes(rooms: Rooms) -> None:
    heard = asyncio.Event()
    pieces: list[tuple[StreamName, bytes]] = []

    def hear(name: StreamName, data: bytes) -> None:
        pieces.append((name, data))
        heard.set()

    async with rooms.open_stateful() as sandbox:
        line = "echo first; while [ ! -e go ]; do sleep 0.02; done; echo second >&2"
        running = asyncio.create_task(sandbox.exec(Command(argv=("sh", "-c", line)), hear))
        await heard.wait()
        assert pieces == [("stdout", b"first\n")]
        assert not running.done()
        await sandbox.write_file("go", b"")
        await running
    assert pieces == [("stdout", b"first\n"), ("stderr", b"second\n")]


async def files_stay(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        await sh(sandbox, "echo one > a; mkdir d; echo two > d/b; echo three > /tmp/c")
        ended = await py(
            sandbox, "print(open('a').read() + open('d/b').read() + open('/tmp/c').read())"
        )
    assert ended.stdout.split() == [b"one", b"two", b"three"]


async def the_environment_stays(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        await py(sandbox, "import os; os.environ['PLANET'] = 'earth'; del os.environ['LANG']")
        ended = await sh(sandbox, 'echo "$PLANET [$LANG]"')
        again = await py(sandbox, "import os; print(os.environ['PLANET'])")
    assert (ended.stdout, again.stdout) == (b"earth []\n", b"earth\n")


async def background_processes_stay(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        started = await sh(
            sandbox, "(while :; do echo tick; date >> log; sleep 0.02; done) & echo $! > pid"
        )
        assert started.exit_code == 0
        line = "n=$(wc -l < log); while [ $(wc -l < log) -le $n ]; do sleep 0.02; done; kill $(cat pid)"
        ended = await sh(sandbox, line)
        assert ended.exit_code == 0
        line = "until n=$(wc -l < log); sleep 0.2; [ $n = $(wc -l < log) ]; do :; done"
        gone = await sh(sandbox, line)
    assert gone.exit_code == 0


async def a_timeout_ends_a_command_and_not_the_sandbox(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        for line in ("while :; do :; done", "sleep 60", "sleep 60 & sleep 60 & wait"):
            ended = await sh(sandbox, f"echo begun; {line}", timeout_seconds=0.5)
            found = ended.ending, ended.exit_code, ended.stdout
            assert found == ("wall_limit", None, b"begun\n"), (line, ended)
        left = await sh(sandbox, "ps ax | grep -c '[s]leep 60'")
        assert left.stdout == b"0\n"
        looping = await py(sandbox, "print('begun')\nwhile True: pass", timeout_seconds=0.5)
        assert (looping.ending, looping.stdout) == ("wall_limit", b"begun\n")
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


async def without_a_timeout_the_limits_hold(rooms: Rooms) -> None:
    async with rooms.open_stateful(cpu_seconds=2, wall_seconds=2) as sandbox:
        assert (await sh(sandbox, "while :; do :; done")).ending == "cpu_limit"
        assert (await sh(sandbox, "sleep 60")).ending == "wall_limit"
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


async def a_cancelled_command_is_killed(rooms: Rooms) -> None:
    heard = asyncio.Event()
    async with rooms.open_stateful() as sandbox:
        command = Command(argv=("sh", "-c", "echo begun; exec sleep 61"))
        running = asyncio.create_task(sandbox.exec(command, lambda name, data: heard.set()))
        await heard.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        line = "while ps ax | grep -q '[s]leep 61'; do sleep 0.02; done"
        assert (await sh(sandbox, line, timeout_seconds=5)).exit_code == 0


async def commands_run_side_by_side(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        waiting = asyncio.create_task(
            sh(sandbox, "while [ ! -e go ]; do sleep 0.02; done; echo went")
        )
        await sh(sandbox, "touch go")
        assert (await waiting).stdout == b"went\n"
        many = await asyncio.gather(*(sh(sandbox, f"echo {n}") for n in range(8)))
    assert [ended.stdout for ended in many] == [b"%d\n" % n for n in range(8)]


async def commands_start_beside_one_that_kills_all(rooms: Rooms) -> None:
    """The first process of a command may be killed before anything hostile runs in it."""
    code = (
        "import os, random, time\nfor _ in range(150):\n    os.kill(-1, 9)\n"
        "    time.sleep(0.1 * random.random() ** 4)"  # now and then long enough for a slow machine
    )
    async with rooms.open_stateful() as sandbox:
        killer = asyncio.create_task(py(sandbox, code))
        while not killer.done():
            ended = await sh(sandbox, "true")
            assert ended.ending in ("exited", "signalled", "killed"), ended
        await killer
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


async def any_bytes_go_in_and_out(rooms: Rooms) -> None:
    data = bytes(range(256)) * 8192  # 2 MB
    async with rooms.open_stateful() as sandbox:
        for path in ("a", "deep/er/b", "with space/ü", "/tmp/c"):
            await sandbox.write_file(path, data)
            assert await sandbox.read_file(path, 4 * MEGABYTE) == data
        await sandbox.write_file("empty", b"")
        assert await sandbox.read_file("empty", 1) == b""
        seen = await sh(sandbox, "wc -c < deep/er/b")
        await sh(sandbox, "echo '#!/bin/sh' > x; chmod 755 x")
        await sandbox.write_file("x", b"#!/bin/sh\necho ran\n")
        ran = await sh(sandbox, "./x")
    assert int(seen.stdout) == len(data)
    assert ran.stdout == b"ran\n"


async def what_is_no_file_is_refused(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        await sh(
            sandbox,
            "mkdir d; mkfifo pipe; ln -s /nowhere/at/all dangling; head -c 9 /dev/zero > nine",
        )
        for path in ("missing", "d/missing", "dangling"):
            with pytest.raises(FileMissing):
                await sandbox.read_file(path, MEGABYTE)
        for path in ("d", "pipe", "/dev/zero"):
            with pytest.raises(FileRefused):
                await sandbox.read_file(path, MEGABYTE)
        with pytest.raises(FileRefused):
            await sandbox.read_file("nine", 8)
        for path in ("d", "nine/below", "/proc/x"):
            with pytest.raises((FileRefused, FileMissing)):
                await sandbox.write_file(path, b"x")
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


async def a_snapshot_holds_the_files(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        await sh(sandbox, "mkdir -p d/e; echo one > d/one; ln -s d/one link; chmod 700 d/one")
        await sh(sandbox, "echo two > ~/two; echo 3 > /tmp/3; truncate -s 9G hole; mkfifo pipe")
        await sh(sandbox, "(while :; do date > moving; done) & ")
        saved = await sandbox.snapshot()
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"
    with tarfile.open(fileobj=io.BytesIO(saved)) as archive:
        names = set(archive.getnames())
        assert {"work/d/e", "work/d/one", "work/link", "home/two", "tmp/3"} <= names
        assert not {"work/hole", "work/pipe"} & names
        member = archive.extractfile("work/d/one")
        assert member is not None
        assert member.read() == b"one\n"
        assert archive.getmember("work/d/one").mode & 0o777 == 0o700
        assert archive.getmember("work/link").linkname == "d/one"


async def two_sandboxes_share_nothing(rooms: Rooms) -> None:
    async with rooms.open_stateful() as one, rooms.open_stateful() as other:
        assert one.id != other.id
        await sh(one, "echo secret > file; echo secret > /tmp/file; sleep 62 & exit 0")
        await py(one, "import os; os.environ['SECRET'] = '1'")
        found = await sh(other, "cat file /tmp/file; ps ax | grep '[s]leep 62'; echo $SECRET")
    assert found.stdout == b"\n"


async def it_ends_with_all_that_runs_in_it(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        running = asyncio.create_task(sh(sandbox, "sleep 63"))
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"
        sandbox.kill()
        with pytest.raises(SandboxEnded):
            await running
        assert (await sandbox.ended()).ending == "killed"
        with pytest.raises(SandboxEnded):
            await sh(sandbox, "true")
        with pytest.raises(SandboxEnded):
            await sandbox.read_file("a", 1)


QUESTIONS: tuple[Question, ...] = (
    an_argv_is_no_shell,
    exit_codes_and_signals_are_told,
    a_traceback_shows_the_code,
    stdin_reaches_the_command,
    output_is_kept_up_to_the_limit,
    output_is_heard_as_it_comes,
    files_stay,
    the_environment_stays,
    background_processes_stay,
    a_timeout_ends_a_command_and_not_the_sandbox,
    without_a_timeout_the_limits_hold,
    a_cancelled_command_is_killed,
    commands_start_beside_one_that_kills_all,
    commands_run_side_by_side,
    any_bytes_go_in_and_out,
    what_is_no_file_is_refused,
    a_snapshot_holds_the_files,
    two_sandboxes_share_nothing,
    it_ends_with_all_that_runs_in_it,
)
