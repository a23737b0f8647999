"""Stateful sandboxes of the local backend: the questions for all backends, and its own."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from event_loop import given_first
from waits import WAIT_SECONDS

from core.contract.stateful_questions import QUESTIONS, Question, Rooms, py, sh
from core.contract.test_contract_ordinary_user import as_ordinary_user
from proctor_service.composition import make_backend
from proctor_service.errors import FileRefused, SandboxLost, SandboxUnavailable
from proctor_service.guest.session import file_operations as guest
from proctor_service.sandbox import file_operations
from proctor_service.sandbox.interface import Command
from proctor_service.sandbox.local import LocalBackend, stateful
from proctor_service.sandbox.local.execution import CommandExecution
from proctor_service.sandbox.local.pool import Place
from proctor_service.settings import Settings


def ask(question: Callable[[Rooms], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Asks a question of a backend that is opened for it and closed afterwards."""

    async def asked() -> None:
        backend = make_backend(Settings(slots=2, **settings))
        await backend.start()
        try:
            await question(Rooms(backend))
        finally:
            await backend.close()

    asyncio.run(asked())


in_rooms = given_first(ask)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
def test_local(question: Question) -> None:
    ask(question)


def test_as_an_ordinary_user() -> None:
    said = as_ordinary_user("""
        from core.contract.stateful_questions import QUESTIONS
        from core.contract.test_contract_stateful import ask
        for question in QUESTIONS:
            ask(question)
            print(question.__name__)
    """)
    assert len(said.splitlines()) == len(QUESTIONS)


