"""The repository before a change, as read from a sandbox, for pure code in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from proctor_service.features.repositories.change import FileState
from proctor_service.features.repositories.trees import Tree

_READ_SECONDS = 300.0
_BATCH_BYTES = 16 << 20


class SandboxBase:
    """Implements `change.Base` by the files of a sandbox, unchanged meanwhile.

    `state` waits for the sandbox: call it in threads other than the event loop's. `load` reads many files at
    once before.
    """

    def __init__(self, tree: Tree, sizes: Mapping[bytes, int]) -> None:
        self._tree = tree
        self._sizes = sizes
        self._states: dict[bytes, FileState | None] = {}
        self._loop = asyncio.get_running_loop()

    def paths(self) -> Collection[bytes]:
        """See `change.Base`."""
        return self._sizes.keys()

    def size(self, path: bytes) -> int | None:
        """Return the size of a file in bytes; None if absent."""
        return self._sizes.get(path)

    def state(self, path: bytes) -> FileState | None:
        """See `change.Base`. Raises the errors of `Tree.states`."""
        if path not in self._sizes:
            return None
        if path not in self._states:
            waiting = asyncio.run_coroutine_threadsafe(self.load([path]), self._loop)
            waiting.result(_READ_SECONDS)
        return self._states[path]

    async def load(self, paths: Collection[bytes]) -> None:
        """Read the existing files of `paths` at once, except for files read before."""
        missing = [each for each in paths if each in self._sizes and each not in self._states]
        if missing:
            self._states.update(dict.fromkeys(missing))
            self._states.update(await self._tree.states(missing))

    async def unequal(
        self, files: Mapping[bytes, FileState | None], sizes: Mapping[bytes, int]
    ) -> list[bytes]:
        """Return the paths of files that differ from the base; `sizes`: of these files, in bytes.

        Few of them are in memory at once.
        """
        found: list[bytes] = []
        batch: list[bytes] = []
        batch_bytes = 0
        for path, size in sizes.items():
            if self.size(path) != size:
                found.append(path)
                continue
            batch.append(path)
            batch_bytes += size
            if batch_bytes > _BATCH_BYTES:
                found += await self._unequal(batch, files)
                batch, batch_bytes = [], 0
        return found + await self._unequal(batch, files)

    async def _unequal(
        self, paths: list[bytes], files: Mapping[bytes, FileState | None]
    ) -> list[bytes]:
        states = await self._tree.states(paths)
        return await asyncio.to_thread(
            lambda: [each for each in paths if files[each] != states[each]]
        )


class ChangedBase:
    """Implements `change.Base`: a base after a change."""

    def __init__(self, base: SandboxBase, files: Mapping[bytes, FileState | None]) -> None:
        self._base = base
        self._files = files

    def paths(self) -> Collection[bytes]:
        """See `change.Base`."""
        present = {path for path, state in self._files.items() if state is not None}
        return (self._base.paths() - self._files.keys()) | present

    def state(self, path: bytes) -> FileState | None:
        """See `change.Base`."""
        return self._files[path] if path in self._files else self._base.state(path)
