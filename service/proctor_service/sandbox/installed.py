"""Installed influences on verdicts, by name: packages of an interpreter, programs of languages.

Two machines with the same names and versions judge alike. Only names of files, their sizes and times are
read, so this takes a few milliseconds of a start.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor_service.settings.languages import SANDBOX_PATH, Language

_DISTRIBUTION = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-[^-]+)?\.(?:dist|egg)-info")
"""Matches `numpy-2.1.0.dist-info` and `PyYAML-6.0-py3.11.egg-info`; not `numpy` or `x.egg-info`."""
_PARENTS_WITH_MANIFEST = 3  # from bin/jest.js to the package.json of its package
_MANIFEST = "package.json"


@dataclass(frozen=True, slots=True)
class Installed:
    """Version of each distribution by normalized name, and the other names on a search path."""

    packages: Mapping[str, str]
    modules: frozenset[str]


def on_path(folders: Iterable[str]) -> Installed:
    """Return the contents of the folders of an interpreter's search path; earlier folders count."""
    packages: dict[str, str] = {}
    modules = set()
    for folder in folders:
        try:
            names = [each.name for each in os.scandir(folder or ".")]
        except OSError:  # such as the archive of the standard library, which few have
            continue
        for name in names:
            found = _DISTRIBUTION.fullmatch(name)
            if found is not None:
                packages.setdefault(_normalized(found["name"]), found["version"])
            elif name != "__pycache__":
                modules.add(name)
    return Installed(packages, frozenset(modules))


def language_versions(languages: Mapping[str, Language]) -> dict[str, str]:
    """Return a text for each installed language: its programs, and a digest of its definition."""
    found = {}
    for name, language in languages.items():
        programs = [shutil.which(need, path=SANDBOX_PATH) for need in language.needs]
        if not all(programs):
            continue
        files = [str(program) for program in programs] + list(_files_in(language))
        texts = [_described(Path(file).resolve()) for file in dict.fromkeys(files)]
        definition = hashlib.blake2b(repr(language).encode(), digest_size=4).hexdigest()
        found[name] = ", ".join([*texts, definition])
    return found


def machine_names() -> dict[str, str]:
    """Return the names of the machine's architecture and of its operating system."""
    try:
        system = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        system = ""
    return {"architecture": os.uname().machine, "system": system}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()  # "." in "ruamel.yaml"


def _files_in(language: Language) -> Iterator[str]:
    """Yield the files named in a language's commands, for example the jars of JUnit."""
    for word in (*(language.compile or ()), *language.run):
        for part in word.split(":"):
            if part.startswith("/") and Path(part).is_file():
                yield part


def _described(file: Path) -> str:
    """Return path, size and date of a file, which packages of a system keep from their build.

    For a script of npm the manifest of its package stands in place of both: npm sets a new date.
    """
    try:
        about = file.stat()
        for parent in list(file.parents)[:_PARENTS_WITH_MANIFEST]:
            if (parent / _MANIFEST).is_file():
                manifest = (parent / _MANIFEST).read_bytes()
                return f"{file} {hashlib.blake2b(manifest, digest_size=4).hexdigest()}"
        date = time.strftime("%Y-%m-%d", time.gmtime(about.st_mtime))
        return f"{file} {about.st_size} bytes of {date}"
    except OSError:
        return str(file)
