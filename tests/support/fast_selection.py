"""The tests that `make test-fast` leaves out."""

from __future__ import annotations

SLOW_FOLDERS = frozenset(
    {"cgroup2", "console", "contract", "deploy", "e2e", "faults", "fuzz", "hostile", "integrity"}
    | {"trainers_adapters", "trainers_art", "trainers_harbor", "trainers_trl", "trainers_unsloth"}
)
"""Folders whose tests start real sandboxes, or try many cases: each of these tests is `slow`."""
