"""The environments of a service: the environments of its file, and images by name.

Every process of a service on this machine finds an image by name, and a layer derived from an image, in the
store. So a judge process needs no list of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from weakref import WeakValueDictionary

from proctor_service.errors import NotLayered, SandboxUnavailable, StartError
from proctor_service.features.environments.bound import ImageBound
from proctor_service.features.environments.built import from_image
from proctor_service.features.environments.derived import DerivedLayer
from proctor_service.features.environments.folders import reason
from proctor_service.features.environments.images import DERIVED, key_of_image, read_image
from proctor_service.features.environments.layers import Layers
from proctor_service.features.environments.manifest import digest_of
from proctor_service.sandbox.environments import BuiltEnvironment, DerivedEnvironment, MakeLayer
from proctor_service.settings.environments import DEFAULT, IMAGE, Environment

_DERIVED = re.compile(r"(.+)\+([0-9a-f]{16})")  # "debian+" and "0f" eight times
_LONGEST_NAME = 1000
_MOST_REMEMBERED = 10_000
_File = tuple[int, int]
"""Inode of a file, and the time of its last change in ns."""


def full_name(reference: str) -> str:
    """Return the name of an image with registry and tag, as `docker.io/library/debian:12`.

    Raises ValueError for a malformed name.
    """
    name = reference.removeprefix("docker://")
    wrong = not IMAGE.fullmatch(name) or ".." in name.split("/") or "+" in name
    if wrong or len(name) > _LONGEST_NAME:
        raise ValueError(
            f"{reference[:200]!r} is no image: a reference such as registry/name:tag, oci:/path[:tag] or "
            "docker-archive:/path"
        )
    if name.startswith(("oci:", "docker-archive:")):
        return name
    first, _, rest = name.partition("/")
    if not rest:
        name = f"docker.io/library/{name}"
    elif not {".", ":"}.intersection(first) and first != "localhost":
        name = f"docker.io/{name}"
    last = name.rpartition("/")[2]
    return name if {":", "@"}.intersection(last) else f"{name}:latest"


def _matches(name: str, pattern: str) -> bool:
    """Return True if a pattern allows a name: `*` for a registry matches neither slashes nor files of this
    machine.
    """
    files = ("oci:", "docker-archive:")
    if name.startswith(files) != pattern.startswith(files):
        return False
    registry, slash, rest = pattern.partition("/")
    if pattern.startswith(files) or not slash:
        return fnmatchcase(name, pattern)
    own_registry, _, own_rest = name.partition("/")
    return fnmatchcase(own_registry, registry) and fnmatchcase(own_rest, rest)


@dataclass(frozen=True, slots=True)
class _Remembered:
    image: _File
    built: BuiltEnvironment


@dataclass(frozen=True)
class KnownEnvironments(Mapping[str, BuiltEnvironment]):
    """Environments of the file, images by name, and layers derived from either.

    `listed`: environments of the file; iteration yields these alone. `patterns`: names of allowed images, in
    the syntax of fnmatch; `__getitem__` takes full names. Before its fetch, an image has neither an `image`
    nor a `python`. `most_bytes`: of the store with derived layers; None: unbounded.
    """

    listed: dict[str, BuiltEnvironment]
    folder: Path
    patterns: tuple[str, ...] = ()
    most_bytes: int | None = None
    _remembered: dict[str, _Remembered] = field(default_factory=dict, repr=False, compare=False)
    _making: WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=WeakValueDictionary, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[object, ...]:
        return KnownEnvironments, (self.listed, self.folder, self.patterns, self.most_bytes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.listed)

    def __len__(self) -> int:
        return len(self.listed)

    def __contains__(self, name: object) -> bool:
        """Return True for names allowed in requests; derived layers are excluded."""
        return name in self.listed or (isinstance(name, str) and self.allows(name))

    def __getitem__(self, name: str) -> BuiltEnvironment:
        if len(name) > _LONGEST_NAME:
            raise KeyError(name[:100])
        found = self.listed.get(name)
        if found is not None:
            return found
        if (match := _DERIVED.fullmatch(name)) is not None:
            return self._with_layer(self[match[1]], name, match[2])
        if not self.allows(name):
            raise KeyError(name)
        return self._image(name)

    @property
    def bound(self) -> ImageBound | None:
        """Return the bound of the store, None if unbounded; without `patterns`, the file's images come on
        top.
        """
        if self.most_bytes is None:
            return None
        if self.patterns:
            return ImageBound(self.folder, self.most_bytes)
        layers = Layers(self.folder)
        images = [each.image.layers for each in self.listed.values() if each.image is not None]
        names = {place.name for places in images for place in places}
        found = [layer for name in names if (layer := layers.read(name)) is not None]
        return ImageBound(self.folder, self.most_bytes + sum(each.bytes for each in found))

    def allows(self, name: str) -> bool:
        """Return True for the full name of an image allowed by the operator."""
        if not any(_matches(name, pattern) for pattern in self.patterns):
            return False
        try:
            return full_name(name) == name
        except ValueError:
            return False

    def replace_listed(self, listed: Mapping[str, BuiltEnvironment]) -> set[str]:
        """Replace the environments of the file; return the names of new, removed and changed environments."""
        names = {
            name for name in {*self.listed, *listed} if self.listed.get(name) != listed.get(name)
        }
        self.listed.clear()
        self.listed.update(listed)
        return names

    def image_name(self, reference: str) -> str:
        """Return the name of an image's environment. Raises ValueError for a forbidden image."""
        name = full_name(reference)
        if not self.allows(name):
            patterns = ", ".join(self.patterns) or "none"
            raise ValueError(f"{name} is not allowed here, only: {patterns}")
        return name

    def image_in(self, environment: str) -> str | None:
        """Return the name of the image by name in an environment, or None."""
        while (match := _DERIVED.fullmatch(environment)) is not None:
            environment = match[1]
        return None if environment in self.listed or environment == DEFAULT else environment

    async def derived(self, environment: str, key: str, make: MakeLayer) -> DerivedEnvironment:
        """Return an environment with one more layer; see `LayeredEnvironments`."""
        built = self.get(environment)
        if built is None or built.image is None or built.folder is None:
            raise NotLayered(f"environment {environment}: it has no image to build on")
        layer = DerivedLayer(self.folder, built.folder, built.image, key, self.bound)
        lock = self._making.setdefault(layer.name, asyncio.Lock())
        async with lock:
            try:
                notes = await layer.once(make)
            except (OSError, StartError) as error:
                why = reason(error) if isinstance(error, OSError) else str(error)
                raise SandboxUnavailable(
                    f"environment {environment}: no layer can be added: {why}"
                ) from None
        return DerivedEnvironment(f"{environment}+{layer.name}", notes)

    def _image(self, name: str) -> BuiltEnvironment:
        definition = Environment(image=name)
        folder = self.folder / key_of_image(name)
        try:
            about = (folder / "image.json").stat()
        except OSError:
            self._remembered.pop(name, None)
            return not_fetched(name, definition)
        now = (about.st_ino, about.st_mtime_ns)
        found = self._remembered.get(name)
        if found is None or found.image != now:
            image = read_image(folder, Layers(self.folder))
            if image is None:
                return not_fetched(name, definition)
            built = from_image(name, definition, image)
            found = self._remembered[name] = _Remembered(now, built)
            if len(self._remembered) > _MOST_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        return found.built

    def _with_layer(self, built: BuiltEnvironment, name: str, layer: str) -> BuiltEnvironment:
        image = built.image
        if image is None or built.folder is None:
            raise KeyError(name)
        mark = built.folder / DERIVED / layer
        if not mark.exists():
            raise KeyError(name)
        layers = (image.layers[0].with_name(layer), *image.layers)
        image = replace(image, layers=layers, holds=(*image.holds, mark))
        return replace(built, name=name, image=image, digest=digest_of([built.digest, layer]))


def not_fetched(name: str, definition: Environment) -> BuiltEnvironment:
    """Return the environment of an image by name before its fetch."""
    return BuiltEnvironment(
        name, definition, None, None, {}, "", remote_image=name, is_awaited=True
    )


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return patterns of names of images. Raises StartError for an empty pattern."""
    if any(not each.strip() for each in patterns):
        raise StartError("PROCTOR_IMAGES: a pattern is empty")
    return tuple(patterns)
