"""Settings of test runners inside files edited by honest changes, too: their keys alone are the task's. Pure.

Where the keys differ, the result is written anew from the parsed values, so every spelling of a key is found.
Files that cannot be parsed, or are larger than MAX_SETTINGS_BYTES, are protected as a whole.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from itertools import pairwise
from typing import Any

MAX_SETTINGS_BYTES = 512 * 1024
PACKAGE_JSON_KEYS = (
    "scripts", "jest", "mocha", "vitest", "ava", "tap", "nyc", "c8", "babel", "config", "wireit",
)  # fmt: skip
_SECTION = re.compile(rb"^\[([^\]\r\n]*)\]", re.M)
"""Matches `[tool:pytest]` at the begin of a line."""
_INI_NAMES = re.compile(rb"(?:tool:)?(?:pytest|coverage|tox|testenv|aliases)(?:\b|$)", re.I)
"""Matches the names `tool:pytest`, `pytest`, `coverage:run`, `tox:tox`, `testenv:py311`."""
_INDENTED_SECTION = re.compile(rb"^[^\S\n]*+\[", re.M)
"""Matches the begin of `  [metadata]`."""
_LONG_KEY = re.compile(
    rb"""(?<![\w.-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}"""
)
"""Matches `a.b."c".d…`: parsers take time that grows with the square of a key's parts."""
_TOOLS = ("pytest", "coverage", "tox", "nox", "poe", "taskipy")
_INNER_KEYS = (
    ("project", "entry-points", "pytest11"),
    ("tool", "poetry", "plugins", "pytest11"),
    ("tool", "hatch", "envs"),
    ("tool", "pdm", "scripts"),
)
"""Plugins of pytest that a build would install, and scripts of tools that run tests."""
_CARGO_KEYS = (
    ("test",),
    ("package", "autotests"),
    ("lib", "test"),
    ("lib", "harness"),
    ("lib", "doctest"),
    ("profile", "test"),
    ("dev-dependencies",),
    ("patch",),
    ("replace",),
)
"""Which files Cargo takes for tests, how it builds them, and the libraries that tests use."""
_GO_REPLACE = re.compile(rb"\s*replace\b\s*(\()?")
"""Matches `replace a/b => ./b` and `replace (`: another module in place of a library of tests."""
_NAMES = frozenset(
    [b"pyproject.toml", b"setup.cfg", b"package.json", b"composer.json", b"Cargo.toml", b"go.mod"]
)


class Unreadable(Exception):
    """The settings cannot be parsed, or are too large: the whole file is protected."""


def has_protected_keys(path: bytes) -> bool:
    """Return True for a file of which only some keys are protected."""
    return path.rpartition(b"/")[2] in _NAMES


def empty(path: bytes) -> bytes:
    """Return the content of a file without any settings."""
    return b"{}" if path.endswith(b".json") else b""


def with_protected_keys(path: bytes, content: bytes, trusted: bytes | None) -> bytes:
    """Return a file's content with the protected keys of another, trusted content of the file.

    `trusted`: None where the task lacks the file; then the keys are removed. Returns `content` itself if the
    keys agree. Raises Unreadable.
    """
    if max(len(content), len(trusted or b"")) > MAX_SETTINGS_BYTES:
        raise Unreadable
    name = path.rpartition(b"/")[2]
    try:
        if name == b"setup.cfg":
            return _ini(content, trusted or b"")
        if name == b"package.json":
            return _json_keys(content, trusted, PACKAGE_JSON_KEYS)
        if name == b"composer.json":
            return _json_keys(content, trusted, ("scripts",))
        if name == b"go.mod":
            return _go_mod(content, trusted or b"")
        if name == b"Cargo.toml":
            return _cargo(content, trusted)
        return _pyproject(content, trusted)
    except (ValueError, RecursionError, TypeError) as error:
        raise Unreadable from error


# ---------------------------------------------------------------- pyproject.toml


def _toml(content: bytes) -> dict[str, Any]:
    if _LONG_KEY.search(content):
        raise ValueError("a key of many parts")
    return tomllib.loads(content.decode())


def _pyproject(content: bytes, trusted: bytes | None) -> bytes:
    new, old = _toml(content), _toml(trusted or b"")
    tools, old_tools = _table(new.get("tool")), _table(old.get("tool"))
    wanted = {name: table for name, table in old_tools.items() if name.startswith(_TOOLS)}
    is_same = {name: table for name, table in tools.items() if name.startswith(_TOOLS)} == wanted
    inner = [each for each in _INNER_KEYS if _value_at(new, each) != _value_at(old, each)]
    if is_same and not inner:
        return content
    rest = {name: table for name, table in tools.items() if not name.startswith(_TOOLS)}
    new.pop("tool", None)
    if rest or wanted:
        new["tool"] = {**rest, **wanted}
    for keys in inner:
        _set_at(new, keys, _value_at(old, keys))
    return _written(new)


def _cargo(content: bytes, trusted: bytes | None) -> bytes:
    new, old = _toml(content), _toml(trusted or b"")
    changed = [each for each in _CARGO_KEYS if _value_at(new, each) != _value_at(old, each)]
    if not changed:
        return content
    for keys in changed:
        _set_at(new, keys, _value_at(old, keys))
    return _written(new)


def _written(table: Mapping[str, Any]) -> bytes:
    written = toml_text(table)
    if tomllib.loads(written) != table:
        raise ValueError("the settings cannot be written anew")
    return written.encode()


def _value_at(table: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """Return the value below these keys; None if absent."""
    value: Any = table
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _set_at(table: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    for key in keys[:-1]:
        below = table.setdefault(key, {})
        if not isinstance(below, dict):
            raise TypeError(f"{key} is no table")
        table = below
    table.pop(keys[-1], None)
    if value is not None:
        table[keys[-1]] = value


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def toml_text(table: Mapping[str, Any]) -> str:
    """Return TOML of a parsed table; tables become sections, and tables in lists stay inline."""
    lines: list[str] = []
    _write_table(table, (), lines)
    return "\n".join(lines) + "\n"


def _write_table(table: Mapping[str, Any], above: tuple[str, ...], lines: list[str]) -> None:
    if above:
        lines.append(f"[{'.'.join(map(_toml_string, above))}]")
    for key, value in table.items():
        if not isinstance(value, dict):
            lines.append(f"{_toml_string(key)} = {_toml_value(value)}")
    for key, value in table.items():
        if isinstance(value, dict):
            _write_table(value, (*above, key), lines)


def _toml_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _toml_string(value)
        case int() | float():
            return repr(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list():
            return f"[{', '.join(map(_toml_value, value))}]"
        case dict():
            pairs = (f"{_toml_string(key)} = {_toml_value(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
    raise TypeError(f"no value of TOML: {value!r}")


# ---------------------------------------------------------------- setup.cfg


def _ini(content: bytes, trusted: bytes) -> bytes:
    if b"pytest11" in content and b"pytest11" not in trusted:
        raise ValueError("a plugin of pytest that a build would install")
    new, old = _ini_sections(content), _ini_sections(trusted)
    wanted = [text for name, text in old if _INI_NAMES.match(name.lstrip())]
    if [text for name, text in new if _INI_NAMES.match(name.lstrip())] == wanted:
        return content
    rest = [text for name, text in new if not _INI_NAMES.match(name.lstrip())]
    return b"".join(each if each.endswith(b"\n") else each + b"\n" for each in rest + wanted)


def _ini_sections(text: bytes) -> list[tuple[bytes, bytes]]:
    """Return name and whole text of each section; lines before the first have the name "".

    Raises ValueError for the other line separators of Python's text: with them, parsers see other sections.
    """
    text = text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    if re.search(rb"[\r\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]", text):
        raise ValueError("unusual ends of lines")
    text.decode()
    begins = [0, *(each.start() for each in _SECTION.finditer(text)), len(text)]
    parts = [text[begin:end] for begin, end in pairwise(begins)]
    found = []
    for part in parts:
        head = _SECTION.match(part)
        if head is None and _INDENTED_SECTION.search(part) and _INI_NAMES.search(part):
            raise ValueError("a section that parsers read in several ways")
        found.append((head[1] if head else b"", part))
    return [each for each in found if each[1]]


# ---------------------------------------------------------------- go.mod


def _go_mod(content: bytes, trusted: bytes) -> bytes:
    rest, replaced = _parts_of_go_mod(content)
    _, wanted = _parts_of_go_mod(trusted)
    if replaced == wanted:
        return content
    return b"".join(each.rstrip(b"\r\n") + b"\n" for each in (*rest, *wanted))


def _parts_of_go_mod(content: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the lines without and with replacements of modules."""
    rest: list[bytes] = []
    replaced: list[bytes] = []
    is_inside = False
    for line in content.splitlines(keepends=True):
        found = None if is_inside else _GO_REPLACE.match(line)
        is_inside = is_inside or bool(found and found[1])
        (replaced if is_inside or found else rest).append(line)
        is_inside = is_inside and b")" not in line
    return rest, replaced


# ---------------------------------------------------------------- package.json


def _json_keys(content: bytes, trusted: bytes | None, keys: Sequence[str]) -> bytes:
    new = _json_table(content)
    old = _json_table(trusted) if trusted is not None else {}
    if {key: new[key] for key in keys if key in new} == {
        key: old[key] for key in keys if key in old
    }:
        return content
    for key in keys:
        new.pop(key, None)
        if key in old:
            new[key] = old[key]
    return (json.dumps(new, indent=2, ensure_ascii=False) + "\n").encode()


def _json_table(content: bytes) -> dict[str, Any]:
    parsed = json.loads(content.decode("utf-8-sig"), parse_constant=_refused)
    if not isinstance(parsed, dict):
        raise ValueError("no object")
    return parsed


def _refused(text: str) -> Any:
    raise ValueError(f"no value of JSON: {text}")
