"""Repositories in real sandboxes of the default environment: a folder below the working directory."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TypeVar

from proctor_service.features.repositories.change import FileState
from proctor_service.features.repositories.trees import SavedFiles, Tree, saving
from proctor_service.sandbox.interface import Backend, Command, Limits, StatefulSandbox
from proctor_service.sandboxes.tree_files import tree_file

T = TypeVar("T")
LIMITS = Limits(
    cpu_seconds=60, wall_seconds=60, memory_mb=512, output_kb=256, processes=64, disk_mb=128
)


@dataclass(frozen=True)
class OpenRepository:
    """A sandbox with a repository. `folder`: of this machine, for files that cross."""

    sandbox: StatefulSandbox
    tree: Tree
    folder: str

    async def shell(self, script: str) -> str:
        """Runs a script in the repository; what it printed."""
        script = f"cd {shlex.quote(self.tree.directory)} && {{ {script}\n}}"
        ended = await self.sandbox.exec(Command(("sh", "-c", script)))
        assert ended.exit_code == 0, ended
        return ended.stdout.decode()

    async def saved(self, most_bytes: int = 1 << 24) -> tuple[dict[bytes, FileState], SavedFiles]:
        """The repository as an agent left it: its files, and the rest."""
        async with tree_file() as path:
            await self.sandbox.operate(saving(self.tree.directory, most_bytes, path))
            saved = SavedFiles(path)
            return {name: saved[name] for name in saved}, saved


@dataclass(frozen=True)
class Repositories:
    """Opens sandboxes of a backend, each for one test."""

    runner: asyncio.Runner
    backend: Backend

    def within(self, files: Mapping[str, str], work: Callable[[OpenRepository], Awaitable[T]]) -> T:
        """Runs work in a new sandbox that has these files."""

        async def opened() -> T:
            async with self.backend.open(LIMITS) as sandbox:
                for path, text in files.items():
                    await sandbox.write_file(f"repo/{path}", text.encode())
                where = await sandbox.exec(Command(("sh", "-c", "mkdir -p repo && cd repo && pwd")))
                with TemporaryDirectory() as folder:
                    tree = Tree(sandbox, where.stdout.decode().strip(), folder)
                    return await work(OpenRepository(sandbox, tree, folder))

        return self.runner.run(opened())
