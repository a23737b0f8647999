"""Directories of the machine in sandboxes, and the rule for them.

A sandbox sees each of these directories read-only, at its own path. The sandbox's own files must stay
writable, so these directories must be apart from all places of the sandbox's own files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from proctor_service.errors import StartError
from proctor_service.sandbox.environments import Environments
from proctor_service.settings import Settings
from proctor_service.settings.environments import Environment, read_environments

_OWN = (
    "/box", "/dev", "/proc", "/sys", "/tmp", "/var/tmp", "/etc/mono", "/etc/passwd", "/etc/php", "/etc/R",
    "/opt/proctor/pytest",
)  # fmt: skip
"""Places of the sandbox's own files: see `isolation.build_root`. `/etc/ssl` is none of them."""


def check_shown(path: str | Path, setting: str) -> str:
    """Return a path to show in sandboxes. Raises StartError for a path hiding files of their own.

    `setting`: name of the setting with the path. The file system's links count, too.
    """
    if not os.path.isabs(path):
        raise StartError(f"{setting}: {path} is no absolute path")
    for real in (os.path.normpath(path), os.path.realpath(path)):
        for own in _OWN:
            if _is_within(real, own) or _is_within(own, real):
                at = "" if real == str(path) else f" ({real})"
                raise StartError(
                    f"{setting}: {path}{at} lies where sandboxes have their own files ({own})"
                )
    return str(path)


def check_settings(settings: Settings, environments: Environments) -> None:
    """Check the paths of all environments. Raises StartError with the name of the setting.

    `environments`: the built ones of this service, if any.
    """
    for name, definition in read_environments(settings.environments).items():
        where = f"PROCTOR_ENVIRONMENTS {settings.environments}: environments.{name}"
        environment_paths(definition, where)
        if os.path.isabs(definition.python):
            _check_interpreter(Path(definition.python), f"{where}.python")
        if definition.requirements and settings.environments_folder is not None:
            folder = settings.environments_folder.absolute()
            check_shown(folder, "PROCTOR_ENVIRONMENTS_FOLDER")
    for name, built in environments.items():
        if built.python is not None:
            _check_interpreter(built.python, f"environment {name}")


def setting_paths(settings: Settings) -> list[str]:
    """Return the directories of the settings for all sandboxes. Raises StartError."""
    go_cache = {settings.go_cache: "PROCTOR_GO_CACHE"}
    found = {
        str(path): go_cache.get(path, "PROCTOR_SANDBOX_PATHS") for path in settings.sandbox_paths
    }
    for path, name in language_paths(settings).items():
        found.setdefault(path, f"PROCTOR_LANGUAGES: the paths of {name}")
    return [check_shown(path, setting) for path, setting in found.items()]


def language_paths(settings: Settings) -> dict[str, str]:
    """Return the folders of languages on this machine, unchecked, each with its language."""
    return {
        path: name
        for name, language in settings.languages.items()
        for path in language.paths
        if os.path.isdir(path)
    }


def environment_paths(definition: Environment, where: str) -> list[str]:
    """Return the directories `paths` of an environment. Raises StartError, with `where` in front."""
    return [check_shown(path, f"{where}.paths") for path in definition.paths]


def interpreter_paths(paths: Iterable[str], executable: Path) -> tuple[str, ...]:
    """Return the directories of an interpreter. Raises StartError; the message has its path."""
    return tuple(check_shown(path, str(executable)) for path in paths)


def _check_interpreter(python: Path, setting: str) -> None:
    """Check the folders of an interpreter, without its start: see "pyvenv.cfg" of site(1)."""
    real = Path(os.path.realpath(python)).parents[1:2]
    virtual = [each for each in python.parents[1:2] if (each / "pyvenv.cfg").exists()]
    for folder in (*virtual, *real):
        if folder != Path("/"):
            check_shown(folder, f"{setting} {python}")


def _is_within(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")
