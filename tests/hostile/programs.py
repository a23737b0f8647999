"""Hostile programs of our own: a class of attack each, for both ways into a sandbox.

They stand in `own/`, a file each, by category; `prelude.txt` goes before each. A program that gets
through prints a line that begins with `ESCAPED`. One that prints none has failed, or has done what only
a look from outside can tell. They run in sandboxes only.
"""

from __future__ import annotations

from pathlib import Path

from hostile.attacks import Attack

_OWN = Path(__file__).parent / "own"


def own_programs() -> list[Attack]:
    """All of them."""
    prelude = (_OWN / "prelude.txt").read_text()
    return [
        Attack(path.stem, f"own {path.parent.name}", prelude + path.read_text())
        for path in sorted(_OWN.glob("*/*.txt"))
    ]
