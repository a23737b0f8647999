"""Prepared files of compilers, as the service uses and makes them.

A folder of prepared files has a script `compile`, and maybe a script `run`. Each takes a plain command as
its arguments, and does the same work faster: with a precompiled header, or an archive of classes. The
files come from trusted sources alone (`recipes.py`), outside of any sandbox, and are read-only in
sandboxes. Without these files the plain command runs, also in a sandbox without them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proctor_service.features.languages.recipes import folder_name, recipe_for, recipe_name
from proctor_service.settings import worker_environment
from proctor_service.settings.prepared_folder import SHOWN_AT

log = logging.getLogger(__name__)

_NICE = "10"


@dataclass(frozen=True, slots=True)
class Scripts:
    """The scripts of a folder of prepared files; `folder`: its path in sandboxes."""

    folder: str
    runs: bool

    def run(self, argv: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the command to run the output of the script `compile`; `argv`: the plain command."""
        return (f"{self.folder}/run", *argv) if self.runs and argv is not None else argv


class PreparedFiles:
    """Folders of prepared files below a common folder, each made at its first use.

    Until a folder is made, and after a failure to make the folder, the plain command is used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._scripts: dict[str, Scripts | None] = {}
        self._finding = asyncio.Lock()
        self._making = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def scripts(self, argv: Sequence[str], backend: str) -> Scripts | None:
        """Return the scripts for the command of a compiler, or None until made."""
        name = recipe_name(argv) if backend == "local" else None
        if name is None:
            return None
        if name not in self._scripts:
            async with self._finding:
                if name not in self._scripts:
                    await self._find_or_make(name)
        return self._scripts[name]

    async def _find_or_make(self, name: str) -> None:
        """Find a folder, or begin to make a new folder."""
        self._scripts[name] = await asyncio.to_thread(_find, self._folder, name)
        if self._scripts[name] is None and os.access(self._folder, os.W_OK):
            task = asyncio.create_task(self._make(name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _make(self, name: str) -> None:
        """Make a folder in a child process, and use the folder from then on."""
        async with self._making:
            proctor = ("nice", "-n", _NICE, sys.executable, "-P", "-m", "proctor_service")
            command = (*proctor, "languages", "prepare", name, "--folder", str(self._folder))
            try:
                child = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                    env=worker_environment(),
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                log.warning("no prepared files for %s: %s", name, error)
                return
            try:
                _, stderr = await child.communicate()
            except asyncio.CancelledError:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await child.communicate()  # the loop must outlive the pipe
                raise
            self._scripts[name] = await asyncio.to_thread(_find, self._folder, name)
        if self._scripts[name] is None:
            text = stderr.decode("utf-8", "replace").strip()[-500:]
            log.warning("no prepared files for %s: %s", name, text)
        else:
            log.info("prepared files for %s are in use", name)


def _find(folder: Path, name: str) -> Scripts | None:
    recipe = recipe_for(name)
    if recipe is None:
        return None
    found = folder / folder_name(recipe)
    if not (found / "compile").is_file():
        return None
    return Scripts(f"{SHOWN_AT}/{found.name}", (found / "run").is_file())
