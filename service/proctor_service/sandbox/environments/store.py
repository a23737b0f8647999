"""Built environments in folders that are named by their contents.

    FOLDER/KEY/venv              virtual environment
    FOLDER/KEY/manifest.json     its requirements, interpreter, packages and time
    FOLDER/KEY/files.json        size of each file, to find damage
    FOLDER/KEY.RANDOM.part/      an environment during its build, or during its removal
    FOLDER/locks/KEY

The key is a digest of the requirements, the interpreter and the platform, so environments with the same
packages share a folder. A folder gets its final name when it is complete, and is never changed
afterwards. All functions block: builds for minutes, others for as long as interpreters take to start.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from proctor_service.errors import StartError
from proctor_service.sandbox.environments import locks
from proctor_service.sandbox.environments.built import (
    BuiltEnvironment,
    damage_of,
    from_folder,
    from_interpreter,
    interpreter_of,
    preload_problems_in,
)
from proctor_service.sandbox.environments.interpreters import Python, find_interpreter
from proctor_service.sandbox.environments.manifest import (
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
from proctor_service.sandbox.environments.packages import (
    Progress,
    import_problems,
    install,
    installed_packages,
    preload_problems,
)
from proctor_service.settings import Settings
from proctor_service.settings.environments import Environment
from proctor_service.settings.state_folder import NoStateFolder, state_folder

_KEY = re.compile(r"[0-9a-f]{32}")
_FOLDER = re.compile(r"([0-9a-f]{32})(\.\w{1,16}\.part)?")
_FOLDER_MODE, _PARENT_MODE = 0o755, 0o700


@dataclass(frozen=True, slots=True)
class Entry:
    """A folder of the store. `manifest` is None for a folder that is incomplete or damaged."""

    key: str
    folder: Path
    manifest: Manifest | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """A folder that no environment uses. `is_busy`: it is in use or being built, and remains."""

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


class Store:
    """Environments in a folder. Several processes may use, build and prune at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def built(self, name: str, definition: Environment, default_python: Path) -> BuiltEnvironment:
        """Return an environment that was built before. Raises StartError; the message says why not."""
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
        """Build an environment, or check the one that was built before; return it.

        `progress` gets lines of text. `rebuild`: replace one that was built before. Raises
        StartError, and then leaves no new folder.
        """
        python = interpreter_of(name, definition, default_python)
        if not definition.requirements:
            _refuse(name, preload_problems(python.executable, definition.preload, definition.env))
            return from_interpreter(name, definition, python)
        key = key_of(definition, python)
        try:
            self._create()
            with locks.exclusive(self._lock(key), progress):
                self._remove_parts(key)
                folder = self.folder / key
                manifest = None if rebuild else read_manifest(folder)
                if manifest is None or damage_of(folder, definition, manifest):
                    manifest = self._build(key, name, definition, python, progress)
                else:
                    _refuse(name, preload_problems_in(folder, definition))
        except OSError as error:
            raise StartError(f"environment {name} cannot be built: {_reason(error)}") from None
        return from_folder(name, definition, python, folder, manifest)

    def check(self, name: str, definition: Environment, default_python: Path) -> list[str]:
        """Import the packages of a built environment again; return a text for each problem."""
        try:
            built = self.built(name, definition, default_python)
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
        """Keep `prune` and rebuilds from removing an environment. Raises StartError if it is gone."""
        if built.folder is None:
            yield
            return
        with ExitStack() as stack:
            try:
                is_there = stack.enter_context(locks.shared(built.folder))
            except OSError:
                is_there = False
            if not is_there:
                raise StartError(_not_built(built.name, "is not built"))
            yield

    def entries(self) -> list[Entry]:
        """Return all folders of finished environments. Raises StartError."""
        return [
            Entry(each.name, each, read_manifest(each), size_bytes(each))
            for each in self._folders()
            if _KEY.fullmatch(each.name)
        ]

    def used_keys(self, definitions: Iterable[Environment], default_python: Path) -> set[str]:
        """Return the keys of the folders that these environments use, for `prune`.

        Without its interpreter an environment uses all folders with the same requirements.
        """
        used = set()
        for definition in definitions:
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
        """Remove folders with other keys, and those of builds that were killed; return them.

        Folders in use, and those of a running build, remain. `dry_run`: remove nothing. Raises
        StartError.
        """
        unwanted: dict[str, list[Path]] = {}
        pruned: list[Pruned] = []
        try:
            for file in (self.folder / "locks").glob("*"):
                if _KEY.fullmatch(file.name):
                    unwanted[file.name] = []
            for folder in self._folders():
                match = _FOLDER.fullmatch(folder.name)
                if match is not None and folder.name not in keep:
                    unwanted.setdefault(match[1], []).append(folder)
            for key, folders in unwanted.items():
                pruned += self._prune(key, folders, dry_run)
        except OSError as error:
            raise StartError(f"{self.folder} cannot be pruned: {_reason(error)}") from None
        return pruned

    def _prune(self, key: str, folders: list[Path], dry_run: bool) -> Iterator[Pruned]:
        with locks.exclusive_if_free(self._lock(key)) as is_free:
            for folder in folders:
                manifest = read_manifest(folder)
                found = Pruned(
                    folder, size_bytes(folder), manifest.requirements if manifest else ()
                )
                with locks.unused(folder) as is_unused:
                    if not (is_free and is_unused):
                        yield Pruned(folder, found.size_bytes, found.requirements, is_busy=True)
                        continue
                    if not dry_run:
                        self._remove(folder)
                yield found
            if is_free and not dry_run and not (self.folder / key).exists():
                self._lock(key).unlink()

    def _build(
        self,
        key: str,
        name: str,
        definition: Environment,
        python: Python,
        progress: Progress,
    ) -> Manifest:
        """Fill a temporary folder, and give it its final name. The lock is held."""
        part = Path(tempfile.mkdtemp(prefix=f"{key}.", suffix=".part", dir=self.folder))
        try:
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
            os.sync()  # the name must not outlast a crash that the contents do not
            self._replace(part, key, name)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return manifest

    def _replace(self, part: Path, key: str, name: str) -> None:
        folder = self.folder / key
        if folder.exists():
            with locks.unused(folder) as is_unused:
                if not is_unused:
                    raise StartError(f"environment {name} is in use by a service: stop it first")
                self._remove(folder)
        part.rename(folder)

    def _remove(self, folder: Path) -> None:
        """Remove a folder; if that is interrupted, its name says that it is incomplete."""
        if _KEY.fullmatch(folder.name):
            part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=self.folder))
            folder = folder.rename(part)
        shutil.rmtree(folder)

    def _remove_parts(self, key: str) -> None:
        for each in self._folders():
            match = _FOLDER.fullmatch(each.name)
            if match is not None and match[1] == key and match[2]:
                shutil.rmtree(each, ignore_errors=True)

    def _create(self) -> None:
        self.folder.parent.mkdir(_PARENT_MODE, parents=True, exist_ok=True)
        if not self.folder.exists():
            self.folder.mkdir(exist_ok=True)
            self.folder.chmod(_FOLDER_MODE)
        (self.folder / "locks").mkdir(_PARENT_MODE, exist_ok=True)

    def _lock(self, key: str) -> Path:
        return self.folder / "locks" / key

    def _folders(self) -> list[Path]:
        try:
            return sorted(each for each in self.folder.iterdir() if each.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StartError(f"{self.folder} cannot be read: {_reason(error)}") from None

    def _why_missing(self, definition: Environment, python: Python) -> str:
        """Return a text that mentions an earlier interpreter of the same packages."""
        for each in self._folders():
            manifest = read_manifest(each) if _KEY.fullmatch(each.name) else None
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


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
