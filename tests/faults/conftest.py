"""Faults need nginx and redis-server. `make test-faults` installs nothing; without them it says so."""

from __future__ import annotations

from fault_rig.programs import NEEDED, path_of

for _program in NEEDED:
    path_of(_program)
