"""Packages that a test writes itself, so that uv needs no network; interpreters of this machine."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from proctor_service.features.environments.interpreters import OLDEST, Python, installed

DEFAULT = Path("/proc/self/exe").resolve()
"""The interpreter of the tests itself, which is in no virtual environment."""


def usable_interpreters() -> list[Python]:
    """The interpreters of this machine that environments may have."""
    return [each for each in installed(()) if each.order >= OLDEST]


def write_wheel(
    folder: Path,
    name: str,
    modules: Mapping[str, str],
    version: str = "1.0",
    requires: Sequence[str] = (),
) -> Path:
    """Writes a wheel with these files."""
    information = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {each}\n" for each in requires)
    tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in modules.items():
            archive.writestr(file, text)
        archive.writestr(f"{information}/METADATA", metadata)
        archive.writestr(f"{information}/WHEEL", tag)
        archive.writestr(f"{information}/RECORD", "")
    return path


def write_source(folder: Path, build: str) -> str:
    """Writes a folder whose build runs this code, and fails; returns the requirement."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "proctortest-source"\nversion = "1.0"\n'
    )
    (folder / "backend.py").write_text(
        "def build_wheel(directory, settings=None, metadata=None):\n"
        + "".join(f"    {line}\n" for line in build.splitlines())
    )
    return f"proctortest-source @ {folder.as_uri()}"


def offline(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Has uv know the wheels in a folder alone, with a cache of its own; returns the folder."""
    wheels = folder / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "uv-cache"))
    return wheels
