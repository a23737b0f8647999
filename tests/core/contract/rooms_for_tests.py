"""What the contract tests ask a backend through: one sandbox, one program, how it ended."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec

from event_loop import given_first
from time_factor import TIME_FACTOR

from proctor_service.codec.values import decode, loads
from proctor_service.composition import make_backend
from proctor_service.judge.run import Run, message, run, run_calls
from proctor_service.sandbox.interface import DEFAULT, Backend, Limits, Sandbox
from proctor_service.settings import Settings

P = ParamSpec("P")
LIMITS = Limits(
    cpu_seconds=5, wall_seconds=10, memory_mb=256, output_kb=64, processes=32, disk_mb=16
)


def cannot_lose(sandbox: Sandbox) -> None:
    """For a place in which no sandbox is lost."""
    raise AssertionError("nobody said how a sandbox is lost here")


@dataclass(frozen=True)
class Place:
    """An open backend, and how to run a program in it; `lose` has a sandbox go away."""

    backend: Backend
    lose: Callable[[Sandbox], None] = cannot_lose

    def lacks(self, protection: str) -> bool:
        """Whether the backend says that it cannot enforce something, as every result then says."""
        return protection in self.backend.traits.degraded

    async def script(self, source: str, stdin: str = "", **limits: Any) -> Run:
        """Runs a program to its end."""
        return await self._python(source, "script", {"stdin": stdin}, limits)

    async def call(self, source: str, name: str, *arguments: Any, **limits: Any) -> Any:
        """Calls one function of a program; the value that comes back."""
        from proctor_service.codec.values import dumps, encode

        call = dumps([name, encode(list(arguments)), encode({})])
        job = message("python", mode="calls", source=source, files={}, count=1)
        finished = await run_calls(self.backend, job, self._limits(limits), DEFAULT, [call], None)
        kind, index, value = loads(finished.lines[1])[:3]
        assert (kind, index) == ("value", 0), finished
        return decode(value)

    async def _python(
        self, source: str, mode: str, fields: dict[str, Any], limits: dict[str, Any]
    ) -> Run:
        job = message("python", mode=mode, source=source, files={}, **fields)
        return await run(self.backend, job, self._limits(limits), DEFAULT)

    def _limits(self, changed: dict[str, Any]) -> Limits:
        wanted = replace(LIMITS, **changed)
        return replace(wanted, cpu_seconds=wanted.cpu_seconds * TIME_FACTOR)


Question = Callable[[Place], Coroutine[Any, Any, None]]
Ask = Callable[[Question], None]


@contextmanager
def asking(backend: Backend, lose: Callable[[Sandbox], None] = cannot_lose) -> Iterator[Ask]:
    """Asks questions of a backend, one after the other; it is open for the length of the block."""
    with asyncio.Runner() as runner:
        runner.run(backend.start())
        try:
            yield lambda question: runner.run(question(Place(backend, lose)))
        finally:
            runner.run(backend.close())


def inside(question: Question, **settings: Any) -> None:
    """Asks a question of a backend that is opened for it and closed afterwards."""

    async def asked() -> None:
        backend = make_backend(Settings(slots=2, **settings))
        await backend.start()
        try:
            await question(Place(backend))
        finally:
            await backend.close()

    asyncio.run(asked())


def asked(test: Callable[Concatenate[Place, P], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Have the fixture `ask` ask the test as its question."""

    def ran(ask: Ask, *arguments: P.args, **fields: P.kwargs) -> None:
        ask(lambda place: test(place, *arguments, **fields))

    functools.update_wrapper(ran, test)
    _, *others = inspect.signature(test).parameters.values()
    asking_first = inspect.Parameter("ask", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(ran)["__signature__"] = inspect.Signature([asking_first, *others])
    return ran


in_place = given_first(inside)
"""Ask the test as a question of a backend of its own."""
