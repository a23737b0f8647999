"""Environments by name, from a TOML file: interpreter and packages, or an image.

    [environments.science]
    python = "3.12"
    requirements = ["numpy==2.2.1", "pandas"]
    preload = ["numpy"]

    [environments.nginx]
    image = "oci:/srv/images/nginx:1.27"

`features/environments` builds them; this module only reads the file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from proctor_service.errors import StartError
from proctor_service.settings.aviato import AviatoOptions
from proctor_service.settings.language_rows import languages_of
from proctor_service.settings.languages import Language
from proctor_service.settings.mistakes import first_mistake

DEFAULT = "default"
"""Name of the environment of PROCTOR_SANDBOX_PYTHON, reserved in the file."""
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")  # "torch-2.5"; not "-a"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")  # "numpy.linalg"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # "OMP_NUM_THREADS"
IMAGE = re.compile(
    r"(oci|docker-archive):/[^\s\0]+|(docker://)?(?!oci:|docker-archive:|dir:)[a-z0-9][\w./:@-]*"
)
"""Matches `oci:/images/a:1` and `python:3.12-slim`; not `oci:images`, a relative path."""
NOT_WITH_IMAGE = ("python", "requirements", "preload", "paths", "languages")
"""Fields of an environment which exclude an image."""
_OPTION = re.compile(r"\s*(-|$)")  # "-" of "-r a.txt"; an empty line
_OWN_VARIABLES = frozenset({"HOME", "TMPDIR", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE"})


class DefaultLimits(BaseModel):
    """Default limits of submissions; without a value, the service's own default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu_seconds: PositiveFloat | None = None
    wall_seconds: PositiveFloat | None = None
    memory_mb: PositiveInt | None = None
    output_kb: PositiveInt | None = None
    processes: PositiveInt | None = None
    disk_mb: PositiveInt | None = None


class Environment(BaseModel):
    """Definition of an environment.

    `python`: a version (`3.12`, `3.12.1`) or a path; by default the default interpreter.
    `requirements`: as pip has them, without options. `preload`: modules warm in every sandbox.
    `env`: variables of every program. `paths`: folders shown read-only. `languages`: the languages
    offered beside Python; None: all of the service. `own_languages`: rows of languages that no other
    environment has, as in docs/languages.md. `image`: container image with all of this, in
    place of the other sources of programs. `aviato`: options of its sandboxes at Aviato, without
    effect elsewhere.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    python: str = ""
    requirements: tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...] = ()
    preload: tuple[str, ...] | None = None
    env: dict[str, str] = {}
    paths: tuple[Path, ...] = ()
    limits: DefaultLimits = DefaultLimits()
    languages: tuple[str, ...] | None = None
    own_languages: dict[str, Language] = {}
    image: Annotated[str, Field(max_length=1000)] = ""
    aviato: AviatoOptions = AviatoOptions()

    @model_validator(mode="after")
    def _image_alone(self) -> Self:
        also = [name for name in NOT_WITH_IMAGE if getattr(self, name)]
        if self.image and also:
            raise ValueError(f"image and {also[0]} exclude each other")
        return self

    @field_validator("image")
    @classmethod
    def _reference(cls, value: str) -> str:
        if value and not IMAGE.fullmatch(value):
            raise ValueError(
                f"{value!r} is no image: oci:/path[:tag], docker-archive:/path, or a reference such "
                "as registry/name:tag"
            )
        return value

    @field_validator("requirements")
    @classmethod
    def _no_options(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if _OPTION.match(each) or "\n" in each:
                raise ValueError(f"{each!r} is no requirement; options such as an index are uv's")
            if each.lstrip().startswith((".", "~")):
                raise ValueError(f"{each!r} is no absolute path")
        return value

    @field_validator("own_languages", mode="before")
    @classmethod
    def _rows(cls, tables: object) -> object:
        return languages_of(tables)

    @field_validator("preload")
    @classmethod
    def _modules(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for each in value or ():
            if not _MODULE.fullmatch(each):
                raise ValueError(f"{each!r} is no name of a module")
        return value

    @field_validator("env")
    @classmethod
    def _variables(cls, variables: dict[str, str]) -> dict[str, str]:
        for name, value in variables.items():
            if not _VARIABLE.fullmatch(name) or "\0" in value:
                raise ValueError(f"{name!r} is no name of a variable, or has a zero byte")
            if name in _OWN_VARIABLES:
                raise ValueError(f"{name} is set by the sandbox")
        return variables

    @field_validator("paths")
    @classmethod
    def _absolute(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        for each in paths:
            if not each.is_absolute() or ".." in each.parts or each == Path("/"):
                raise ValueError(f"{each} is no absolute path of a folder")
        return paths


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    environments: dict[str, Environment] = {}

    @field_validator("environments")
    @classmethod
    def _names(cls, environments: dict[str, Environment]) -> dict[str, Environment]:
        for name in environments:
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r}: a name has small letters, digits, and . _ - inside")
            if name == DEFAULT:
                raise ValueError(f"{DEFAULT} is the environment of PROCTOR_SANDBOX_PYTHON")
        return environments


def read_environments(path: Path | None) -> Mapping[str, Environment]:
    """Return the environments of a file by name; none without a file.

    Raises StartError with the file, and the wrong field or line.
    """
    if path is None:
        return {}
    where = f"PROCTOR_ENVIRONMENTS {path}"
    try:
        return _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).environments
    except ValidationError as error:
        raise StartError(f"{where}: {first_mistake(error)}") from None
    except (OSError, ValueError) as error:
        raise StartError(f"{where}: {error}") from None
