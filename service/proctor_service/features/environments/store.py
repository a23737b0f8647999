"""Built environments in folders named by their contents.

    FOLDER/KEY/venv              virtual environment
    FOLDER/KEY/manifest.json     its requirements, interpreter, packages and time
    FOLDER/KEY/files.json        size of each file, to find damage
    FOLDER/KEY/image.json        configuration of an image, and the names of its layers (`images.py`)
    FOLDER/images/               layers of images (`layers.py`)
    FOLDER/KEY.RANDOM.part/      an environment during its build, or during its removal
    FOLDER/locks/KEY

The key is a digest of the requirements, the interpreter and the platform, so environments with the
same packages share a folder. A folder gets its final name when complete, and is never changed
afterwards. All functions block: builds for minutes, the rest for the time of an interpreter's
start.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import Timeout

from proctor_service.errors import StartError
from proctor_service.features.environments.built import (
    damage_of,
    from_folder,
    from_image,
    from_interpreter,
    interpreter_of,
    preload_problems_in,
)
from proctor_service.features.environments.folders import Folders, reason, shared, unused
from proctor_service.features.environments.images import (
    USED,
    build_image,
    key_of_image,
    read_image,
    used_layers,
)
from proctor_service.features.environments.interpreters import Python, find_interpreter
from proctor_service.features.environments.layers import Layers, Room
from proctor_service.features.environments.manifest import (
    Manifest,
    key_of,
    make_readable,
    python_in,
    read_manifest,
    requirements_of,
    size_bytes,
    write_file_list,
    write_manifest,
)
from proctor_service.features.environments.packages import (
    Progress,
    import_problems,
    install,
    installed_packages,
    preload_problems,
)
from proctor_service.sandbox.environments import BuiltEnvironment
from proctor_service.settings import Settings
from proctor_service.settings.environments import Environment
from proctor_service.settings.state_folder import NoStateFolder, state_folder


@dataclass(frozen=True, slots=True)
class StoredEnvironment:
    """A folder of the store. `manifest` is None for an incomplete or damaged folder."""

    key: str
    folder: Path
    manifest: Manifest | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """An unused folder. `is_busy`: a service or a build has the folder, which remains."""

    folder: Path
    size_bytes: int
    requirements: tuple[str, ...]
    is_busy: bool = False


def environments_folder(settings: Settings) -> Path:
    """Return the folder of the store. Raises StartError without a home."""
    if settings.environments_folder is not None:
        return settings.environments_folder.absolute()
    try:
        return state_folder() / "environments"
    except NoStateFolder as error:
        raise StartError(f"{error}; set PROCTOR_ENVIRONMENTS_FOLDER") from None


class EnvironmentStore:
    """Environments in a folder. Several processes may use, build and prune at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._folders = Folders(folder)
        self._layers = Layers(folder)

    def built(self, name: str, definition: Environment, default_python: Path) -> BuiltEnvironment:
        """Return a built environment. Raises StartError with the reason if missing or damaged."""
        if definition.image:
            image = read_image(self.folder / key_of_image(definition.image), self._layers)
            if image is None:
                raise StartError(_not_built(name, "is not built"))
            return from_image(name, definition, image)
        python = interpreter_of(name, definition, default_python)
        if not definition.requirements:
            return from_interpreter(name, definition, python)
        key = key_of(definition, python)
        folder = self.folder / key
        manifest = read_manifest(folder)
        if manifest is None:
            why = "is damaged" if folder.exists() else self._why_missing(definition, python)
            raise StartError(_not_built(name, why))
        return from_folder(name, definition, python, folder, manifest)

    def build(
        self,
        name: str,
        definition: Environment,
        default_python: Path,
        progress: Progress = lambda line: None,
        rebuild: bool = False,
    ) -> BuiltEnvironment:
        """Build an environment, or check a built one; return the environment.

        `progress` gets lines of text. `rebuild`: replace a built environment. Raises StartError,
        and then removes a new folder.
        """
        if definition.image:
            try:
                image = build_image(
                    self._folders, self._layers, name, definition.image, progress, rebuild
                )
            except OSError as error:
                raise StartError(f"environment {name} cannot be built: {reason(error)}") from None
            return from_image(name, definition, image)
        python = interpreter_of(name, definition, default_python)
        if not definition.requirements:
            _refuse(name, preload_problems(python.executable, definition.preload, definition.env))
            return from_interpreter(name, definition, python)
        key = key_of(definition, python)
        try:
            with self._folders.building(key, progress):
                folder = self.folder / key
                manifest = None if rebuild else read_manifest(folder)
                if manifest is None or damage_of(folder, definition, manifest):
                    manifest = self._build(key, name, definition, python, progress)
                else:
                    _refuse(name, preload_problems_in(folder, definition))
        except OSError as error:
            raise StartError(f"environment {name} cannot be built: {reason(error)}") from None
        return from_folder(name, definition, python, folder, manifest)

    def fetch(self, name: str, progress: Progress, room: Room) -> None:
        """Fetch an image by name, unless present.

        `room` is called with the bytes to be written, and raises StartError for lack of room. Raises
        StartError, OSError.
        """
        build_image(self._folders, self._layers, name, name, progress, False, room)

    def check(self, name: str, definition: Environment, default_python: Path) -> list[str]:
        """Import the packages of a built environment again; return a text for each problem."""
        try:
            built = self.built(name, definition, default_python)
            if built.python is None:
                return []
            if built.folder is None:
                return preload_problems(built.python, definition.preload, definition.env)
            manifest = read_manifest(built.folder)
            if manifest is None:
                return [_not_built(name, "is not built")]
            damage = damage_of(built.folder, definition, manifest)
            return damage or preload_problems_in(built.folder, definition)
        except StartError as error:
            return [str(error)]

    @contextmanager
    def in_use(self, built: BuiltEnvironment) -> Iterator[None]:
        """Protect an environment from `prune` and rebuilds. Raises StartError if its folder is gone."""
        if built.folder is None:
            yield
            return
        with ExitStack() as stack:
            try:
                is_there = stack.enter_context(shared(built.folder))
            except OSError:
                is_there = False
            if not is_there:
                raise StartError(_not_built(built.name, "is not built"))
            yield

    def entries(self) -> list[StoredEnvironment]:
        """Return all folders of finished environments. Raises StartError."""
        return [
            StoredEnvironment(each.name, each, read_manifest(each), self.size_bytes(each))
            for each in self._folders.finished()
        ]

    def size_bytes(self, folder: Path) -> int:
        """Return the size of an environment's folder; of an image with all of its layers."""
        layers = (self._layers.read(name) for name in used_layers(folder))
        return size_bytes(folder) + sum(layer.bytes for layer in layers if layer is not None)

    def used_keys(self, definitions: Iterable[Environment], default_python: Path) -> set[str]:
        """Return the keys of the folders of these environments, for `prune`.

        Without its interpreter an environment uses all folders with the same requirements.
        """
        used = set()
        for definition in definitions:
            if definition.image:
                used.add(key_of_image(definition.image))
            if not definition.requirements:
                continue
            try:
                python = find_interpreter(definition.python, default_python)
                used.add(key_of(definition, python))
            except StartError:
                same = requirements_of(definition)
                used |= {
                    e.key for e in self.entries() if e.manifest and e.manifest.requirements == same
                }
        return used

    def prune(self, keep: Collection[str], dry_run: bool = False) -> list[Pruned]:
        """Remove folders with other keys, and folders of killed builds; return all removed ones.

        Images by name, folders in use, and folders of a running build remain. `dry_run`: only return
        them. Raises StartError.
        """

        def remains(name: str) -> bool:
            return name in keep or (self.folder / name / USED).exists()

        pruned: list[Pruned] = []
        try:
            for key, folders in self._folders.unwanted(remains).items():
                pruned += self._prune(key, folders, dry_run)
            pruned += self._prune_layers(
                {each.folder for each in pruned if not each.is_busy}, dry_run
            )
        except OSError as error:
            raise StartError(f"{self.folder} cannot be pruned: {reason(error)}") from None
        return pruned

    def remove_unfinished(self) -> None:
        """Remove remains of killed builds and fetches. Raises StartError, OSError."""
        for folder in self._folders.all():
            key, _, part = folder.name.partition(".")
            if part:
                with suppress(Timeout), self._folders.lock(key).acquire(blocking=False):
                    shutil.rmtree(folder, ignore_errors=True)
        self._layers.remove_parts()

    def _prune_layers(self, gone: Collection[Path], dry_run: bool) -> Iterator[Pruned]:
        """Remove the layers without an image; `gone`: folders that a dry run would remove."""
        if not self._layers.folder.is_dir():  # without any, the store gets no folder for their lock
            return
        with self._layers.changing():
            left = [each for each in self._folders.all() if each not in gone]
            used = {name for each in left for name in used_layers(each)}
            size = self._layers.remove_unused(used, dry_run)
        self._layers.remove_parts()
        if size:
            yield Pruned(self._layers.folder, size, ("layers without an image",))

    def _prune(self, key: str, folders: list[Path], dry_run: bool) -> Iterator[Pruned]:
        lock = self._folders.lock(key)
        with suppress(Timeout):
            lock.acquire(blocking=False)
        try:
            for folder in folders:
                found = Pruned(folder, size_bytes(folder), self._contents(folder))
                with unused(folder) as is_unused:
                    if not (lock.is_locked and is_unused):
                        yield replace(found, is_busy=True)
                        continue
                    if not dry_run:
                        self._folders.remove(folder)
                yield found
            if lock.is_locked and not dry_run and not (self.folder / key).exists():
                Path(lock.lock_file).unlink()
        finally:
            lock.release()

    def _contents(self, folder: Path) -> tuple[str, ...]:
        """Return the requirements in a folder, or its image."""
        manifest, image = read_manifest(folder), read_image(folder, self._layers)
        return manifest.requirements if manifest else (image.reference,) if image else ()

    def _build(
        self,
        key: str,
        name: str,
        definition: Environment,
        python: Python,
        progress: Progress,
    ) -> Manifest:
        """Fill a temporary folder, and then rename the folder. The lock is held."""
        with self._folders.filling(key, name) as part:
            requirements = requirements_of(definition)
            try:
                install(python.base, requirements, part / "venv", progress)
                packages = installed_packages(python_in(part))
            except StartError as error:
                raise StartError(f"environment {name} cannot be built: {error}") from None
            progress("importing the packages")
            problems = import_problems(python_in(part), requirements, packages, definition.env)
            _refuse(name, problems or preload_problems_in(part, definition))
            manifest = Manifest(
                requirements=requirements,
                interpreter=str(python.base),
                version=python.version,
                abi=python.abi,
                packages={each: packages[each].version for each in sorted(packages)},
                built_at=time.time(),
            )
            write_file_list(part)
            write_manifest(part, manifest)
            make_readable(part)
        return manifest

    def _why_missing(self, definition: Environment, python: Python) -> str:
        """Return the reason, with an earlier interpreter of the same packages if one exists."""
        for each in self._folders.finished():
            manifest = read_manifest(each)
            if manifest is not None and manifest.requirements == requirements_of(definition):
                before = Path(manifest.interpreter)
                if before == python.base or not before.exists():
                    now = "is gone" if not before.exists() else f"is now {python.version}"
                    return f"was built with {before} {manifest.version}, which {now}"
                return (
                    f"was built with {before} {manifest.version}, but its interpreter is now "
                    f"{python.base} {python.version}"
                )
        return "is not built"


def _refuse(name: str, problems: list[str]) -> None:
    if problems:
        raise StartError(f"environment {name} cannot be used: " + "\n".join(problems))


def _not_built(name: str, why: str) -> str:
    return f"environment {name} {why}: run `proctor env build {name}`"
