"""Interpreters by version: found where uv, pyenv and the system have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_packages import DEFAULT, usable_interpreters

from proctor_service.errors import StartError
from proctor_service.features.environments.interpreters import (
    find_interpreter,
    find_python,
    inspect,
    installed,
)


def test_a_version_finds_its_newest_patch() -> None:
    interpreters = usable_interpreters()
    assert interpreters
    for each in interpreters:
        minor = each.order[:2]
        newest = max(p.order for p in interpreters if p.order[:2] == minor)
        found = find_interpreter(".".join(map(str, minor)), Path("/missing"))
        assert found.order == newest
        exact = find_interpreter(".".join(map(str, each.order[:3])), Path("/missing"))
        assert exact.version == each.version
        assert not exact.executable.is_symlink()


def test_nothing_finds_the_default_and_a_path_its_interpreter() -> None:
    assert find_python("", DEFAULT) == DEFAULT
    assert find_python(str(DEFAULT), Path("/missing")) == DEFAULT


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("3.99", "Python 3.99 was not found"),
        ("3.11.99", "`uv python install 3.11.99`"),
        ("3.10", "Python 3.10 is too old: sandboxes need 3.11 or later"),
        ("2.7.18", "too old"),
        ("python3.12", "neither a version such as 3.12 nor an absolute path"),
        ("venv/bin/python", "neither a version"),
        ("/missing/python", "/missing/python: No such file or directory"),
        ("/bin/cat", "/bin/cat is no interpreter"),
        ("/etc/passwd", "/etc/passwd is no interpreter"),
    ],
)
def test_an_interpreter_that_cannot_be_used_is_named(wanted: str, words: str) -> None:
    with pytest.raises(StartError) as raised:
        find_python(wanted, DEFAULT)
    assert words in str(raised.value)


def test_the_words_for_a_missing_version_have_those_that_are_there() -> None:
    with pytest.raises(StartError) as raised:
        find_python("3.99", DEFAULT)
    assert all(each.version in str(raised.value) for each in usable_interpreters())


def test_pyenv_is_searched_and_its_shims_are_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = inspect(DEFAULT)
    name = "python" + ".".join(map(str, python.order[:2]))
    binaries, shims = tmp_path / "versions" / python.version / "bin", tmp_path / "shims"
    for each in (binaries, shims):
        each.mkdir(parents=True)
    (binaries / name).symlink_to(DEFAULT)
    unselected, selected = shims / name, shims / "python3"
    unselected.write_text(f"#!/bin/sh\necho 'pyenv: {name}: command not found' >&2\nexit 127\n")
    selected.write_text(f'#!/bin/sh\nexec "{DEFAULT}" "$@"\n')
    for shim in (selected, unselected):
        shim.chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", f"{shims}:/usr/bin:/bin")
    assert find_python(str(selected), Path("/missing")) == DEFAULT
    for wanted in (str(unselected), name.removeprefix("python")):
        found = find_python(wanted, Path("/missing"))
        assert found.read_bytes()[:2] != b"#!"
        assert inspect(found).order[:2] == python.order[:2]
    assert DEFAULT in {each.base for each in installed(())}


def test_interpreters_of_uv_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = inspect(DEFAULT)
    binaries = tmp_path / f"cpython-{python.version}-linux" / "bin"
    binaries.mkdir(parents=True)
    (binaries / ("python" + ".".join(map(str, python.order[:2])))).symlink_to(DEFAULT)
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", "/missing")
    assert installed(())[0].base == DEFAULT
