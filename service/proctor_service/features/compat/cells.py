"""Notebook cells: the program that runs the cells, and the parser of its reports.

The program is `guest/notebook.py`, sent as text. Its reports are untrusted, like any output of a
program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources

from pydantic import BaseModel, ValidationError

from proctor_service.features.compat.handler import limits
from proctor_service.features.compat.program_runner import Program, Ran
from proctor_service.rewards.machine import Machine
from proctor_service.sandbox.interface import MAX_FILE_BYTES

OUTPUT_KB = 8192  # larger than the program's reports
MOST_CELLS = 1000


class CellError(BaseModel):
    """An exception in a cell."""

    ename: str
    evalue: str
    traceback: list[str]


class Cell(BaseModel):
    """Report of a cell: output, displayed data, errors, and `value` of its last expression as text.

    `value` is None for a cell without a value.
    """

    stdout: str
    stderr: str
    display: list[dict[str, str]]
    value: str | None
    error: list[CellError]


class Kernel:
    """Builds the program that runs cells."""

    def __init__(self) -> None:
        self._source = resources.files("proctor_service.guest").joinpath("notebook.py").read_text()

    def program(
        self,
        machine: Machine,
        cells: Sequence[str],
        seconds: float,
        *,
        cell_seconds: float = 0.0,
        memory_mb: int | None = None,
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
    ) -> Program:
        """Return a program that runs the cells in order.

        `cell_seconds`: limit for each cell; 0 means without a limit.
        """
        settings = machine.settings
        job = {"cells": list(cells), "cell_seconds": min(cell_seconds, settings.max_wall_seconds)}
        wire_limits = limits(settings, seconds, memory_mb=memory_mb, output_kb=OUTPUT_KB)
        return Program(
            source=self._source,
            limits=machine.limits(wire_limits, "limits"),
            run_seconds=min(seconds, settings.max_wall_seconds),
            stdin=json.dumps(job).encode(),
            files=files or {},
            fetch=tuple(fetch),
            fetch_bytes=MAX_FILE_BYTES,
        )


def reported(ran: Ran, most: int) -> list[Cell]:
    """Return the reports of the finished cells, at most `most` of them."""
    cells: list[Cell] = []
    output = b"" if ran.ran is None else ran.ran.stdout
    for line in output.split(b"\n", most)[:most]:
        try:
            cells.append(Cell.model_validate(json.loads(line)))
        except (ValueError, RecursionError, ValidationError):
            break  # an incomplete or forged report
    return cells
