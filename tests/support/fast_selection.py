"""Folders of tests, at any depth, out of `make test-fast`, and those with make targets of their own."""

from __future__ import annotations

SUITES = frozenset(
    {"agents", "attacks", "benchmarks", "cgroup2", "console", "deploy", "faults", "newest", "suite"}
    | {"versions", "trainers_adapters", "trainers_art", "trainers_harbor", "trainers_trl"}
    | {"trainers_unsloth"}
)
"""Names of folders that `make test` leaves to other targets; the same as in pyproject.toml."""
SLOW_FOLDERS = SUITES | {"contract", "e2e", "fuzz", "hostile", "integrity"}
"""Folders whose tests start real sandboxes, or try many cases: each of these tests is `slow`."""
STARTERS = frozenset({"running_service", "ServiceProcess", "CliRunner", "proctor", "subprocess"})
"""Names by which a module of tests starts services or commands: each of its tests is `service`."""
SERVICES = frozenset({"service", "shared_server"})
"""Fixtures of conftest.py that are services: each test that uses one is `service`."""
