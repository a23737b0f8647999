"""Whose a failure is, while the kernel kills processes for memory and no cgroup tells whose."""

from __future__ import annotations

import pytest

from proctor_service.sandbox.interface import Ending, Usage
from proctor_service.sandbox.linux.channel import (
    SHORT_OF_OBJECTS,
    Evidence,
    ended_by,
    outside_cause,
)

KILLED = 9


@pytest.mark.parametrize(
    ("status", "stopped_for", "cpu_exceeded", "ending", "is_doubted"),
    [
        (0, None, False, "exited", True),
        (KILLED, "killed", False, "killed", True),
        (KILLED, "memory_limit", False, "memory_limit", False),
        (KILLED, "output_limit", False, "output_limit", False),
        (KILLED, "cpu_limit", True, "cpu_limit", False),
    ],
)
def test_a_limit_that_a_program_reached_is_its_own_failure(
    status: int, stopped_for: Ending | None, cpu_exceeded: bool, ending: Ending, is_doubted: bool
) -> None:
    evidence = Evidence(status, stopped_for, 0, cpu_exceeded, kills_around=1)
    ended = ended_by(evidence, stdout=b"", stderr=b"", truncated=False, usage=Usage())
    assert outside_cause(evidence) is None
    assert (ended.ending, bool(ended.doubt)) == (ending, is_doubted)


@pytest.mark.parametrize(
    ("status", "stopped_for", "cause", "is_doubted"),
    [
        (0, None, None, True),  # what it printed may be wrong by it
        (1 << 8, None, SHORT_OF_OBJECTS, True),
        (KILLED, "wall_limit", SHORT_OF_OBJECTS, True),
        (KILLED, "cpu_limit", SHORT_OF_OBJECTS, True),
        (KILLED, "memory_limit", None, False),
        (KILLED, "output_limit", None, False),
    ],
)
def test_in_a_shortage_of_kernel_objects_a_failure_has_no_verdict(
    status: int, stopped_for: Ending | None, cause: str | None, is_doubted: bool
) -> None:
    evidence = Evidence(status, stopped_for, 0, False, in_shortage=True)
    ended = ended_by(evidence, stdout=b"", stderr=b"", truncated=False, usage=Usage())
    assert outside_cause(evidence) == cause
    assert bool(ended.doubt) == is_doubted
