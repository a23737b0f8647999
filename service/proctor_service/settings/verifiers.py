"""Verifiers by name, from a folder with a TOML file for each; the name is that of the file.

    description = "The text has the asked number of words."
    file = "words.py"

    [params.count]
    type = "integer"
    description = "Number of words."

`features/verifiers` offers them to requests; this module only reads the files.
"""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from proctor_service.errors import StartError
from proctor_service.settings.environments import DefaultLimits
from proctor_service.settings.languages import PYTHON
from proctor_service.settings.mistakes import first_mistake

ParamType = Literal["string", "integer", "number", "boolean", "array", "object"]
NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}")  # "json_schema"; not "-a"
_PARAM = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # "ignore_case"
_DIGEST_BYTES = 8


class Param(BaseModel):
    """A parameter of a verifier. `choices`: the only values, if any. `default`: None: it has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: ParamType | tuple[ParamType, ...]
    description: str = ""
    required: bool = True
    default: JsonValue = None
    choices: tuple[JsonValue, ...] = ()

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        for value in (*self.choices, *([] if self.default is None else [self.default])):
            if problem := self.problem_of(value):
                raise ValueError(f"{value!r} {problem}")
        return self

    @property
    def types(self) -> tuple[ParamType, ...]:
        """Types of which a value has one."""
        return (self.type,) if isinstance(self.type, str) else self.type

    @property
    def is_required(self) -> bool:
        """True if a task has to give a value."""
        return self.required and self.default is None

    def problem_of(self, value: JsonValue) -> str:
        """Return why a value is none of this parameter; "" for a fitting value."""
        if not any(_is_of(each, value) for each in self.types):
            return f"is no {' or '.join(self.types)}"
        if self.choices and value not in self.choices:
            return f"is none of: {', '.join(map(str, self.choices))}"
        return ""


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    description: str = Field(min_length=1, max_length=1000)
    source: str = ""
    file: str = ""
    language: str = PYTHON
    environment: str | None = None
    params: dict[str, Param] = {}
    limits: DefaultLimits = DefaultLimits()

    @field_validator("file")
    @classmethod
    def _inside(cls, value: str) -> str:
        path = PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{value!r} is no path below the folder")
        return value

    @field_validator("params")
    @classmethod
    def _names(cls, params: dict[str, Param]) -> dict[str, Param]:
        for name in params:
            if not _PARAM.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a parameter")
        return params

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.source) == bool(self.file):
            raise ValueError("either a source or a file")
        return self


@dataclass(frozen=True, slots=True)
class Verifier:
    """A verifier by name. `digest`: of its file and its source. `limits`: of a run."""

    name: str
    description: str
    source: str
    language: str
    environment: str | None
    params: Mapping[str, Param]
    limits: DefaultLimits
    digest: str


def read_verifiers(folder: Path | None) -> Mapping[str, Verifier]:
    """Return the verifiers of a folder by name; none without a folder. Blocks.

    Raises StartError with the file, and the wrong field or line.
    """
    if folder is None:
        return {}
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError as error:
        raise StartError(f"PROCTOR_VERIFIERS {folder}: {error.strerror}") from None
    return {path.stem: _read(path) for path in paths}


def _read(path: Path) -> Verifier:
    where = f"PROCTOR_VERIFIERS {path}"
    if not NAME.fullmatch(path.stem):
        raise StartError(f"{where}: a name has small letters, digits, and . _ - inside")
    try:
        text = path.read_text(encoding="utf-8")
        read = _File.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise StartError(f"{where}: {first_mistake(error)}") from None
    except (OSError, ValueError) as error:
        raise StartError(f"{where}: {error}") from None
    source = read.source
    if read.file:
        try:
            source = (path.parent / read.file).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise StartError(f"{where}: file: {error}") from None
    if read.language == PYTHON and read.environment is None:  # others may have a newer Python
        _check_source(source, f"{where}: {read.file or 'source'}")
    digest = hashlib.blake2b(f"{text}\0{source}".encode(), digest_size=_DIGEST_BYTES)
    return Verifier(
        name=path.stem,
        description=read.description,
        source=source,
        language=read.language,
        environment=read.environment,
        params=read.params,
        limits=read.limits,
        digest=digest.hexdigest(),
    )


def _check_source(source: str, where: str) -> None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise StartError(f"{where}: {error}") from None
    names = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    if "verify" not in names:
        raise StartError(f"{where}: there is no function verify")


def _is_of(kind: ParamType, value: Any) -> bool:
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "string":
        return isinstance(value, str)
    return isinstance(value, list if kind == "array" else dict)
