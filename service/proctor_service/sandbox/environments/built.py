"""An environment that sandboxes can use, and the digest of everything in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from proctor_service.errors import StartError
from proctor_service.sandbox.environments.interpreters import Python, find_interpreter
from proctor_service.sandbox.environments.manifest import Manifest, digest_of, key_of, python_in
from proctor_service.sandbox.environments.packages import installed_packages
from proctor_service.settings.environments import Environment


@dataclass(frozen=True, slots=True)
class BuiltEnvironment:
    """An environment that sandboxes can use.

    `python`: interpreter of its virtual environment, or the interpreter itself if it has no
    requirements. `packages`: version of each distribution, by normalized name. `digest`: changes with
    everything in the environment that may change a verdict. `folder`: its folder in the store, if it
    has one.
    """

    name: str
    definition: Environment
    python: Path
    version: str
    packages: Mapping[str, str]
    digest: str
    folder: Path | None = None


Environments = Mapping[str, BuiltEnvironment]
"""Environments of a service by name, without the default one."""

NO_ENVIRONMENTS: Environments = MappingProxyType({})


def interpreter_of(name: str, definition: Environment, default_python: Path) -> Python:
    """Return the interpreter of an environment. Raises StartError; the message has the name."""
    try:
        python = find_interpreter(definition.python, default_python)
        if python.is_virtual and definition.python and definition.requirements:
            raise StartError(
                f"{python.executable} belongs to a virtual environment, whose packages an environment "
                f"with requirements does not see: name {python.base}, or leave out the requirements"
            )
    except StartError as error:
        raise StartError(f"environment {name}: {error}") from None
    return python


def from_folder(
    name: str, definition: Environment, python: Python, folder: Path, manifest: Manifest
) -> BuiltEnvironment:
    """Return the environment in a folder of the store."""
    digest = _digest(definition, python, manifest.packages)
    packages = dict(manifest.packages)
    return BuiltEnvironment(
        name, definition, python_in(folder), python.version, packages, digest, folder
    )


def from_interpreter(name: str, definition: Environment, python: Python) -> BuiltEnvironment:
    """Return the environment of an interpreter as it is, with the packages that it has."""
    found = installed_packages(python.executable)
    packages = {each: found[each].version for each in sorted(found)}
    digest = _digest(definition, python, packages)
    return BuiltEnvironment(name, definition, python.executable, python.version, packages, digest)


def _digest(definition: Environment, python: Python, packages: Mapping[str, str]) -> str:
    return digest_of(
        [
            [key_of(definition, python), str(python.executable), dict(packages)],
            [definition.env, list(map(str, definition.paths))],
            [definition.preload, definition.languages],
        ]
    )
