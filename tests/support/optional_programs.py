"""Programs that a test of `make test` uses where they are."""

from __future__ import annotations

import pytest
from needed_programs import all_programs


def skip_without(*names: str) -> None:
    """Skip the test on a machine that lacks one of these programs; it names the target that has them."""
    known = {each.name: each for each in all_programs()}
    lacking = [name for name in names if not known[name].is_here()]
    if lacking:
        pytest.skip(f"no {' and no '.join(lacking)} here: make test-programs")
