"""The cgroups above the service, the memory that there is, and what is said where it is too little."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor_service.sandbox.linux.procfs import out_of_memory_kills
from proctor_service.sandbox.memory_room import MemoryRoom, memory_check, memory_room
from proctor_service.settings import Settings
from proctor_service.settings.cgroups_above import cpu_quota, files_above, kills_path

FIRST = "5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/c/d\n"
SECOND = "0::/c/d\n"


def grown(root: Path, *files: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.mark.parametrize(
    ("own", "files", "found"),
    [
        (FIRST, ["memory/a/b/m1", "memory/m1", "c/d/m2"], ["memory/a/b/m1", "memory/m1"]),
        (FIRST, ["memory/other", "c/d/m2", "c/m2", "m2"], ["c/d/m2", "c/m2", "m2"]),
        (SECOND, ["memory/a/b/m1", "c/d/m2", "m2"], ["c/d/m2", "m2"]),
        (SECOND, ["m2"], ["m2"]),  # the path is the host's, and only the container's own is here
        ("", ["memory/a/b/m1", "c/d/m2"], []),
    ],
)
def test_groups_above_are_found_in_either_version(
    tmp_path: Path, own: str, files: list[str], found: list[str]
) -> None:
    root = grown(tmp_path / "root", *files)
    (tmp_path / "own").write_text(own)
    seen = files_above("memory", ("m1", "m2"), tmp_path / "own", root)
    assert seen == [root / name for name in found]


def test_nothing_is_found_where_a_process_has_no_groups(tmp_path: Path) -> None:
    assert files_above("memory", ("m1",), tmp_path / "missing", tmp_path) == []


def test_kills_for_memory_are_counted_by_the_nearest_group_or_else_by_the_machine(
    tmp_path: Path,
) -> None:
    (tmp_path / "own").write_text(FIRST)
    root = grown(tmp_path / "root", "memory/a/b/memory.oom_control", "memory/memory.oom_control")
    nearest = root / "memory/a/b/memory.oom_control"
    assert kills_path(tmp_path / "own", root) == "/proc/vmstat"  # an old kernel does not count
    nearest.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert kills_path(tmp_path / "own", root) == str(nearest)
    assert out_of_memory_kills(str(nearest)) == 3
    assert kills_path(tmp_path / "missing", root) == "/proc/vmstat"


def test_this_machine_has_memory() -> None:
    room = memory_room()
    assert room is not None
    assert room.megabytes > 0


@pytest.mark.parametrize(
    ("room_mb", "is_enough", "mend"),
    [
        (2048, True, ""),
        (2047, False, "set PROCTOR_SLOTS=3, or PROCTOR_MEMORY_MB=511, or"),
        (700, False, "set PROCTOR_SLOTS=1, or PROCTOR_MEMORY_MB=175, or"),
        (511, False, "set PROCTOR_MEMORY_MB=127, or"),
    ],
)
def test_slots_that_do_not_fit_are_told_with_what_would(
    room_mb: int, is_enough: bool, mend: str
) -> None:
    check = memory_check(Settings(slots=4, memory_mb=512), MemoryRoom(room_mb, "MemAvailable"))
    assert check.ok is is_enough
    assert (check.required, check.guards) == (False, False)
    assert check.detail == (
        "4 slots of 512 MB (memory_mb) may take 2048 MB; "
        f"there are {room_mb} MB by MemAvailable"
    )  # fmt: skip
    assert check.ok or check.mend.startswith(mend)


def test_where_nothing_is_told_nothing_is_wrong() -> None:
    assert memory_check(Settings(slots=4), None).ok


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/c/d\n", {"c/d/cpu.max": "250000 100000", "c/cpu.max": "max 100000"}, 2.5),
        ("0::/c/d\n", {"c/d/cpu.max": "max 100000", "cpu.max": "100000 100000"}, 1.0),
        (
            "5:cpu,cpuacct:/x\n",
            {"cpu/x/cpu.cfs_quota_us": "50000", "cpu/x/cpu.cfs_period_us": "100000"},
            0.5,
        ),
        (
            "5:cpu,cpuacct:/x\n",
            {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"},
            float("inf"),
        ),
        ("0::/c/d\n", {"c/d/cpu.max": "nonsense"}, float("inf")),
    ],
)
def test_a_quota_bounds_the_cores(
    tmp_path: Path, own: str, files: dict[str, str], cores: float
) -> None:
    root = grown(tmp_path / "root", *files)
    for name, text in files.items():
        (root / name).write_text(f"{text}\n")
    (tmp_path / "own").write_text(own)
    assert cpu_quota(tmp_path / "own", root) == cores
