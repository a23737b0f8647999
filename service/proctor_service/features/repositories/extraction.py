"""The diff, or the edits, in a completion. Pure, no I/O, linear time."""

from __future__ import annotations


def diff_of(text: str) -> str:
    """Return the unified diff in a completion; "" without one."""
    raise NotImplementedError


def edits_of(text: str) -> str:
    """Return the blocks of search and replace in a completion, with their paths; "" without one."""
    raise NotImplementedError
