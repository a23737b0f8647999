"""Environments for sandboxes: the digest of their contents, and their damages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from proctor_service.errors import StartError
from proctor_service.features.environments.interpreters import Python, find_interpreter
from proctor_service.features.environments.manifest import (
    Manifest,
    digest_of,
    file_problems,
    key_of,
    python_in,
)
from proctor_service.features.environments.packages import (
    import_problems,
    installed_packages,
    preload_problems,
)
from proctor_service.sandbox.environments import BuiltEnvironment, Image
from proctor_service.settings.environments import Environment


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
    """Return the environment of an interpreter with its installed packages."""
    found = installed_packages(python.executable)
    packages = {each: found[each].version for each in sorted(found)}
    digest = _digest(definition, python, packages)
    return BuiltEnvironment(name, definition, python.executable, python.version, packages, digest)


def from_image(name: str, definition: Environment, image: Image) -> BuiltEnvironment:
    """Return the environment of an unpacked image."""
    digest = digest_of([image.digest, definition.env])
    return BuiltEnvironment(name, definition, None, image.python, {}, digest, image.holds[0], image)


def from_reference(name: str, definition: Environment) -> BuiltEnvironment:
    """Return the environment of an image for Aviato, which fetches images from a registry.

    Its digest covers the reference and all options, since Aviato looks up the tag.
    """
    reference = definition.image.removeprefix("docker://")
    options = definition.aviato.model_dump(mode="json")
    digest = digest_of([reference, definition.env, options])
    return BuiltEnvironment(name, definition, None, None, {}, digest, remote_image=reference)


def _digest(definition: Environment, python: Python, packages: Mapping[str, str]) -> str:
    return digest_of(
        [
            [key_of(definition, python), str(python.executable), dict(packages)],
            [definition.env, list(map(str, definition.paths))],
            [definition.preload, definition.languages],
        ]
    )


def damage_of(folder: Path, definition: Environment, manifest: Manifest) -> list[str]:
    """Return a text for each changed package of a built folder, and for each failed import."""
    python, built, changed = python_in(folder), manifest.packages, file_problems(folder)
    try:
        packages = installed_packages(python)
    except StartError as error:
        return [str(error)]
    present = {name: package.version for name, package in packages.items()}
    for name in sorted(present.keys() | built.keys()):
        if present.get(name) != built.get(name):
            found, expected = present.get(name, "none"), built.get(name, "none")
            changed.append(f"{name}: version {found} was found, {expected} was built")
    return changed or import_problems(python, definition.requirements, packages, definition.env)


def preload_problems_in(folder: Path, definition: Environment) -> list[str]:
    """Import the preload with the interpreter of a built folder; return a text on failure."""
    return preload_problems(python_in(folder), definition.preload, definition.env)
