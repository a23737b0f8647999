"""Where values of settings come from: variables PROCTOR_…, and the TOML file in PROCTOR_CONFIG.

A field of a group is the variable `PROCTOR_` + its name in capitals, which wins over the file:

    slots = 8                  # by its name alone, or in the table of its group

    [queue]
    max_queued = 5000

    [access.tokens]
    team-a = "…"
"""

from __future__ import annotations

import difflib
import json
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from proctor_service.errors import StartError

PREFIX = "PROCTOR_"
CONFIG = "CONFIG"
_OTHERS = frozenset({"URL", "TOKEN", CONFIG})  # the first two are the client's
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Matches between the words of `AviatoBudget`; nowhere in `HTTP`."""
_OPEN = stat.S_IRWXG | stat.S_IRWXO

Group = type[BaseModel]
AnyGroup = TypeVar("AnyGroup", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class AlsoReadAs:
    """Further variables of a field, which clients of another service read as well."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OrFile:
    """Marks a field whose value may be the path of a TOML file, too; the group reads it."""

    suffix: str = ".toml"


def group_name(group: Group) -> str:
    """Return the table of a group in the file: the class's name in snake case, without `Settings`."""
    return _WORD.sub("_", group.__name__.removesuffix("Settings")).lower()


def variables_of(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Return the variables of a field; the first that is set counts."""
    more = (each.names for each in field.metadata if isinstance(each, AlsoReadAs))
    return (f"{PREFIX}{name.upper()}", *(variable for names in more for variable in names))


def read_group(group: type[AnyGroup]) -> AnyGroup:
    """Return a group with the values of this process. Raises StartError with the name of each wrong
    value.

    A feature declares its settings so: a frozen model with defaults for all fields.
    """
    try:
        return group(**read_values([group]))
    except ValidationError as error:
        raise StartError(explained(error)) from None


def read_values(
    groups: Iterable[Group], environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the values set for fields of these groups, by field; defaults are left out.

    Raises StartError for a variable with invalid JSON, an unreadable file and a wrong type.
    """
    environment = environ if environment is None else environment
    found = {name.upper(): text for name, text in environment.items()}
    config = read_config(environment)
    values: dict[str, Any] = {}
    for group in groups:
        if config is not None:
            values |= config.values_of(group)
        for name, field in group.model_fields.items():
            for variable in variables_of(name, field):
                if variable in found:
                    values[name] = _decoded(variable, found[variable], field)
                    break
    return values


def _decoded(variable: str, text: str, field: FieldInfo) -> Any:
    if not _is_json(field.annotation) or _is_file(text, field):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = f"{error.msg} at line {error.lineno} column {error.colno}"
        raise StartError(f"{variable} must be JSON: {at}") from None
    except RecursionError:
        raise StartError(f"{variable} must be JSON: it is nested too deeply") from None


def _is_file(value: Any, field: FieldInfo) -> bool:
    suffixes = [each.suffix for each in field.metadata if isinstance(each, OrFile)]
    return isinstance(value, str) and value.strip().endswith(tuple(suffixes))


def _is_json(annotation: Any) -> bool:
    """Return True for lists, mappings and models: a variable holds them as JSON."""
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type):
        return issubclass(origin, (list, dict, tuple, BaseModel))
    return any(map(_is_json, get_args(annotation)))


