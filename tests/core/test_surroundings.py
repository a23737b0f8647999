"""Memory that is left for more sandboxes, from the machine's figures and those of cgroups."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from proctor_service.sandbox.memory_room import available_below, available_memory_mb

MEBIBYTE = 1 << 20
V1 = {
    "memory.limit_in_bytes": 700 * MEBIBYTE,
    "memory.usage_in_bytes": 500 * MEBIBYTE,
    "memory.stat": f"cache 1\ntotal_inactive_file {100 * MEBIBYTE}\n",
}
V2 = {
    "memory.max": 700 * MEBIBYTE,
    "memory.current": 500 * MEBIBYTE,
    "memory.stat": f"anon 1\ninactive_file {100 * MEBIBYTE}\n",
}


@pytest.mark.parametrize(("version", "files"), [(1, V1), (2, V2)])
def test_what_was_read_of_files_counts_as_free(
    tmp_path: Path, version: int, files: dict[str, object]
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(f"{content}\n")
    assert available_below(tmp_path, version) == 300.0


def test_a_group_without_a_limit_limits_nothing(tmp_path: Path) -> None:
    assert available_below(tmp_path, 2) == math.inf
    (tmp_path / "memory.max").write_text("max\n")
    assert available_below(tmp_path, 2) == math.inf


def test_there_is_no_more_than_the_machine_has() -> None:
    machine_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / MEBIBYTE
    assert 0 < available_memory_mb() < machine_mb
