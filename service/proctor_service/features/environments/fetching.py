"""Images by name, fetched while others are judged: a single fetch for all waiters of an image.

A fetch has a thread of its own, since it takes minutes. Each waiter holds the image from the end of the fetch
on, so the image stays.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proctor_client.wire import FetchedImage
from proctor_service.errors import (
    Failure,
    SandboxUnavailable,
    StartError,
    UnknownEnvironment,
)
from proctor_service.features.environments.bound import ImageBound, NoRoom, TooLarge
from proctor_service.features.environments.by_name import KnownEnvironments
from proctor_service.features.environments.folders import reason, shared
from proctor_service.features.environments.images import (
    USED,
    RegistryDown,
    UnknownImage,
    key_of_image,
)
from proctor_service.features.environments.layers import DamagedImage
from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.sandbox.environments import Starts

_log = logging.getLogger(__name__)
_FETCHES = 3
"""Fetches at once: more share the same network and disk."""
_PAUSES_SECONDS = (1.0, 4.0, 10.0)
"""Between the attempts at a registry that does not answer."""
_REMEMBER_SECONDS = 30.0
"""For this time an image that its registry does not have is an error at once."""
_WAITS, _WAIT_SECONDS = 10, 1.0
"""For room, where all images are in use."""
_MOST_REMEMBERED = 10_000
_TOTAL = re.compile(r"fetching (\d+) bytes")  # "fetching 1234 bytes"
_UNPACKING = re.compile(r"unpacking layer \d+ of \d+")  # "unpacking layer 1 of 9"

Ended = Callable[[str], None]
"""Called with the result of a fetch: `fetched`, `unknown`, `failed`."""


@dataclass(slots=True)
class Progress:
    """Progress of a fetch. `total_bytes`: None until known. `state`: of the wire's `FetchedImage`."""

    state: Literal["fetching", "unpacking"] = "fetching"
    total_bytes: int | None = None

    def hear(self, line: str) -> None:
        """Take a line of the fetch."""
        if (match := _TOTAL.fullmatch(line)) is not None:
            self.total_bytes = int(match[1])
        elif _UNPACKING.fullmatch(line):
            self.state = "unpacking"


