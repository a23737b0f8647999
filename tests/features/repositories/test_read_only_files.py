"""Which files are read-only while the tests of a task run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from proctor_service.features.repositories.change import FileState
from proctor_service.features.repositories.protection import Protection, Rules
from proctor_service.features.repositories.read_only_files import MOST_FILES, read_only_files

TEXTS = {
    "core.py": "",
    "setup.py": "",
    "conftest.py": "",
    "pytest.ini": "",
    "pyproject.toml": "",
    ".gitignore": "tests/made.py\n",
    "core.egg-info/PKG-INFO": "",
    "tests/test_core.py": "",
    "tests/test_other.py": "",
    "tests/helpers.py": "",
    "tests/made.py": "",
    "tests/data.json": "",
    "tests/out.txt": "",
    "run.sh": "pytest",
}
LISTED = ["tests/test_core.py::test_a"]
BROUGHT = "tests/test_new.py"


class Texts:
    """Implements `change.Base`."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = {name.encode(): text.encode() for name, text in texts.items()}

    def paths(self) -> Collection[bytes]:
        return self._texts.keys()

    def state(self, path: bytes) -> FileState | None:
        return FileState("644", self._texts[path]) if path in self._texts else None


def read_only(texts: Mapping[str, str] = TEXTS, **fields: Any) -> list[str]:
    graded: dict[bytes, FileState | None] = {BROUGHT.encode(): FileState("644", b"")}
    graded[b"tests/test_other.py"] = None
    protection = Protection(listed=LISTED, brought=[BROUGHT.encode()], report="pytest", **fields)
    found = read_only_files(Rules(Texts(texts), protection), graded, [b"core.py", b"setup.py"])
    return [each.decode() for each in found]


USUAL = ["tests/test_core.py", BROUGHT, "conftest.py", "pytest.ini", "tests/helpers.py"]


def without(*names: str) -> list[str]:
    return [each for each in USUAL if each not in names]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, USUAL),
        ({"writable": ["tests/h*.py", "conftest.py"]}, without("tests/helpers.py", "conftest.py")),
        ({"command": ["bash run.sh"]}, ["run.sh", *USUAL]),
    ],
)
def test_code_and_settings_of_the_task(fields: dict[str, Any], wanted: list[str]) -> None:
    assert sorted(read_only(**fields)) == sorted(wanted)


def test_of_many_files_those_come_first_that_decide() -> None:
    many = TEXTS | {f"tests/a{n}.py": "" for n in range(2 * MOST_FILES)}
    found = read_only(many)
    assert len(found) == MOST_FILES
    assert sorted(found[:4]) == sorted(without("tests/helpers.py"))
