"""The interpreter of the sandboxes, and the machine's directories in sandboxes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from proctor_service.errors import StartError
from proctor_service.sandbox.environments import default_python
from proctor_service.sandbox.local.shown_paths import interpreter_paths, language_paths
from proctor_service.settings import Settings
from proctor_service.settings.environments import read_environments

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_ALREADY_SHOWN = ("/usr", "/bin", "/lib", "/lib64", "/sbin")
_ASK = "import sys, json; print(json.dumps([sys.prefix, sys.base_prefix, sys.version, sys.path]))"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The interpreter; `shown`: its directories, in a sandbox for its sake alone.

    `build`: the rest of its `sys.version`.
    """

    executable: str
    shown: tuple[str, ...]
    version: str
    path: tuple[str, ...]
    prefix: str
    build: str


def find_interpreter(settings: Settings) -> Interpreter:
    """Ask the default interpreter for its directories and version. Raises StartError."""
    try:
        return ask_interpreter(default_python(settings))
    except StartError as error:
        raise StartError(f"PROCTOR_SANDBOX_PYTHON: {error}") from None


def ask_interpreter(chosen: Path, variables: Mapping[str, str] = NO_VARIABLES) -> Interpreter:
    """Ask an interpreter, with these variables, for its directories and version.

    Raises StartError if the interpreter fails to run, or if its directories hide files of sandboxes.
    """
    try:
        process = subprocess.run(
            [str(chosen), "-P", "-s", "-c", _ASK],
            capture_output=True,
            text=True,
            check=True,
            env=dict(variables),
        )
        prefix, base_prefix, whole, path = json.loads(process.stdout)
        version, *build = whole.split()
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise StartError(f"{chosen} does not run: {error}") from None
    shown = [p for p in dict.fromkeys((prefix, base_prefix)) if not is_shown(p)]
    executable = str(chosen.absolute()) if prefix != base_prefix else os.path.realpath(chosen)
    return Interpreter(
        executable,
        interpreter_paths(shown, chosen),
        version,
        tuple(path),
        prefix,
        " ".join(build),
    )


def is_shown(path: str) -> bool:
    """Return True for a path in every sandbox, with any interpreter."""
    return path == "/" or any(path == top or path.startswith(top + "/") for top in _ALREADY_SHOWN)


def seen_in_sandboxes(settings: Settings, path: Path) -> bool:
    """Return True if sandboxes of this machine see this file or directory. Raises StartError."""
    if settings.backend != "local":
        return False
    if settings.allow_degraded:  # then a sandbox may have no mount namespace
        return True
    here = path.resolve()
    return any(here.is_relative_to(shown.resolve()) for shown in _shown_paths(settings))


def _shown_paths(settings: Settings) -> list[Path]:
    """Return all directories of the machine in sandboxes. Raises StartError."""
    shown = [*_ALREADY_SHOWN, *find_interpreter(settings).shown]
    for environment in read_environments(settings.environments).values():
        shown += map(str, environment.paths)
    return [*map(Path, (*shown, *language_paths(settings))), *settings.sandbox_paths]
