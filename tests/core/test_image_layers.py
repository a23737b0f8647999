"""Changes of an image's sandbox that are applied to another one."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from proctor_service.guest.session import layer


def open_files() -> set[int]:
    """The descriptors of this process."""
    return {int(each.name) for each in Path("/proc/self/fd").iterdir()}


def test_a_folder_of_any_depth_is_removed_with_few_descriptors(tmp_path: Path) -> None:
    deep = os.open(tmp_path, os.O_RDONLY)
    for name in ["old", *["d"] * 300]:
        os.mkdir(name, dir_fd=deep)
        below = os.open(name, os.O_RDONLY, dir_fd=deep)
        for each in ("file", "other"):
            os.close(os.open(each, os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(deep)
        deep = below
    os.close(deep)
    (tmp_path / "old" / "link").symlink_to(tmp_path)
    (tmp_path / "kept").touch()
    here = os.open(tmp_path, os.O_RDONLY)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_files()) + 8, limits[1]))
    try:
        layer._remove(here, "old")
        layer._remove(here, "missing")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(here)
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_a_folder_that_cannot_be_removed_leaves_no_descriptor_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old" / "below").mkdir(parents=True)
    here = os.open(tmp_path, os.O_RDONLY)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr("proctor_service.guest.session.layer.os.rmdir", refuse)
    before = open_files()
    with pytest.raises(PermissionError):
        layer._remove(here, "old")
    assert open_files() == before
    os.close(here)
