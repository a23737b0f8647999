"""Cgroups that earlier services left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from proctor_service.sandbox.local.cgroups import remove_tree


def test_a_process_of_another_pid_namespace_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *what: killed.append(what))
    (tmp_path / "cgroup.procs").write_text("0\n4000001\n0\n")  # the kernel writes 0 for it
    remove_tree(tmp_path)
    assert killed == [(4000001, signal.SIGKILL)]
