"""Diffs of changes, and reversed diffs, as git applies them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from proctor_service.features.repositories.change import Change, FileState
from proctor_service.features.repositories.diff_text import diff_of_change
from proctor_service.features.repositories.reversal import reversed_patch

LONG = b"".join(b"line %d\n" % number for number in range(30))
BASE = {
    b"a": FileState("644", b"1\n2\n3\n"),
    b"long": FileState("644", LONG),
    b"mode": FileState("644", b"m\n"),
    b"gone": FileState("755", b"g\r\nlone\rreturn"),
    b"link": FileState("link", b"a"),
    b"data": FileState("644", bytes(range(256))),
    b"d/b c": FileState("644", b""),
}
CHANGE = {
    b"a": FileState("644", b"1\n2\n3\n--- 4"),
    b"long": FileState("644", LONG.replace(b"line 15\n", b"").replace(b"line 2\n", b"two\n")),
    b"mode": FileState("755", b"m\n"),
    b"gone": None,
    b"link": FileState("644", b"a file now\n"),
    b"data": FileState("644", b"\0" + bytes(range(255))),
    b'n/"\xff\t': FileState("644", b"new, without an end"),
    b"d/b c": FileState("link", b"../a"),
    b"empty": FileState("644", b""),
}


class _Base:
    def paths(self) -> set[bytes]:
        return set(BASE)

    def state(self, path: bytes) -> FileState | None:
        return BASE.get(path)


def _write(folder: Path) -> None:
    for name, state in BASE.items():
        path = folder / name.decode()
        path.parent.mkdir(exist_ok=True)
        if state.mode == "link":
            path.symlink_to(state.content.decode())
        else:
            path.write_bytes(state.content)
            path.chmod(int(state.mode, 8))


def _read(folder: Path) -> dict[bytes, FileState]:
    found = {}
    for path in folder.rglob("*"):
        name = bytes(path.relative_to(folder))
        if path.is_symlink():
            found[name] = FileState("link", bytes(path.readlink()))
        elif path.is_file():
            mode = path.stat().st_mode & 0o100
            found[name] = FileState("755" if mode else "644", path.read_bytes())
    return found


def _apply(folder: Path, patch: bytes) -> None:
    command = ["git", "apply", "--whitespace=nowarn"]
    done = subprocess.run(command, cwd=folder, input=patch, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_git_makes_the_change_of_a_diff(tmp_path: Path) -> None:
    _write(tmp_path)
    _apply(tmp_path, diff_of_change(Change(CHANGE), _Base()))
    changed = {**BASE, **CHANGE}
    assert _read(tmp_path) == {name: state for name, state in changed.items() if state is not None}


def test_git_undoes_a_change_by_the_reversed_diff(tmp_path: Path) -> None:
    _write(tmp_path)
    change = {name: state for name, state in CHANGE.items() if name != b"data"}
    patch = diff_of_change(Change(change), _Base())
    _apply(tmp_path, patch)
    _apply(tmp_path, reversed_patch(patch))
    assert _read(tmp_path) == BASE


def test_a_rename_is_reversed() -> None:
    patch = b"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"
    assert b"rename from y\nrename to x\n" in reversed_patch(patch)
