"""What the contract tests ask a backend through: one sandbox, one program, how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from proctor_service.inside.values import decode, loads
from proctor_service.judge.run import Run, message, run
from proctor_service.sandbox.backends import make_backend
from proctor_service.sandbox.interface import Backend, Limits
from proctor_service.settings import Settings

LIMITS = Limits(
    cpu_seconds=5, wall_seconds=10, memory_mb=256, output_kb=64, processes=32, disk_mb=16
)


@dataclass(frozen=True)
class Place:
    """An open backend, and how to run a program in it."""

    backend: Backend

    async def script(self, source: str, stdin: str = "", **limits: Any) -> Run:
        """Runs a program to its end."""
        return await self._python(source, "script", {"stdin": stdin}, limits)

    async def call(self, source: str, name: str, *arguments: Any, **limits: Any) -> Any:
        """Calls one function of a program; the value that comes back."""
        from proctor_service.inside.values import encode

        calls = [[name, encode(list(arguments)), encode({})]]
        finished = await self._python(source, "calls", {"calls": calls}, limits)
        kind, index, value = loads(finished.lines[1])[:3]
        assert (kind, index) == ("value", 0), finished
        return decode(value)

    async def _python(
        self, source: str, mode: str, fields: dict[str, Any], limits: dict[str, Any]
    ) -> Run:
        job = message("python", mode=mode, source=source, files={}, **fields)
        return await run(self.backend, job, replace(LIMITS, **limits))


def inside(question: Callable[[Place], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Asks a question of a backend that is opened for it and closed afterwards."""

    async def asked() -> None:
        backend = make_backend(Settings(slots=2, **settings))
        await backend.open()
        try:
            await question(Place(backend))
        finally:
            await backend.close()

    asyncio.run(asked())
