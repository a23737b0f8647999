"""Files that a sandbox's programs can no longer change, as root and as an ordinary user of the machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from core.contract.stateful_questions import Rooms, sh
from core.contract.test_contract_ordinary_user import as_ordinary_user
from core.contract.test_contract_stateful import ask
from proctor_service.errors import SandboxEnded
from proctor_service.sandbox.interface import MachineCheck, StatefulSandbox
from proctor_service.sandbox.local import LocalBackend, launch
from proctor_service.sandbox.local.abilities import READ_ONLY_TESTS

Question = Callable[[Rooms], Coroutine[Any, Any, None]]
MAKE = (
    "mkdir -p repo/tests/deep; cd repo; ln -s tests l; echo task | tee a tests/b tests/deep/c > out"
)
PATHS = [
    b"a",
    b"tests/b",
    b"tests/deep/c",
    b"l/b",
    b"none",
    b"tests",
    b"no/d",
    b"../out",
    b"/etc/passwd",
]
REFUSED = (
    "echo own > tests/b",
    "echo own >> a",
    "rm tests/b",
    "mv tests/b tests/d",
    "echo own > d && mv d a",
    "mv tests other",
    "mv tests/deep tests/other",
    "cd .. && mv repo other",
    "chmod 600 a",
    "touch a",
    "ln a hard",
    "umount a",
    "mount --bind /etc/passwd a",
    "mount -o remount,rw a",
    "unshare -Urm true",
    "for p in /proc/[0-9]*; do echo own > $p/root$PWD/a && exit; done; false",
    "exec 3< a; echo own > /proc/self/fd/3",
)
"""Commands that fail."""
WORKING = (
    "echo own > tests/d && mv tests/d tests/e && rm tests/e",
    "mkdir tests/new && echo own > tests/new/f && mv tests/new tests/deep/n && rm -r tests/deep/n",
    "cp -r tests /tmp/copy && echo own > /tmp/copy/b",
    "echo own > other && mv other tests/b2 && ls tests/b2",
    'test "$(stat -c %d tests)" = "$(stat -c %d .)"',
)


async def _made(sandbox: StatefulSandbox) -> int:
    where = (await sh(sandbox, f"{MAKE}; pwd")).stdout.decode().strip()
    return await sandbox.make_read_only(where, PATHS)


def _namespaces() -> int:
    """The number of mount namespaces that this process holds."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(each.readlink()).startswith("mnt:")
    return found


async def what_is_read_only_stays(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        assert await _made(sandbox) == 3
        for command in REFUSED:
            ended = await sh(sandbox, f"cd repo && {command}")
            assert ended.exit_code not in (0, None), command
        for command in WORKING:
            ended = await sh(sandbox, f"cd repo && {command}")
            assert ended.exit_code == 0, (command, ended)
        read = await sh(sandbox, "cd repo && cat a tests/b tests/deep/c")
        assert read.stdout == b"task\n" * 3


async def nothing_is_left_for_the_next_sandbox(rooms: Rooms) -> None:
    async with rooms.open_stateful() as sandbox:
        await _made(sandbox)
        assert _namespaces() == 1
    for _ in range(3):
        async with rooms.open_stateful() as sandbox:
            ended = await sh(sandbox, "cat /proc/self/mountinfo; ls")
            assert b"repo" not in ended.stdout
    assert _namespaces() == 0


QUESTIONS = [what_is_read_only_stays, nothing_is_left_for_the_next_sandbox]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
def test_local(question: Question) -> None:
    ask(question)


def test_as_an_ordinary_user() -> None:
    said = as_ordinary_user("""
        from core.contract.test_contract_read_only import QUESTIONS
        from core.contract.test_contract_stateful import ask
        for question in QUESTIONS:
            ask(question)
            print(question.__name__)
    """)
    assert said.split() == [question.__name__ for question in QUESTIONS]


def test_another_zygote_answers_for_one_that_died() -> None:
    async def question(rooms: Rooms) -> None:
        assert isinstance(rooms.backend, LocalBackend)
        async with rooms.open_stateful() as sandbox:
            os.kill(rooms.backend.zygote(), signal.SIGKILL)
            assert await _made(sandbox) == 3

    ask(question)


def test_a_sandbox_that_ended_says_so() -> None:
    async def question(rooms: Rooms) -> None:
        async with rooms.open_stateful() as sandbox:
            sandbox.kill()
            await asyncio.wait_for(sandbox.ended(), 10)
            with pytest.raises(SandboxEnded):
                await sandbox.make_read_only("/box/work", [b"a"])

    ask(question)


def test_where_nobody_may_enter_a_sandbox_results_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = MachineCheck(READ_ONLY_TESTS, False, "", guards=True)
    monkeypatch.setattr(launch, "kernel_checks", lambda _: [refused])

    async def question(rooms: Rooms) -> None:
        assert READ_ONLY_TESTS in rooms.backend.traits.degraded
        async with rooms.open_stateful() as sandbox:
            assert await _made(sandbox) == 0

    ask(question)
