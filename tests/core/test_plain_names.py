"""Names of modules, classes, functions and fields are terms of the field; CONTRIBUTING.md has a glossary."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "service/proctor_service",
    "client/proctor_client",
    "trainers/proctor_trainers",
)
REPLACED = frozenset(
    [
        "corridor",
        "desk",
        "rooms",
        "exam",
        "mirror",
        "mirrors",
        "mention",
        "mentions",
        "surroundings",
        "showing",
        "refusals",
        "errand",
        "errands",
        "becoming",
        "leaving",
        "nursery",
        "birth",
        "births",
        "midwife",
        "stillborn",
        "graves",
        "furnish",
        "furnished",
        "kept",
        "shelf",
        "manner",
        "asking",
        "stage",
        "ledger",
        "warden",
        "tally",
        "findings",
        "inn",
        "hotel",
        "resting",
    ]
)
"""Words that no name may hold: each has a plain term instead."""
VERBS = frozenset(["look", "tell", "settle"])
"""Verbs that are no name by themselves: a name says what the verb's object is."""
ON_THE_WIRE = frozenset(["kept_seconds", "max_turns", "kept_order", "mend"])
"""Names that users have: on the wire, in settings, metrics, commands and the public client."""
PARTICIPLES = frozenset(["kept", "said", "told", "tell", "asked", "handed", "given", "known"])
"""Words that are no name by themselves, of a local neither: a noun says what the value is."""
AMBIGUOUS = frozenset(["Plan", "Entry", "Store", "Pool", "Told", "Check", "Execution"])
"""Classes whose name several things shared: `CallPlan`, `JournalEntry`, `AnswerStore` … say which."""
METAPHORS = frozenset(["midwife", "stillborn", "graves", "befalls", "mend"])
WITH_PLAIN_LOCALS = (
    "service/proctor_service",
    "client/proctor_client",
    "trainers/proctor_trainers",
)
"""Packages whose locals, parameters and attributes are checked."""


def names_of(path: Path) -> Iterator[str]:
    """The names that a module defines, and its own."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            yield node.name
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    yield each.target.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def bound_names(tree: ast.AST) -> Iterator[str]:
    """The names that a module binds: definitions, parameters, locals and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case ast.arg():
                yield node.arg
            case ast.alias(asname=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name
            case ast.ExceptHandler(name=str(name)):
                yield name


def is_plain(name: str) -> bool:
    """Return True for a name that is a noun, and no metaphor."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}
    return name.strip("_") not in PARTICIPLES | AMBIGUOUS and not words & METAPHORS


def test_definitions_locals_and_attributes_are_nouns() -> None:
    wrong = []
    for package in WITH_PLAIN_LOCALS:
        for path in sorted((ROOT / package).rglob("*.py")):
            names = set(bound_names(ast.parse(path.read_text()))) - ON_THE_WIRE
            wrong += [f"{path.relative_to(ROOT)}: {each}" for each in names if not is_plain(each)]
            if path.stem.startswith("test_"):  # taken for tests
                wrong.append(str(path.relative_to(ROOT)))
    assert wrong == []


def test_the_check_of_names_sees_every_way_to_bind_one() -> None:
    module = """
import a as told
class Plan:
    kept: int
def said(asked, *given, known=1, **handed):
    self._kept = [told for told in asked]
    with a as known: pass
    match asked:
        case [tell, *handed]: pass
def _mend(): pass
"""
    wrong = {name for name in bound_names(ast.parse(module)) if not is_plain(name)}
    assert wrong == PARTICIPLES | {"Plan", "_kept", "_mend"}
    assert all(map(is_plain, ["kept_seconds", "is_known", "CallPlan", "recommended"]))


def test_no_name_needs_a_private_vocabulary() -> None:
    wrong = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name in set(names_of(path)) - ON_THE_WIRE:
                words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}
                if words & REPLACED or name.strip("_") in VERBS:
                    wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert wrong == []
