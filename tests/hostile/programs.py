"""Hostile programs of our own: a class of attack each, for both ways into a sandbox.

They stand in `own/`, a file each, by category; `prelude.txt` goes before each. A program that gets
through prints a line that begins with `ESCAPED`. One that prints none has failed, or has done what only
a look from outside can tell. They run in sandboxes only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shared_data import shared_data

from hostile.attacks import Attack

# What a program of the shared data would print if a wall had a hole.
ESCAPED = ("CONNECTED", "RESOLVED", "ANSWER", "READ ", "ROOT ", "WROTE", "RAISED", "MOUNTED", "UMOUNTED",
           "CHROOT")  # fmt: skip

_OWN = Path(__file__).parent / "own"


def own_programs() -> list[Attack]:
    """All of them."""
    prelude = (_OWN / "prelude.txt").read_text()
    return [
        Attack(path.stem, f"own {path.parent.name}", prelude + path.read_text())
        for path in sorted(_OWN.glob("*/*.txt"))
    ]


def shared_programs() -> list[Attack]:
    """Return the hostile programs of the shared data. Skips the test where the data are not here."""
    entries: list[dict[str, Any]] = [
        json.loads(line) for line in shared_data("hostile.jsonl").read_text().splitlines()
    ]
    return [
        Attack(entry["id"], entry["category"], entry["completion"], ESCAPED) for entry in entries
    ]
