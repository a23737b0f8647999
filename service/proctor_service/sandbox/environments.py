"""Built environments as a backend sees them: their parts, their start, and the state of their files.

`features/environments` builds environments. A backend starts an environment with its first use, and
ends the environment after a time without use. If an environment's files go away under a running
service, its sandboxes fail correct programs, so their results are discarded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from proctor_service.errors import NotLayered, SandboxUnavailable, StartError
from proctor_service.settings import Settings
from proctor_service.settings.environments import Environment

_log = logging.getLogger(__name__)
_Contents = tuple[int, int, frozenset[str]]
"""Inode, time of the last change in ns, and the names in a folder."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ids:
    """User and group ids of an image on the host: `count` of them, from `first`."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Image:
    """An unpacked image.

    `digest`: of its manifest. `layers`: folders with its files, the topmost first, in the order of
    overlayfs. `holds`: files or folders which its sandboxes hold against removal. `variables`, `user`,
    `group`, `groups`, `workdir`: of its configuration. `programs`: names of all programs on its PATH.
    `python`: version of the interpreter `python3`, if able to judge Python code. `ids`: None if an
    ordinary user owns all files.
    """

    reference: str
    digest: str
    layers: tuple[Path, ...]
    variables: Mapping[str, str]
    user: int
    group: int
    groups: tuple[int, ...]
    workdir: str
    programs: tuple[str, ...]
    python: str | None
    ids: Ids | None
    holds: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class BuiltEnvironment:
    """An environment for use by sandboxes.

    `python`: interpreter of its virtual environment, or the interpreter itself without
    requirements. `packages`: version of each distribution, by normalized name. `digest`: changes
    with everything in the environment which may change a verdict; empty for an image that is not
    fetched. `folder`: its folder in the
    store, if any. `image`: its image, if any; then `python` is None, `version` its interpreter's,
    and `packages` empty. `remote_image`: reference of an image which Aviato fetches, otherwise
    unknown here. `is_awaited`: this machine fetches `remote_image` before the environment is used.
    """

    name: str
    definition: Environment
    python: Path | None
    version: str | None
    packages: Mapping[str, str]
    digest: str
    folder: Path | None = None
    image: Image | None = None
    remote_image: str = ""
    is_awaited: bool = False


Environments = Mapping[str, BuiltEnvironment]
"""Environments of a service by name, without the default."""

NO_ENVIRONMENTS: Environments = MappingProxyType({})

MakeLayer = Callable[[Path], Awaitable[bytes]]
"""Writes a layer of the image format, an archive of tar, to a new file; returns notes to keep with it."""


class DerivedEnvironment(NamedTuple):
    """Environment with one more layer. `notes`: what the maker of the layer has returned."""

    name: str
    notes: bytes


@runtime_checkable
class LayeredEnvironments(Protocol):
    """Environments of images, to which layers can be added."""

    async def derived(self, environment: str, key: str, make: MakeLayer) -> DerivedEnvironment:
        """Return an environment with another layer over an environment with an image.

        `key`: names the layer among the image's layers; the layer of a key is made once, and is removed
        after a long time without use. Raises SandboxUnavailable, NotLayered.
        """


@runtime_checkable
class ImagesByName(Protocol):
    """Environments made of images in registries."""

    def image_name(self, reference: str) -> str:
        """Return the name of an image's environment. Raises ValueError for a forbidden image."""

    def image_in(self, environment: str) -> str | None:
        """Return the name of the image by name in an environment, if any."""


HoldEnvironment = Callable[[str], AbstractAsyncContextManager[None]]
"""Context in which the environment with this name has all its files: an image by name is fetched first.

Raises UnknownEnvironment and SandboxUnavailable.
"""


def hold_nothing(_: str) -> AbstractAsyncContextManager[None]:
    """Return a context without effect, for environments with files always in place."""
    return nullcontext()


async def derived_from(
    environments: Environments, environment: str, key: str, make: MakeLayer
) -> DerivedEnvironment:
    """Return an environment with one more layer; see `LayeredEnvironments.derived`."""
    if not isinstance(environments, LayeredEnvironments):
        raise NotLayered(f"environment {environment}: nothing can be added to it here")
    return await environments.derived(environment, key, make)


def default_python(settings: Settings) -> Path:
    """Return the default interpreter of environments."""
    return settings.sandbox_python or Path(getattr(sys, "_base_executable", sys.executable))


@runtime_checkable
class ReplacedEnvironments(Protocol):
    """Environments; a file's environments may be replaced while in use."""

    listed: dict[str, BuiltEnvironment]

    def replace_listed(self, listed: Mapping[str, BuiltEnvironment]) -> set[str]:
        """Take other environments; return the names of new, removed and changed environments."""


