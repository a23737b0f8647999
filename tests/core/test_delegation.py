"""Which group of cgroup v2 a service makes its groups in, told from files as the kernel has them.

`make test-cgroup2` asks a kernel.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from proctor_service.sandbox.linux.delegation import delegated, own_group, shares_cores

NEEDED = "cpu memory pids\n"


def group_at(path: Path, *, available: str = NEEDED, enabled: str = "", type_: bool = True) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.controllers").write_text(available)
    (path / "cgroup.subtree_control").write_text(enabled)
    (path / "cgroup.procs").write_text("1\n7\n")
    if type_:
        (path / "cgroup.type").write_text("domain\n")
    return path


@pytest.mark.parametrize(
    ("own", "is_mounted", "found"),
    [
        ("0::/a b/c\n", True, "a b/c"),
        ("1:name=systemd:/x\n0::/\n", True, ""),
        ("5:memory:/x\n", True, None),
        ("0::/a\n", False, None),
    ],
)
def test_its_group_is_that_of_version_2(
    tmp_path: Path, own: str, is_mounted: bool, found: str | None
) -> None:
    (tmp_path / "own").write_text(own)
    if is_mounted:
        (tmp_path / "cgroup.controllers").write_text(NEEDED)
    expected = None if found is None else tmp_path / found
    assert own_group(tmp_path / "own", tmp_path) == expected


def test_the_service_moves_into_a_group_of_its_own(tmp_path: Path) -> None:
    own = group_at(tmp_path / "unit")
    assert delegated(own, tmp_path) == own
    assert (own / "proctor-service" / "cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_what_starts_in_the_service_group_uses_its_parent(tmp_path: Path) -> None:
    own = group_at(tmp_path / "unit", enabled=NEEDED)
    inner = group_at(own / "proctor-service")
    assert delegated(inner, tmp_path) == own
    assert (inner / "cgroup.subtree_control").read_text() == ""
    assert [path.name for path in inner.iterdir() if path.is_dir()] == []


def test_all_processes_of_a_container_move(tmp_path: Path) -> None:
    group_at(tmp_path)
    assert delegated(tmp_path, tmp_path) == tmp_path
    assert (
        tmp_path / "proctor-service" / "cgroup.procs"
    ).read_text() == "7"  # the last one written


def test_the_root_of_the_machine_keeps_its_processes(tmp_path: Path) -> None:
    group_at(tmp_path, type_=False)
    assert delegated(tmp_path, tmp_path) == tmp_path
    assert not (tmp_path / "proctor-service").exists()


def test_a_missing_controller_is_named(tmp_path: Path) -> None:
    own = group_at(tmp_path / "unit", available="cpu pids\n")
    group_at(tmp_path, available="cpu\n")
    assert delegated(own, tmp_path) == f"{own} has no memory and pids controllers"
    assert delegated(tmp_path / "none", tmp_path) == (
        f"{tmp_path}/none is not delegated to this user: No such file or directory"
    )


def test_other_processes_in_its_group_are_named_and_it_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = group_at(tmp_path / "unit")
    write_text = Path.write_text

    def refused(path: Path, text: str) -> int:
        if path.name == "cgroup.subtree_control":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return write_text(path, text)

    monkeypatch.setattr(Path, "write_text", refused)
    said = delegated(own, tmp_path)
    assert isinstance(said, str)
    assert "has other processes, too" in said
    assert (own / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({}, "slice"),
        ({"slice/session/memory.max": "max\n", "slice/session/cpu.max": "max 100000\n"}, "slice"),
        ({"slice/session/cpuset.cpus": "\n", "slice/pids.max": "4915\n"}, "slice"),
        ({"slice/session/pids.max": "4915\n"}, None),
        ({"slice/session/cpu.max": "50000 100000\n"}, None),
        ({"slice/session/io.max": "8:0 rbps=1000 wbps=max\n"}, None),
        ({"slice/cgroup.controllers": "cpu pids\n"}, ""),
        ({"slice/cgroup.controllers": "cpu pids\n", "slice/memory.high": "4096\n"}, None),
        ({"slice/cgroup.controllers": "\n", "cgroup.controllers": "cpu\n"}, None),
    ],
)
def test_without_controllers_the_nearest_group_above_is_taken_unless_a_limit_is_between(
    tmp_path: Path, limits: dict[str, str], found: str | None
) -> None:
    for path in ("", "slice"):
        group_at(tmp_path / path)
    own = group_at(tmp_path / "slice" / "session", available="")
    for name, text in limits.items():
        (tmp_path / name).write_text(text)
    expected = f"{own} has no memory and pids controllers" if found is None else tmp_path / found
    assert delegated(own, tmp_path) == expected
    if found is not None:
        assert (tmp_path / found / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert (own / "cgroup.procs").read_text() == "1\n7\n"


def test_a_group_outside_of_the_namespace_has_none_above(tmp_path: Path) -> None:
    root = group_at(tmp_path / "root")
    assert isinstance(delegated(root / ".." / "other", root), str)


def test_weights_need_the_cpu_controller(tmp_path: Path) -> None:
    own = group_at(tmp_path / "unit", enabled="memory pids")
    assert shares_cores(own)
    assert (own / "cgroup.subtree_control").read_text() == "+cpu"
    assert not shares_cores(tmp_path / "none")