class ImageFetches:
    """Fetches images by name into the store of `environments`."""

    def __init__(
        self, environments: KnownEnvironments, bound: ImageBound, ended: Ended = lambda result: None
    ) -> None:
        self._environments = environments
        self._folder = environments.folder
        self._bound = bound
        self._ended = ended
        self._starts = Starts(self._fetch)
        self._turns = asyncio.Semaphore(_FETCHES)
        self._unknown: dict[str, tuple[float, UnknownEnvironment]] = {}
        self.end_idle: Callable[[], None] = lambda: None
        self.fetching: dict[str, Progress] = {}
        self.waiting: Counter[str] = Counter()
        self._held: dict[str, ExitStack] = {}
        self._holders: Counter[str] = Counter()
        self.size_bytes = 0  # of the store, after the last fetch

    @asynccontextmanager
    async def hold(self, environment: str) -> AsyncIterator[None]:
        """Hold the image of an environment; fetch a missing image first.

        Raises UnknownEnvironment, SandboxUnavailable.
        """
        name = self._environments.image_in(environment)
        if name is None:
            yield
            return
        if not self._environments.allows(name):
            raise SandboxUnavailable(f"environment {name} is gone")
        while not self._take(name):
            await self._wait(name)
        try:
            yield
        finally:
            self._release(name)

    def _take(self, name: str) -> bool:
        """Hold an image, with one descriptor for all holders; return False without the image."""
        folder = self._folder / key_of_image(name)
        if name not in self._held:
            with ExitStack() as stack:
                if not _hold(folder, stack):
                    return False
                self._held[name] = stack.pop_all()
        self._holders[name] += 1
        return True

    def _release(self, name: str) -> None:
        self._holders[name] -= 1
        if not self._holders[name]:
            del self._holders[name]
            self._held.pop(name).close()

    async def open(self) -> None:
        """Remove remains of killed fetches, and measure the store."""

        def clean() -> None:
            with suppress(StartError, OSError):
                EnvironmentStore(self._folder).remove_unfinished()
                self.size_bytes = self._bound.size_bytes()

        await asyncio.to_thread(clean)

    async def close(self) -> None:
        """End the fetches."""
        await self._starts.cancel()

    async def _wait(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        earlier = self._unknown.get(name)
        if earlier is not None and loop.time() < earlier[0]:
            raise UnknownEnvironment(earlier[1].message)
        self.waiting[name] += 1
        try:
            await self._starts.started(name)
        finally:
            self.waiting[name] -= 1
            if not self.waiting[name]:
                del self.waiting[name]

    async def _fetch(self, name: str) -> None:
        """Fetch an image. Raises UnknownEnvironment, SandboxUnavailable."""
        progress = self.fetching[name] = Progress()
        try:
            async with self._turns:
                await self._fetch_with_attempts(name, progress)
        except UnknownEnvironment as error:
            until = asyncio.get_running_loop().time() + _REMEMBER_SECONDS
            self._unknown[name] = (until, error)
            if len(self._unknown) > _MOST_REMEMBERED:
                del self._unknown[next(iter(self._unknown))]
            self._ended("unknown")
            raise
        except Failure:
            self._ended("failed")
            raise
        else:
            self._unknown.pop(name, None)
            self._ended("fetched")
        finally:
            del self.fetching[name]

    async def _fetch_with_attempts(self, name: str, progress: Progress) -> None:
        for pause_seconds in (*_PAUSES_SECONDS, None):
            try:
                await self._fetch_with_room(name, progress)
            except (UnknownImage, DamagedImage, TooLarge) as error:
                raise UnknownEnvironment(str(error)[:2000]) from None
            except RegistryDown as error:
                if pause_seconds is None:
                    raise SandboxUnavailable(str(error)[:2000]) from None
                _log.warning("a registry does not answer", extra={"image": name, "why": str(error)})
                await asyncio.sleep(pause_seconds)
            except StartError as error:
                raise SandboxUnavailable(str(error)[:2000]) from None
            except OSError as error:
                raise SandboxUnavailable(f"{name} cannot be fetched: {reason(error)}") from None
            else:
                _log.info("an image is fetched", extra={"image": name})
                return

    async def _fetch_with_room(self, name: str, progress: Progress) -> None:
        """Fetch an image; where room is lacking, end the idle environments and try again."""
        for _ in range(_WAITS):
            try:
                await _in_thread(lambda: self._fetch_once(name, progress))
            except NoRoom:
                self.end_idle()
                await asyncio.sleep(_WAIT_SECONDS)
            else:
                return
        await _in_thread(lambda: self._fetch_once(name, progress))

    def _fetch_once(self, name: str, progress: Progress) -> None:
        """Fetch a missing image; blocks. Raises StartError, OSError."""
        EnvironmentStore(self._folder).fetch(name, progress.hear, self._bound.room())
        (self._folder / key_of_image(name) / USED).touch()
        self.size_bytes = self._bound.size_bytes()

    def list_images(self) -> list[FetchedImage]:
        """Return the images in fetching, and the images of the store; blocks."""
        found = [
            FetchedImage(
                image=name,
                state=progress.state,
                bytes=self._fetched_bytes(name),
                total_bytes=progress.total_bytes,
                waiting=self.waiting[name],
            )
            for name, progress in sorted(self.fetching.items())
        ]
        for reference, size_bytes in self._bound.images():
            if reference not in self.fetching:
                found.append(FetchedImage(image=reference, state="ready", bytes=size_bytes))
        return found

    def _fetched_bytes(self, name: str) -> int:
        """Return the bytes of an image on the disk during its fetch."""
        files = self._folder.glob(f"{key_of_image(name)}.*.part/layout/blobs/sha256/*")
        total = 0
        for file in files:
            with suppress(OSError):
                total += file.stat().st_blocks * 512
        return total


def _hold(folder: Path, held: ExitStack) -> bool:
    """Hold the folder of an image; return False without the folder."""
    if not (folder / "image.json").exists():
        return False
    try:
        if not held.enter_context(shared(folder)):
            return False
        (folder / USED).touch()
    except OSError:
        return False
    return True


async def _in_thread(work: Callable[[], None]) -> None:
    """Do blocking work in a thread of its own, so that the service can end without waiting for the work."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(finish, error)
        except RuntimeError:
            return  # the service has ended

    threading.Thread(target=run, name="image fetch", daemon=True).start()
    await done