@dataclass(frozen=True, slots=True)
class Config:
    """Content of the TOML file in PROCTOR_CONFIG."""

    path: Path
    content: Mapping[str, Any]

    def values_of(self, group: Group) -> dict[str, Any]:
        """Return the file's values in a group, by field. Raises StartError for a wrong type."""
        values: dict[str, Any] = {}
        for name, field in group.model_fields.items():
            places = [
                (key, value)
                for key, owner, value in self._keys([group])
                if owner is group and key.rpartition(".")[2] == name
            ]
            if len(places) > 1:
                raise StartError(f"{self._at(places[0][0])} stands in [{group_name(group)}], too")
            if places:
                values[name] = self._checked(*places[0], field)
        return values

    def check_names(self, groups: Sequence[Group], removed: Mapping[str, str]) -> None:
        """Raise StartError for a key outside of the groups' fields, with the nearest name."""
        names = {
            name: f"{group_name(group)}.{name}" for group in groups for name in group.model_fields
        }
        for key, owner, value in self._keys(groups):
            if owner is None:
                _, _, name = key.rpartition(".")
                if name in removed:
                    raise StartError(f"{self._at(key)} is no setting any more: {removed[name]}")
                words = map(group_name, groups) if isinstance(value, dict) else names
                near = difflib.get_close_matches(name, words, 1)
                meant = f"; did you mean {names.get(near[0], near[0])}?" if near else ""
                raise StartError(f"{self._at(key)} is no setting{meant}")

    def secrets(self, groups: Iterable[Group]) -> list[str]:
        """Return the keys of secrets in the file."""
        return [
            key
            for key, owner, _ in self._keys(list(groups))
            if owner is not None
            and "SecretStr" in str(owner.model_fields[key.rpartition(".")[2]].annotation)
        ]

    def _keys(self, groups: Sequence[Group]) -> Iterable[tuple[str, Group | None, Any]]:
        """Yield each key, the group of its field, and its value."""
        tables = {group_name(group): group for group in groups}
        owners = {name: group for group in groups for name in group.model_fields}
        for key, value in self.content.items():
            field = owners[key].model_fields[key] if key in owners else None
            holds_table = field is not None and _takes_table(field)
            if isinstance(value, dict) and key in tables and not holds_table:
                own = tables[key]
                for name, inner in value.items():
                    yield f"{key}.{name}", own if name in own.model_fields else None, inner
            else:
                yield key, owners.get(key), value

    def _checked(self, key: str, value: Any, field: FieldInfo) -> Any:
        if _is_file(value, field):
            return value
        if "SecretStr" in str(field.annotation) and isinstance(value, dict):
            value = json.dumps(value)  # a table in place of the text of a JSON object
        if type(value) is int and any(map(_takes_numbers, field.metadata)):
            value = str(value)
        annotation: Any = Annotated[field.annotation, field]
        try:
            # JSON's strict rules are TOML's: a path is a text, and a whole number is a float as well.
            TypeAdapter(annotation).validate_json(json.dumps(value, default=str), strict=True)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            where = ".".join([key, *map(str, first["loc"])])
            message = first["msg"].removeprefix("Value error, ")
            raise StartError(f"{self._at(where)}: {message}") from None
        return value

    def _at(self, key: str) -> str:
        return f"{PREFIX}{CONFIG} {self.path}: {key}"


def _takes_numbers(constraint: Any) -> bool:
    return bool(getattr(constraint, "coerce_numbers_to_str", False))


def _takes_table(field: FieldInfo) -> bool:
    return _is_json(field.annotation) and get_origin(field.annotation) is not list


def read_config(environment: Mapping[str, str] | None = None) -> Config | None:
    """Return the file in PROCTOR_CONFIG, or None. Raises StartError for invalid TOML."""
    environment = environ if environment is None else environment
    where = environment.get(f"{PREFIX}{CONFIG}", "")
    if not where:
        return None
    path = Path(where)
    try:
        return Config(path, tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise StartError(f"{PREFIX}{CONFIG} {path}: {error}") from None


def explained(error: ValidationError) -> str:
    """Return a line for each invalid value, with its variable; the values may be secrets."""
    lines = []
    for each in error.errors(include_input=False):
        message = each["msg"].removeprefix("Value error, ")
        path = list(map(str, each["loc"]))
        if path:
            path[0] = f"{PREFIX}{path[0].upper()}"
        lines.append(": ".join([*path, message]))
    return "\n".join(lines)


def unknown_variables(
    groups: Iterable[Group], removed: Iterable[str], environment: Iterable[str] | None = None
) -> dict[str, str]:
    """Return the unknown variables with the prefix PROCTOR_, each with the nearest name.

    The nearest name may be empty. `removed`: fields of earlier versions, which `removed_variables`
    reports. `environment`: names of variables, by default of this process.
    """
    fields = {name.upper() for group in groups for name in group.model_fields} | _OTHERS
    former = {name.upper() for name in removed}
    unknown = {
        name: bare for name, bare in _own(environment) if bare not in fields and bare not in former
    }
    nearest = {n: difflib.get_close_matches(bare, sorted(fields), 1) for n, bare in unknown.items()}
    return {name: f"{PREFIX}{near[0]}" if near else "" for name, near in nearest.items()}


def removed_variables(
    removed: Mapping[str, str], environment: Iterable[str] | None = None
) -> dict[str, str]:
    """Return the present variables of earlier versions, each with its replacement."""
    former = {name.upper(): text for name, text in removed.items()}
    return {name: former[bare] for name, bare in _own(environment) if bare in former}


def _own(environment: Iterable[str] | None) -> list[tuple[str, str]]:
    names = environ if environment is None else environment
    upper = ((name, name.upper()) for name in names)
    return [(name, each.removeprefix(PREFIX)) for name, each in upper if each.startswith(PREFIX)]


def open_secrets(config: Config | None, groups: Sequence[Group]) -> str:
    """Return a warning if users beside its owner may read a file with secrets, else ""."""
    if config is None or not config.path.stat().st_mode & _OPEN:
        return ""
    secrets = config.secrets(groups)
    if not secrets:
        return ""
    return f"{config.path} holds {', '.join(secrets)}, and others than its owner may read it"
