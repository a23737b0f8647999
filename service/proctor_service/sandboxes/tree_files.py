"""Files of the service with the repository of an agent's sandbox, from its end to its judgement."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


async def make_tree_file() -> str:
    """Return the path of a new empty file, for the service alone; `remove_tree_file` removes it."""
    return await asyncio.to_thread(_make)


async def remove_tree_file(path: str) -> None:
    """Remove the file, if it is there."""
    await asyncio.shield(asyncio.to_thread(_remove, path))


@asynccontextmanager
async def tree_file() -> AsyncIterator[str]:
    """Context of a file."""
    path = await make_tree_file()
    try:
        yield path
    finally:
        await remove_tree_file(path)


def _make() -> str:
    descriptor, path = tempfile.mkstemp(prefix="proctor-tree-")
    os.close(descriptor)
    return path


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        Path(path).unlink()
