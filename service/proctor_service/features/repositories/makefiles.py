"""Commands of Makefiles and tox.ini: included files, and the commands of targets. Pure.

Variables with a plain value are put in; functions of make, and targets of patterns are not followed. The
texts are the base's.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator, Sequence

MAX_CHARACTERS = 256 * 1024
MOST_COMMANDS = 2000
_INCLUDE = re.compile(r"^[ ]*[-s]?include[ \t]+([^#\n]+)", re.M)
"""Matches `-include build/common.mk`."""
_WILDCARD = re.compile(r"\$[({]wildcard[ \t]+([^(){}]*)[)}]")
"""Matches `$(wildcard *.local.mk)`."""
_VARIABLE = re.compile(r"^[ ]*(?:export[ ]+)?([A-Za-z_]\w*)[ \t]*[:?+]{0,3}=[ \t]*([^#\n]*)", re.M)
"""Matches `PYTHON ?= python3`."""
_RULE = re.compile(r"^([^\s#:=][^:=#]*)::?(?!=)([^=#;]*)(?:;(.*))?$")
"""Matches `test: build lint`; not `A := b`."""
_USE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\})")
"""Matches `$(PYTHON)`."""


def included(text: str) -> Iterator[str]:
    """Yield names and patterns of included files; `$(TOP)/a.mk` is `a.mk` without a value."""
    text = text[:MAX_CHARACTERS].replace("\\\n", " ")
    values = _values(text)
    for found in _INCLUDE.finditer(text):
        for word in _WILDCARD.sub(r"\1", _expanded(found[1], values)).split():
            yield re.sub(r"^(?:\$\([^)]*\)|\$\{[^}]*\})/?", "", word)


def recipes(text: str, words: Sequence[str]) -> Iterator[str]:
    """Yield the commands of the targets in a command's words, else of the first target, with their needs."""
    text = text[:MAX_CHARACTERS].replace("\\\n", " ")
    values = _values(text)
    rules = _rules(text, values)
    waiting = [each for each in words if each in rules] or list(rules)[:1]
    seen: set[str] = set()
    commands = 0
    while waiting:
        target = waiting.pop()
        if target in seen or target not in rules:
            continue
        seen.add(target)
        needs, lines = rules[target]
        waiting += needs
        for line in lines:
            commands += 1
            if commands > MOST_COMMANDS:
                return
            yield _expanded(line.lstrip("\t @+-"), values)


def _values(text: str) -> dict[str, str]:
    values = {found[1]: found[2].strip() for found in _VARIABLE.finditer(text)}
    values |= {"MAKE": "make"}
    return {name: _expanded(value, values) for name, value in values.items()}


def _expanded(text: str, values: dict[str, str]) -> str:
    return _USE.sub(lambda found: values.get(found[1] or found[2], found[0])[:1000], text)


def _rules(text: str, values: dict[str, str]) -> dict[str, tuple[list[str], list[str]]]:
    """Return the needed targets and the commands of each target."""
    rules: dict[str, tuple[list[str], list[str]]] = {}
    targets: list[str] = []
    for line in text.split("\n"):
        if line.startswith("\t"):
            for each in targets:
                rules[each][1].append(line)
            continue
        found = _RULE.match(line)
        if found is None:
            continue
        targets = [each for each in _expanded(found[1], values).split() if each[0] != "."]
        for each in targets:
            needs, lines = rules.setdefault(each, ([], []))
            needs += _expanded(found[2], values).split()
            lines += [found[3]] if found[3] else []
    return rules


def tox_commands(text: str) -> Iterator[str]:
    """Yield the commands in a tox.ini."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text[:MAX_CHARACTERS])
        sections = [dict(parser.items(each)) for each in parser.sections()]
    except (configparser.Error, AttributeError):
        return
    for section in sections:
        for key in ("commands", "commands_pre", "commands_post"):
            for line in (section.get(key) or "").replace("\\\n", " ").split("\n"):
                yield re.sub(r"\{toxinidir\}/?|\{\[?posargs[^}]*\}", "", line).lstrip(" -")
