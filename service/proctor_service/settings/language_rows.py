"""Languages as rows of a TOML file: those of the service, and those of PROCTOR_LANGUAGES.

    [languages.tcl]
    source = "solution.tcl"
    run = ["tclsh", "solution.tcl"]
    aliases = ["tclsh"]

A row has the fields of ROW_FIELDS; the other fields of `Language` name code of the service. A row with the
name of a known language is a mistake, unless `without` at the beginning of the file has the name.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from proctor_service.errors import StartError
from proctor_service.settings.languages import LANGUAGES, PYTHON, PYTHON_ALIASES, Language

ROW_FIELDS = ("source", "compile", "run", "needs", "aliases", "version", "paths")
_TABLE, _WITHOUT = "languages", "without"
_NAME = re.compile(r"[a-z][a-z0-9_+#-]{0,31}")
"""Matches the beginning of a fence, such as `c++` and `objective-c`; not `Tcl` or `a b`."""
_FENCE = re.compile(r"\w[\w+#-]{0,31}")
"""Matches another name of a language: `F90`, `c#`; not `.hs`, which no fence has."""
_HEADER = re.compile(r"\s*\[\s*([^\]\[]+?)\s*\]")
"""Matches the line `[languages.tcl]`."""


class WrongRow(ValueError):
    """A mistake in a table of languages; `key`: the names on the way to the wrong value."""

    def __init__(self, key: tuple[str, ...], reason: str) -> None:
        super().__init__(": ".join(filter(None, (".".join(key), reason))))
        self.key, self.reason = key, reason


def languages_of(tables: object) -> dict[str, Language]:
    """Return the languages of tables by name. Raises WrongRow."""
    if not isinstance(tables, Mapping):
        raise WrongRow((), "no table of languages by name")
    found = {}
    for name, fields in tables.items():
        if not _NAME.fullmatch(str(name)):
            raise WrongRow((str(name),), "a name has small letters, digits, and + # _ - inside")
        if not isinstance(fields, Mapping):
            raise WrongRow((name,), "no table with source and run")
        for field in fields:
            if field not in ROW_FIELDS:
                near = difflib.get_close_matches(field, ROW_FIELDS, 1)
                meant = f"did you mean {near[0]}?" if near else f"only: {', '.join(ROW_FIELDS)}"
                raise WrongRow((name, field), f"no field of a language; {meant}")
        try:
            found[name] = Language(**fields)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = (name, *map(str, first["loc"]))
            raise WrongRow(key, first["msg"].removeprefix("Value error, ")) from None
        for alias in found[name].aliases:
            if not _FENCE.fullmatch(alias):
                raise WrongRow((name, "aliases"), f"{alias!r} is no name that a fence can have")
    return found


def check_names(languages: Mapping[str, Language]) -> None:
    """Raise WrongRow for a name or an alias of two languages, in any case; the later one is to blame."""
    owners = dict.fromkeys((PYTHON, *PYTHON_ALIASES), PYTHON)
    for name, language in languages.items():
        if name.lower() in owners:
            raise WrongRow((name,), f"{name} is a name of {owners[name.lower()]} already")
        owners[name.lower()] = name
        for alias in language.aliases:
            owner = owners.setdefault(alias.lower(), name)
            if owner != name:
                raise WrongRow((name, "aliases"), f"{alias} is a name of {owner} already")


def read_languages(
    path: Path, base: Mapping[str, Language], where: str = "PROCTOR_LANGUAGES"
) -> dict[str, Language]:
    """Return the languages of `base` and of a file. Raises StartError with file, line and reason."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        return _merged(tomllib.loads(text), base)
    except WrongRow as wrong:
        line = _line_of(text, wrong.key)
        at = f" line {line}" if line else ""
        raise StartError(f"{where} {path}{at}: {wrong}") from None
    except (OSError, ValueError) as error:
        raise StartError(f"{where} {path}: {error}") from None


def _merged(content: Mapping[str, object], base: Mapping[str, Language]) -> dict[str, Language]:
    for key in content:
        if key not in (_TABLE, _WITHOUT):
            raise WrongRow((key,), f"only {_WITHOUT} and tables such as [{_TABLE}.tcl]")
    without = content.get(_WITHOUT, [])
    if not isinstance(without, list) or not all(isinstance(each, str) for each in without):
        raise WrongRow((_WITHOUT,), "no list of names of languages")
    for name in without:
        if name not in base:
            raise WrongRow((_WITHOUT,), f"no language {name!r} is known")
    try:
        rows = languages_of(content.get(_TABLE, {}))
        for name in rows:
            if name in base and name not in without:
                raise WrongRow((name,), f"known already; {_WITHOUT} = [{name!r}] makes place")
        languages = {name: row for name, row in base.items() if name not in without} | rows
        check_names(languages)
    except WrongRow as wrong:
        raise WrongRow((_TABLE, *wrong.key), wrong.reason) from None
    return languages


def _line_of(text: str, key: tuple[str, ...]) -> int:
    """Return the line of a field, or else of its table; 0 if neither is found."""
    table, found = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header is not None:
            table = header[1].replace('"', "").replace("'", "")
            if table == ".".join(key[:2]):
                found = found or number
        names = [each for each in (table, line.partition("=")[0].strip()) if each]
        if "=" in line and ".".join(names) in (".".join(key[:depth]) for depth in (1, 2, 3)):
            return number
    return found


KNOWN_LANGUAGES: Mapping[str, Language] = MappingProxyType(
    read_languages(Path(__file__).with_name("languages.toml"), LANGUAGES, "the table of languages")
)
"""All languages that the service knows, without Python."""
