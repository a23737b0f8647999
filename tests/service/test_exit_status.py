"""Whose a failure is, while the kernel kills processes for memory and no cgroup tells whose."""

from __future__ import annotations

import pytest

from proctor_service.sandbox.interface import Ending, Limits, Usage
from proctor_service.sandbox.linux.exit_status import Evidence, ended_by, outside_cause

KILLED = 9


@pytest.mark.parametrize(
    ("status", "stopped_for", "cpu_seconds", "ending", "is_doubted"),
    [
        (0, None, 0.0, "exited", True),
        (KILLED, "killed", 0.0, "killed", True),
        (KILLED, "memory_limit", 0.0, "memory_limit", False),
        (KILLED, "output_limit", 0.0, "output_limit", False),
        (KILLED, "cpu_limit", 99.0, "cpu_limit", False),
    ],
)
def test_a_limit_that_a_program_reached_is_its_own_failure(
    status: int, stopped_for: Ending | None, cpu_seconds: float, ending: Ending, is_doubted: bool
) -> None:
    limits = Limits(
        cpu_seconds=5, wall_seconds=5, memory_mb=64, output_kb=64, processes=8, disk_mb=16
    )
    evidence = Evidence(status, stopped_for, 0, cpu_seconds, kills_around=1)
    ended = ended_by(evidence, limits, stdout=b"", stderr=b"", truncated=False, usage=Usage())
    assert outside_cause(evidence, limits) is None
    assert (ended.ending, bool(ended.doubt)) == (ending, is_doubted)
