"""The environments of a service that starts: all of them are built, and stay so until it ends."""

from __future__ import annotations

from contextlib import ExitStack

from proctor_service.errors import StartError
from proctor_service.sandbox.environments.built import (
    BuiltEnvironment,
    Environments,
    from_interpreter,
    interpreter_of,
)
from proctor_service.sandbox.environments.interpreters import default_python
from proctor_service.sandbox.environments.store import Store, environments_folder
from proctor_service.settings import Settings
from proctor_service.settings.environments import DEFAULT, Environment, read_environments


def load_environments(settings: Settings, held: ExitStack) -> Environments:
    """Return the environments of the settings; `held` keeps them from being removed. Blocks.

    Raises StartError for one that is not built or cannot be used, and says how to mend it.
    """
    definitions = read_environments(settings.environments)
    for path, name in settings.compat_environments.items():
        if name not in (DEFAULT, *definitions):
            known = ", ".join((DEFAULT, *definitions))
            raise StartError(f"PROCTOR_COMPAT_ENVIRONMENTS {path}: no {name!r}, only: {known}")
    if definitions and settings.backend == "aviato":
        raise StartError("PROCTOR_ENVIRONMENTS: sandboxes at Aviato have one environment")
    loaded: dict[str, BuiltEnvironment] = {}
    for name, definition in definitions.items():
        _check(name, definition, settings)
        store = Store(environments_folder(settings))
        built = store.built(name, definition, default_python(settings))
        held.enter_context(store.in_use(built))
        loaded[name] = built
    return loaded


def default_environment(settings: Settings) -> BuiltEnvironment | None:
    """Return the default environment, as far as this machine has it; blocks. Raises StartError."""
    if settings.backend == "aviato":
        return None
    definition = Environment()
    python = interpreter_of(DEFAULT, definition, default_python(settings))
    return from_interpreter(DEFAULT, definition, python)


def _check(name: str, definition: Environment, settings: Settings) -> None:
    where = f"PROCTOR_ENVIRONMENTS {settings.environments}: environments.{name}"
    for path in definition.paths:
        if not path.is_dir():
            raise StartError(f"{where}.paths: {path} is no folder")
    for language in definition.languages or ():
        if language not in settings.languages and language != "python":
            raise StartError(f"{where}.languages: no {language!r} is known")