@in_rooms
async def test_its_first_process_is_out_of_reach(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        tries = [
            "for s in $(seq 1 64); do kill -$s 1; done 2> /dev/null",
            "cat /proc/1/environ /proc/1/mem /proc/1/maps",
            "ls /proc/1/fd/300 /proc/1/cwd/",
            "echo x > /proc/1/fd/300; echo 1 > /proc/1/oom_score_adj",
            "ls -l /proc/self/fd | grep -v pipe | grep -v /proc/ | grep -c ' -> '",
        ]
        for line in tries:
            ended = await sh(sandbox, line)
            assert ended.stdout in (b"", b"0\n"), line
        seen = await py(sandbox, "import os; print(sorted(os.listdir('/proc/self/fd')))")
        assert seen.stdout == b"['0', '1', '2', '3', '4']\n"  # 3: its environment; 4: the listing
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


@in_rooms
async def test_the_limits_of_its_first_process_are_its_own(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        for limit in ("RLIMIT_AS", "RLIMIT_NOFILE", "RLIMIT_CPU", "RLIMIT_FSIZE"):
            ended = await py(sandbox, f"import resource as r; r.prlimit(1, r.{limit}, (1, 1))")
            assert b"PermissionError" in ended.stderr
        own = await py(sandbox, "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (99, 99))")
        assert own.exit_code == 0
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


@in_rooms
async def test_memory_is_limited_over_all_commands(rooms: Rooms) -> None:
    async with rooms.open_stateful(memory_mb=128) as sandbox:
        ended = await py(
            sandbox, "b = bytearray(1 << 29)\nfor i in range(0, len(b), 4096): b[i] = 1"
        )
        assert ended.ending == "memory_limit"
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


@in_rooms
async def test_a_full_disk_refuses_files_and_harms_nothing_else(rooms: Rooms) -> None:
    async with rooms.open_stateful(disk_mb=8) as sandbox:
        with pytest.raises(FileRefused, match="space"):
            await sandbox.write_file("big", bytes(9 << 20))
        assert (await sh(sandbox, "ls -A")).stdout == b""
        await sh(sandbox, "head -c 20000000 /dev/zero > full")
        assert len(await sandbox.snapshot()) > 7 << 20


@in_rooms
async def test_files_that_wait_for_the_service_are_no_act_of_the_sandbox(
    rooms: Rooms,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stateful, "_FILE_SECONDS", 0.3)
    monkeypatch.setattr(file_operations, "_SECONDS_PER_MB", 0.0)
    async with rooms.open_stateful() as sandbox:
        with monkeypatch.context() as silent:
            silent.setattr(CommandExecution, "_feed", lambda self: None)
            with pytest.raises(SandboxLost):
                await sandbox.restore(b"archive")
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


@in_rooms
async def test_a_machine_that_starts_no_process_costs_an_untouched_sandbox(
    rooms: Rooms,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Without room for the first process, no other can start.
    for module in ("cgroups", "sandbox"):
        monkeypatch.setattr(f"proctor_service.sandbox.local.{module}._OWN_PROCESSES", 1)
    for work in (
        lambda sandbox: sh(sandbox, "true"),
        lambda sandbox: sandbox.write_file("a", b""),
        lambda sandbox: sandbox.restore(b"archive"),
    ):
        async with rooms.open_stateful(processes=1) as sandbox:
            with pytest.raises(SandboxLost, match="processes or open files"):
                await work(sandbox)


@in_rooms
async def test_a_program_that_leaves_no_process_for_another_costs_its_sandbox_nothing(
    rooms: Rooms,
) -> None:
    async with rooms.open_stateful(processes=1) as sandbox:
        began = asyncio.Event()
        command = Command(argv=("sh", "-c", "echo; exec sleep 600"), timeout_seconds=600)
        holding = asyncio.create_task(sandbox.exec(command, lambda *_: began.set()))
        await asyncio.wait_for(began.wait(), WAIT_SECONDS)
        ended = await sh(sandbox, "true")
        assert ended.exit_code == 126
        assert b"no process can be started" in ended.stderr
        holding.cancel()
        await asyncio.wait({holding})
        async with asyncio.timeout(WAIT_SECONDS):
            while (await sh(sandbox, "true")).exit_code != 0:
                pass


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EMFILE, guest.OF_THE_MACHINE), (errno.ENFILE, guest.OF_THE_MACHINE),
     (errno.EIO, guest.REFUSED), (errno.ENOSPC, guest.REFUSED), (errno.ENOENT, guest.MISSING)],
)  # fmt: skip
def test_a_file_that_the_machine_cannot_open_has_its_own_exit_code(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(f"{guest.__name__}.os.open", refuse)
    monkeypatch.setattr(f"{guest.__name__}.os.write", lambda *_: 0)
    monkeypatch.setattr(f"{guest.__name__}.os._exit", sys.exit)
    with pytest.raises(SystemExit) as left:
        guest.read("a", 1)
    assert left.value.code == code


def open_files() -> int:
    """Count the open descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@in_rooms
async def test_a_command_without_a_descriptor_for_its_pipes_leaves_none_open(
    rooms: Rooms,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(descriptor: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async with rooms.open_stateful() as sandbox:
        await sh(sandbox, "true")
        before = open_files()
        with monkeypatch.context() as without:
            without.setattr(os, "dup", full)
            for _ in range(3):
                with pytest.raises(SandboxUnavailable, match="Too many open files"):
                    await sh(sandbox, "true")
        assert open_files() == before
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


def test_a_group_that_cannot_be_made_delays_a_sandbox_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new_place = LocalBackend._new_place
    failures = [OSError(errno.ENOSPC, "No space left on device")] * 3

    def full_for_now(backend: LocalBackend) -> Place | None:
        if failures:
            raise failures.pop()
        return new_place(backend)

    async def question(rooms: Rooms) -> None:
        async with rooms.open_stateful() as sandbox:
            assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"

    monkeypatch.setattr(LocalBackend, "_new_place", full_for_now)
    ask(question)


@in_rooms
async def test_a_fork_bomb_leaves_the_service_its_errands(rooms: Rooms) -> None:
    async with rooms.open_stateful(processes=16) as sandbox:
        await sandbox.write_file("f", b"kept")
        bomb = (
            "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(60)"
        )
        await py(sandbox, f"import os\nif os.fork() == 0:\n    os.setsid()\n    exec({bomb!r})")
        assert await sandbox.read_file("f", 100) == b"kept"
        assert await sandbox.snapshot()
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


@in_rooms
async def test_a_fork_bomb_in_the_background_does_not_brick_it(rooms: Rooms) -> None:
    async with rooms.open_stateful(processes=8) as sandbox:
        code = "import os, time\nfor _ in range(9):\n    if os.fork() == 0: time.sleep(60)"
        ended = await py(sandbox, f"import os\nif os.fork() == 0:\n    exec({code!r})")
        assert ended.exit_code == 0
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


@in_rooms
async def test_background_processes_may_use_as_much_cpu_time_as_a_command(rooms: Rooms) -> None:
    async with rooms.open_stateful(cpu_seconds=0.5) as sandbox:
        await sh(sandbox, "setsid sh -c 'trap \"\" HUP; while :; do :; done' > /dev/null & echo")
        line = "ps ax | grep -c '[t]rap'"
        while (await sh(sandbox, line)).stdout != b"0\n":  # noqa: ASYNC110
            await asyncio.sleep(1.0)


@in_rooms
async def test_a_dead_forkserver_is_a_failure_of_ours(rooms: Rooms) -> None:
    backend = rooms.backend
    assert isinstance(backend, LocalBackend)
    async with rooms.open_stateful() as sandbox:
        running = asyncio.create_task(sh(sandbox, "sleep 64"))
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"
        [pid] = backend.busy_slots()
        os.kill(pid, 9)
        with pytest.raises(SandboxLost):
            await running
        with pytest.raises(SandboxLost):
            await sh(sandbox, "true")


@in_rooms
async def test_a_dead_zygote_harms_nobody_and_is_replaced(rooms: Rooms) -> None:
    backend = rooms.backend
    assert isinstance(backend, LocalBackend)
    async with rooms.open_stateful() as first:
        os.kill(backend.zygote(), 9)
        assert (await sh(first, "echo alive")).stdout == b"alive\n"
        async with AsyncExitStack() as stack:
            many = [await stack.enter_async_context(rooms.open_stateful()) for _ in range(6)]
            for sandbox in many:
                assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


@in_rooms
async def test_a_pool_whose_every_process_was_killed_comes_back(rooms: Rooms) -> None:
    backend = rooms.backend
    assert isinstance(backend, LocalBackend)
    async with AsyncExitStack() as stack:
        many = [await stack.enter_async_context(rooms.open_stateful()) for _ in range(8)]
        os.kill(backend.zygote(), 9)
        for pid in backend.busy_slots():
            os.kill(pid, 9)
        for sandbox in many:
            with pytest.raises(SandboxLost):
                await sandbox.ended()
    async with rooms.open_stateful() as sandbox:
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


@in_rooms
async def test_two_hundred_at_once_know_nothing_of_each_other(rooms: Rooms) -> None:
    async with AsyncExitStack() as stack:
        keep = [stack.enter_async_context(rooms.open_stateful()) for _ in range(200)]
        many = await asyncio.gather(*keep)
        for turn in range(3):
            await asyncio.gather(
                *(
                    py(each, f"open('f', 'a').write('{number}.{turn} ')")
                    for number, each in enumerate(many)
                )
            )
        ends = await asyncio.gather(
            *(
                each.exec(Command(argv=("sh", "-c", "cat f; ps ax -o pid= | wc -l")))
                for each in many
            )
        )
    for number, ended in enumerate(ends):
        *marks, processes = ended.stdout.decode().split()
        assert marks == [f"{number}.{turn}" for turn in range(3)]
        assert int(processes) <= 4  # its first one, the shell, ps, wc
