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
ON_THE_WIRE = frozenset(["aviato_kept_seconds", "kept_seconds", "max_turns", "kept_order"])


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


def test_no_name_needs_a_private_vocabulary() -> None:
    wrong = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name in set(names_of(path)) - ON_THE_WIRE:
                words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}
                if words & REPLACED or name.strip("_") in VERBS:
                    wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert wrong == []
