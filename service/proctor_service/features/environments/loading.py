"""The environments of a starting service: all are built, and remain until its end."""

from __future__ import annotations

from contextlib import ExitStack

from proctor_service.errors import StartError
from proctor_service.features.environments.built import (
    from_interpreter,
    from_reference,
    interpreter_of,
)
from proctor_service.sandbox.environments import BuiltEnvironment, Environments, default_python
from proctor_service.settings import Settings
from proctor_service.settings.environments import (
    DEFAULT,
    NOT_WITH_IMAGE,
    Environment,
    read_environments,
)
from proctor_service.settings.language_rows import WrongRow, check_names


def known_environments(settings: Settings, held: ExitStack) -> Environments:
    """Return the environments of the settings, with the images allowed in requests. Blocks.

    See `load_environments`. Raises StartError.
    """
    listed = load_environments(settings, held)
    if settings.backend == "aviato":
        if settings.images:
            raise StartError("PROCTOR_IMAGES: Aviato fetches images of environments by itself")
        return listed
    if not settings.images and settings.environments is None:
        return listed
    from proctor_service.features.environments.by_name import KnownEnvironments, check_patterns
    from proctor_service.features.environments.store import environments_folder

    return KnownEnvironments(
        dict(listed),
        environments_folder(settings),
        check_patterns(settings.images),
        int(settings.images_gb * 1e9),
    )


def load_environments(settings: Settings, held: ExitStack) -> Environments:
    """Return the environments of the settings; `held` protects them from removal. Blocks.

    Raises StartError for a missing or unusable environment, with the remedy.
    """
    definitions = read_environments(settings.environments)
    for path, name in settings.compat_environments.items():
        if name not in (DEFAULT, *definitions):
            names = ", ".join((DEFAULT, *definitions))
            raise StartError(f"PROCTOR_COMPAT_ENVIRONMENTS {path}: no {name!r}, only: {names}")
    loaded: dict[str, BuiltEnvironment] = {}
    for name, definition in definitions.items():
        if settings.backend == "aviato":
            _check_remote(name, definition, settings)
            loaded[name] = from_reference(name, definition)
            continue
        _check(name, definition, settings)
        # A service without environments starts without the store and its locks.
        from proctor_service.features.environments.store import (
            EnvironmentStore,
            environments_folder,
        )

        store = EnvironmentStore(environments_folder(settings))
        built = store.built(name, definition, default_python(settings))
        held.enter_context(store.in_use(built))
        loaded[name] = built
    return loaded


def with_own_languages(settings: Settings, environments: Environments) -> Settings:
    """Return the settings with the own languages of all environments in the table of languages.

    A name stands for the same language in the whole service. Raises StartError for a name with two meanings.
    """
    languages = dict(settings.languages)
    for name, built in environments.items():
        where = f"PROCTOR_ENVIRONMENTS {settings.environments}: environments.{name}.own_languages"
        for language, row in built.definition.own_languages.items():
            if language in settings.languages:
                raise StartError(f"{where}.{language}: the service has {language} already")
            if languages.setdefault(language, row) != row:
                raise StartError(f"{where}.{language}: another environment has another {language}")
        try:
            check_names(languages)
        except WrongRow as wrong:
            raise StartError(f"{where}.{wrong}") from None
    if len(languages) == len(settings.languages):
        return settings
    return settings.model_copy(update={"languages": languages})


def default_environment(settings: Settings) -> BuiltEnvironment | None:
    """Return the default environment, if this machine has its interpreter; blocks. Raises StartError."""
    if settings.backend == "aviato":
        return None
    definition = Environment()
    python = interpreter_of(DEFAULT, definition, default_python(settings))
    return from_interpreter(DEFAULT, definition, python)


def _check_remote(name: str, definition: Environment, settings: Settings) -> None:
    where = f"PROCTOR_ENVIRONMENTS {settings.environments}: environments.{name}"
    if not definition.image:
        also = next((each for each in NOT_WITH_IMAGE if getattr(definition, each)), "no image")
        raise StartError(
            f"{where}: an environment at Aviato is an image of a registry, and this one has {also}"
        )
    if definition.image.startswith(("oci:", "docker-archive:")):
        raise StartError(
            f"{where}.image: Aviato fetches images from a registry, and {definition.image} is a file "
            "of this machine"
        )


def _check(name: str, definition: Environment, settings: Settings) -> None:
    where = f"PROCTOR_ENVIRONMENTS {settings.environments}: environments.{name}"
    for path in definition.paths:
        if not path.is_dir():
            raise StartError(f"{where}.paths: {path} is no folder")
    for language in definition.languages or ():
        if language not in settings.languages and language != "python":
            raise StartError(f"{where}.languages: no {language!r} is known")
