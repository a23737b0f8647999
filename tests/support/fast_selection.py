"""The tests that `make test-fast` leaves out."""

from __future__ import annotations

SLOW_FOLDERS = frozenset({"contract", "e2e", "fuzz", "hostile", "integrity"})
"""Folders whose tests start real sandboxes, or try many cases: each of these tests is `slow`."""