@runtime_checkable
class TakesEnvironments(Protocol):
    """Backend with changeable environments."""

    def environments_changed(self, names: Collection[str], environments: Environments) -> None:
        """Start the next sandboxes of these names as `environments` has them; present ones stay."""


class Starts(Generic[K, T]):
    """Starts the sandboxes of a name, for example an environment, once for all waiting callers.

    `start` starts the sandboxes of a name. `failed` is called with the name and the error after a failed
    start.
    """

    def __init__(
        self,
        start: Callable[[K], Coroutine[Any, Any, T]],
        failed: Callable[[K, BaseException], None] = lambda name, error: None,
    ) -> None:
        self._start = start
        self._failed = failed
        self._tasks: dict[K, asyncio.Task[T]] = {}

    async def started(self, name: K) -> T:
        """Wait for the start of a name. Raises as `start` does, and SandboxUnavailable after
        `cancel`."""
        task = self._tasks.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._start(name))
            self._tasks[name] = task
            task.add_done_callback(lambda ended: self._note(name, ended))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise SandboxUnavailable("the service is stopping") from None

    async def cancel(self) -> None:
        """Cancel the starts, and wait for their end."""
        for task in self._tasks.values():
            task.cancel()
        await self.end()

    async def end(self) -> None:
        """Wait for the end of the starts."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _note(self, name: K, task: asyncio.Task[T]) -> None:
        del self._tasks[name]
        failure = None if task.cancelled() else task.exception()  # all callers may have left
        if failure is not None:
            self._failed(name, failure)
            extra = {"environment": name, "why": str(failure)}
            _log.warning("an environment did not start", extra=extra)


@dataclass(frozen=True, slots=True)
class WatchedFolders:
    """Contents of folders at the same moment: inode, time of the last change, and names of each."""

    folders: Sequence[Path]
    seen: Mapping[Path, _Contents]

    @classmethod
    def of(cls, folders: Sequence[Path]) -> WatchedFolders:
        """Look into the folders, and into the folders directly in them; blocks. Raises OSError."""
        seen = {}
        for folder in folders:
            seen[folder] = _contents_of(folder)
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        seen[Path(entry.path)] = _contents_of(Path(entry.path))
        return cls(folders, seen)

    def are_whole(self) -> bool:
        """Return False if a folder, or an entry of a folder, is gone or replaced;
        blocks."""
        for path, (inode, changed_at, names) in self.seen.items():
            try:
                now = path.stat()
                if now.st_ino != inode:
                    return False
                if now.st_mtime_ns != changed_at and not names <= _names(path):
                    return False
            except OSError:
                return False
        return True

    def renewed(self) -> WatchedFolders:
        """Return these folders as they are now; blocks. Raises StartError for damaged ones.

        Folders built again meanwhile have other inodes, and are as good as the first.
        """
        if self.are_whole():
            return self
        try:
            if self.folders[0].stat().st_ino != self.seen[self.folders[0]][0]:
                return self.of(self.folders)
        except OSError:
            pass
        raise StartError(f"files in {self.folders[0]} are gone: build it again")


def watched(environments: Environments) -> dict[str, WatchedFolders]:
    """Return the folders of each environment with folders; blocks. Raises StartError."""
    found = {}
    for name, built in environments.items():
        if (folders := watched_folders(name, built)) is not None:
            found[name] = folders
    return found


def watched_folders(name: str, built: BuiltEnvironment) -> WatchedFolders | None:
    """Return the folders of an environment, if any; blocks. Raises StartError."""
    folders = _folders_of(built)
    try:
        return WatchedFolders.of(folders) if folders else None
    except OSError as error:
        raise StartError(f"environment {name}: its files cannot be read: {error}") from None


def _folders_of(built: BuiltEnvironment) -> tuple[Path, ...]:
    if built.image is not None:
        inside = [each / "usr" for each in built.image.layers]
        folders = [each for each in inside if each.is_dir() and not each.is_symlink()]
        return (*built.image.layers, *folders)
    if built.folder is not None:
        return (built.folder, *sorted(built.folder.glob("venv/lib/python*/site-packages")))
    return ()


def _contents_of(folder: Path) -> _Contents:
    about = folder.stat()
    return about.st_ino, about.st_mtime_ns, _names(folder)


def _names(folder: Path) -> frozenset[str]:
    with os.scandir(folder) as entries:
        return frozenset(entry.name for entry in entries)
