"""Files of a repository in a sandbox: listed, read, put in place, saved to the service's disk.

Contents cross as files of the service (`Operation.stdin` and `stdout`) in a private folder; work of a size
chosen by a submission happens in threads.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from proctor_service.errors import FileRefused
from proctor_service.features.repositories.change import FileState, Mode, StoredFiles, mode_of
from proctor_service.features.repositories.guest import trees as guest
from proctor_service.sandbox.interface import Operation, StatefulSandbox

SOURCE = Path(guest.__file__).read_text()
MOST_READ_BYTES = 256 << 20
"""Of all files of the base that one judgement reads."""
_MODES: Mapping[bytes, Mode] = {guest.FILE: "644", guest.EXECUTABLE: "755", guest.LINK: "link"}
_KINDS = {mode: kind for kind, mode in _MODES.items()}


class TooMuch(Exception):
    """A saved repository beyond the bounds; the message says which."""


class Tree:
    """The repository's folder in a sandbox. `folder`: for crossing files; its owner removes it."""

    def __init__(self, sandbox: StatefulSandbox, directory: str, folder: str) -> None:
        self.directory = directory
        self._sandbox = sandbox
        self._folder = folder

    async def sizes(self) -> tuple[dict[bytes, int], frozenset[bytes]]:
        """Return the size in bytes of each file and link by path, and folders of environments."""
        path = await self._exchange("list", [])
        return await asyncio.to_thread(_sizes, path)

    async def states(self, paths: Collection[bytes]) -> dict[bytes, FileState | None]:
        """Return the states of files by path; None for a path without a file or link."""
        if not paths:
            return {}
        wanted = [_record(guest.DELETED, each) for each in paths]
        path = await self._exchange("read", wanted)
        return await asyncio.to_thread(_states, path)

    async def put(self, files: Mapping[bytes, FileState | None]) -> None:
        """Put files in place: deletions first, links last. Raises FileRefused."""
        if files:
            await self._exchange("put", _ordered(files))

    async def remove(self, patterns: Collection[str]) -> None:
        """Remove files and folders by pattern, absolute or below the directory. Raises FileRefused."""
        if patterns:
            operation = Operation(SOURCE, ("remove", self.directory, list(patterns)))
            await self._sandbox.operate(operation)

    async def marked(self, patterns: Collection[str], sign: str = "") -> str:
        """Return the path of a file with the states of the files that `collected` would return now.

        `sign`: files with this text near their begin are removed.
        """
        return await self._exchange("mark", [], list(patterns), sign) if patterns else ""

    async def collected(self, patterns: Collection[str], before: str) -> dict[str, bytes]:
        """Return files by absolute path, for absolute patterns and for patterns below the directory.

        `before`: path of `marked`; files unchanged since then are left out.
        """
        if not patterns:
            return {}
        operation = ("collect", self.directory, list(patterns), MOST_READ_BYTES // 4)
        path = await self._operated(operation, before)
        states = await asyncio.to_thread(_states, path)
        return {os.fsdecode(name): state.content for name, state in states.items() if state}

    async def _exchange(self, action: str, records: Iterable[bytes], *arguments: object) -> str:
        """Run an action with these records; return the path of the file with its answer."""
        stdin = await asyncio.to_thread(_file_in, self._folder, records)
        return await self._operated((action, self.directory, *arguments), stdin)

    async def _operated(self, arguments: tuple[object, ...], stdin: str) -> str:
        stdout = await asyncio.to_thread(_file_in, self._folder, ())
        operation = Operation(
            SOURCE,
            arguments,
            stdin=stdin,
            stdout=stdout,
            most_written_bytes=MOST_READ_BYTES,
        )
        await self._sandbox.operate(operation)
        await asyncio.to_thread(Path(stdin).unlink)
        return stdout


def saving(directory: str | None, most_bytes: int, path: str) -> Operation:
    """Return the operation for saving an agent's repository to a file of the service."""
    return Operation(
        SOURCE,
        ("save", directory, most_bytes),
        stdout=path,
        freezes=True,
        most_written_bytes=2 * most_bytes + (256 << 20),
    )


class SavedFiles(StoredFiles):
    """Files of a saved repository by path, with contents read from the disk on demand.

    `unchanged`: paths of files equal to the image's, without content here. `others`: paths of FIFOs, sockets
    and devices. Raises TooMuch for a repository beyond the bounds.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self._places: dict[bytes, tuple[bytes, int, int]] = {}
        self.unchanged: set[bytes] = set()
        self.others: list[bytes] = []
        self.environments: list[bytes] = []
        self.nested: list[bytes] = []
        for kind, name, offset, size in _scan(path):
            if kind in _MODES:
                self._places[name] = kind, offset, size
            elif kind == guest.UNCHANGED:
                self.unchanged.add(name)
            elif kind == guest.OTHER:
                self.others.append(name)
            elif kind == guest.ENVIRONMENT:
                self.environments.append(name)
            elif kind == guest.NESTED:
                self.nested.append(name)
            elif kind == guest.TOO_MUCH:
                raise TooMuch(self._content(offset, size).decode())

    def size(self, path: bytes) -> int:
        """Return the size of a file in bytes."""
        return self._places[path][2]

    def __contains__(self, path: object) -> bool:
        return path in self._places

    def mode(self, path: bytes) -> Mode:
        """See `change.StoredFiles`."""
        return _MODES[self._places[path][0]]

    def __getitem__(self, path: bytes) -> FileState:
        kind, offset, size = self._places[path]
        return FileState(_MODES[kind], self._content(offset, size))

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def _content(self, offset: int, size: int) -> bytes:
        return os.pread(self._file, size, offset)


def private_folder() -> str:
    """Make a folder for crossing files, readable for the service alone."""
    return tempfile.mkdtemp(prefix="proctor-repository-")


def remove_folder(folder: str) -> None:
    """Remove a folder of `private_folder`."""
    shutil.rmtree(folder, ignore_errors=True)


def _file_in(folder: str, records: Iterable[bytes]) -> str:
    descriptor, path = tempfile.mkstemp(dir=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(records)
    return path


def _record(kind: bytes, path: bytes, content: bytes = b"") -> bytes:
    return guest.HEAD.pack(kind, len(path), len(content)) + path + content


def _ordered(files: Mapping[bytes, FileState | None]) -> Iterator[bytes]:
    links = []
    written = []
    for path in files:
        mode = mode_of(files, path)
        if mode is None:
            yield _record(guest.DELETED, path)
        elif mode == "link":
            links.append(path)
        else:
            written.append(path)
    for path in (*written, *links):
        state = files[path]
        assert state is not None
        yield _record(_KINDS[state.mode], path, state.content)


def _scan(path: str) -> Iterator[tuple[bytes, bytes, int, int]]:
    """Yield kind, path, and place and size of the content of each record of a file."""
    with Path(path).open("rb") as file:
        while head := file.read(guest.HEAD.size):
            if len(head) < guest.HEAD.size:
                raise FileRefused("the files of the repository were cut")
            kind, path_bytes, content_bytes = guest.HEAD.unpack(head)
            name = file.read(path_bytes)
            offset = file.tell()
            file.seek(content_bytes, os.SEEK_CUR)
            yield kind, name, offset, content_bytes


def _sizes(path: str) -> tuple[dict[bytes, int], frozenset[bytes]]:
    found, environments = {}, set()
    with Path(path).open("rb") as file:
        for kind, name, offset, size in _scan(path):
            if kind == guest.ENVIRONMENT:
                environments.add(name)
            elif kind in _MODES:
                found[name] = int.from_bytes(os.pread(file.fileno(), size, offset), "big")
    Path(path).unlink()
    return found, frozenset(environments)


def _states(path: str) -> dict[bytes, FileState | None]:
    found: dict[bytes, FileState | None] = {}
    with Path(path).open("rb") as file:
        for kind, name, offset, size in _scan(path):
            content = os.pread(file.fileno(), size, offset)
            found[name] = FileState(_MODES[kind], content) if kind in _MODES else None
    Path(path).unlink()
    return found
