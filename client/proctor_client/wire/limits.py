"""Resource limits of a program."""

from __future__ import annotations

from pydantic import Field

from proctor_client.wire.base import Request


class Limits(Request):
    """Resource limits of one submission. An omitted field has the server's default."""

    cpu_seconds: float | None = Field(
        None,
        gt=0,
        description="CPU time of all its processes for one test: a call, a statement, a test function or "
        "a case.",
    )
    wall_seconds: float | None = Field(
        None, gt=0, description="Wall time in which it idled, for one test."
    )
    total_cpu_seconds: float | None = Field(
        None,
        gt=0,
        description="CPU time for all tests together. Default: ten times that of one test; for `stdio` none.",
    )
    total_wall_seconds: float | None = Field(
        None, gt=0, description="Idle time for all tests together, with the same default."
    )
    memory_mb: int | None = Field(None, gt=0, description="Memory of all its processes together.")
    output_kb: int | None = Field(None, gt=0, description="Kept of stdout, and of stderr.")
    processes: int | None = Field(None, gt=0, description="Processes and threads at once.")
    disk_mb: int | None = Field(None, gt=0, description="Working directory and /tmp together.")
    network: bool | None = Field(None, description="Reach the network; most servers refuse it.")
