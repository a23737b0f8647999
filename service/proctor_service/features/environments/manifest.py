"""Folders of the store: key, manifest, size and modes."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from proctor_service.features.environments.interpreters import Python
from proctor_service.settings.environments import Environment

_FORMAT = 1
_FILE, _FILE_LIST = "manifest.json", "files.json"
_KEY_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a built folder.

    `interpreter`: its real path; `version` and `abi` are its own. `packages`: version of each
    distribution, by normalized name. `built_at`: Unix time.
    """

    requirements: tuple[str, ...]
    interpreter: str
    version: str
    abi: str
    packages: Mapping[str, str]
    built_at: float


def key_of(definition: Environment, python: Python) -> str:
    """Return the name of the folder for these requirements and this interpreter."""
    parts = [_FORMAT, str(python.base), python.version, python.abi, *requirements_of(definition)]
    return digest_of(parts)[:_KEY_CHARACTERS]


def digest_of(parts: object) -> str:
    """Return the SHA-256 of a value as JSON, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def requirements_of(definition: Environment) -> tuple[str, ...]:
    """Return the requirements in an order of their own, each once."""
    return tuple(sorted({" ".join(each.split()) for each in definition.requirements}))


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a complete folder, or None."""
    try:
        read = json.loads((folder / _FILE).read_text())
        if read.pop("format") != _FORMAT or not python_in(folder).exists():
            return None
        manifest = Manifest(**{**read, "requirements": tuple(read["requirements"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return manifest if isinstance(manifest.packages, dict) else None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder. Raises OSError."""
    text = json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=1)
    (folder / _FILE).write_text(text + "\n")


def write_file_list(folder: Path) -> None:
    """Write the size of each file, for `file_problems`. Raises OSError."""
    (folder / _FILE_LIST).write_text(json.dumps(_file_sizes(folder), indent=0) + "\n")


def file_problems(folder: Path) -> list[str]:
    """Return a text for files changed, added or removed since the build, with the first."""
    try:
        expected = json.loads((folder / _FILE_LIST).read_text())
        found = _file_sizes(folder)
    except (OSError, ValueError) as error:
        return [f"its files cannot be compared with those of the build: {error}"]
    names = sorted(set(found) | set(expected))
    changed = [name for name in names if found.get(name) != expected.get(name)]
    return (
        [f"files changed since the build: {len(changed)}, such as {changed[0]}"] if changed else []
    )


def _file_sizes(folder: Path) -> dict[str, int]:
    """Return the size of each file by its path in the virtual environment, without bytecode."""
    return {
        str(path.relative_to(folder)): path.lstat().st_size
        for parent, _, names in os.walk(folder / "venv")
        for name in names
        if not name.endswith(".pyc") and (path := Path(parent, name))
    }


def python_in(folder: Path) -> Path:
    """Return the interpreter of a folder's virtual environment."""
    return folder / "venv" / "bin" / "python"


def size_bytes(folder: Path) -> int:
    """Return the size of all files in a folder; during a removal, of the remaining files."""
    return sum(_size(Path(parent, name)) for parent, _, names in os.walk(folder) for name in names)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def make_readable(folder: Path) -> None:
    """Let all users read a folder and its owner alone write, with any umask. Raises OSError."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                continue
            executable = 0o111 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0
            path.chmod((stat.S_IMODE(mode) & 0o755) | 0o644 | executable)
