"""Images with Python 3.8 to 3.10: every grader for Python code, with the verdicts of newer ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import running_service
from host_image import write_image
from tiny_packages import DEFAULT

from proctor_client import Client
from proctor_service.features.environments.interpreters import installed
from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.settings import Settings
from proctor_service.settings.environments import read_environments

VERSIONS = ((3, 8), (3, 9), (3, 10))
F = "def f(x, *, by=1):\n    return [x + by] if x else {'a': (x, 2.5)}\n"
POINT = """
from dataclasses import dataclass
@dataclass
class Point:
    x: int
    def moved(self, by):
        return Point(self.x + by)
def points():
    for x in range(3):
        yield Point(x)
"""
UNIT = """
import unittest
from solution import f
class T(unittest.TestCase):
    def test_one(self):
        self.assertEqual(f(1), [2])
    def test_two(self):
        self.assertEqual(f(0), {'a': (0, 2.5)})
"""
RAISES = "try:\n    f(1)\nexcept KeyError as e:\n    assert e.args == (1,)\nelse:\n    assert 0"
ALWAYS_EQUAL = "class A:\n    def __eq__(self, o): return True\ndef f(x): return A()"
MAIN = "import sys\ndef f(x):\n    return x\ndef main():\n    sys.exit(0)\n"
SEVENTH = {"stdin": "7\n", "stdout": "49"}


def asserts(test: str, **more: Any) -> dict[str, Any]:
    return {"kind": "asserts", "tests": [test], **more}


def command(*argv: str) -> dict[str, Any]:
    return {"kind": "command", "argv": argv}


def calls(*cases: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "calls", "entry_point": "f", "cases": cases}


CASES: list[tuple[str, dict[str, Any], float]] = [
    ("import sys; assert sys.version_info[:2] < (3, 11)", {"kind": "exec"}, 1.0),
    ("raise ValueError('x')", {"kind": "exec"}, 0.0),
    (F, asserts("assert f(1) == [2] and f(0)['a'][1] == 2.5"), 1.0),
    (F, asserts("assert f(1) == [3]"), 0.0),
    (F, asserts("assert f(1) == [2]", integrity="in_process"), 1.0),
    (F, asserts("assert f(1) == [3]", integrity="in_process"), 0.0),
    (F, asserts(UNIT), 1.0),
    (F, asserts(UNIT.replace("2.5", "3.5")), 0.0),
    (POINT, asserts("assert [p.moved(1).x for p in points()] == [1, 2, 3]"), 1.0),
    ("def f(x):\n    raise KeyError(x)", asserts(RAISES), 1.0),
    ("def f(x):\n    pass", asserts(RAISES), 0.0),
    (ALWAYS_EQUAL, asserts("assert f(1) == 2"), 0.0),
    (
        "async def f(x):\n    return x",
        asserts("import asyncio\nassert asyncio.run(f(1)) == 1"),
        1.0,
    ),
    (
        F,
        calls({"args": [1], "expected": [2]}, {"args": [1], "kwargs": {"by": 4}, "expected": [5]}),
        1.0,
    ),
    (F, calls({"args": [1], "expected": [2]}, {"args": [1], "expected": 2}), 0.0),
    ("print(int(input()) ** 2)", {"kind": "stdio", "cases": [SEVENTH]}, 1.0),
    ("print(int(input()) ** 3)", {"kind": "stdio", "cases": [SEVENTH]}, 0.0),
    ("open('made', 'w').write('x')", command("python3", "solution.py"), 1.0),
    ("import sys; sys.exit(3)", command("python3", "solution.py"), 0.0),
    # A program may exit as its own last action; one that exits before has skipped the tests.
    (MAIN + "main()", asserts("assert f(1) == 1"), 1.0),
    (MAIN + "if __name__ == '__main__':\n    sys.exit(main())", asserts("assert f(1) == 1"), 1.0),
    (MAIN + "raise SystemExit(0)", asserts("assert f(1) == 1"), 1.0),
    (MAIN + "raise SystemExit(0)", asserts("assert f(1) == 2"), 0.0),
    ("import os\ndef f(x):\n    os._exit(0)", asserts("assert f(1) == 2"), 0.0),
    (MAIN.replace("return x", "sys.exit(0)"), asserts("assert f(1) == 2"), 0.0),
    (MAIN.replace("return x", "sys.exit(0)") + "f(main)", {"kind": "exec"}, 1.0),
    (MAIN, {"kind": "exec", "tests": "assert f(1) == 1; main(); assert 0"}, 0.0),
    ("def f(x): exit(0)", {"kind": "exec", "tests": "print(f(1)); exit(0)"}, 0.0),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("old-pythons")
    lines = []
    for version in VERSIONS:
        image = write_image(folder / _name(version), python=_interpreter(version))
        lines.append(f"[environments.{_name(version)}]\nimage = {json.dumps(image)}\n")
    file = folder / "environments.toml"
    file.write_text("".join(lines))
    for name, definition in read_environments(file).items():
        EnvironmentStore(folder / "store").build(name, definition, DEFAULT)
    chosen = Settings(slots=2, environments=file, environments_folder=folder / "store")
    with running_service(chosen, judge=None) as service, Client(service.url) as opened:
        yield opened


def _name(version: tuple[int, int]) -> str:
    return f"python{version[0]}{version[1]}"


def _interpreter(version: tuple[int, int]) -> Path:
    for each in installed(version[1:]):
        return each.base
    wanted = ".".join(map(str, version))
    raise AssertionError(f"needs Python {wanted}: uv python install {wanted}, or pyenv")


@pytest.mark.parametrize("version", VERSIONS)
def test_each_grader_gives_the_verdict_of_a_newer_python(
    client: Client, version: tuple[int, int]
) -> None:
    submissions = [
        {"completion": source, "grader": grader, "environment": _name(version)}
        for source, grader, _ in CASES
    ]
    results = client.reward(submissions, extract="none").results
    got = [(result.reward, result.error) for result in results]
    for (source, grader, reward), found in zip(CASES, got, strict=True):
        assert found == (reward, None), (source, grader)


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_pytest_for_it_there_is_no_verdict(
    client: Client, version: tuple[int, int]
) -> None:
    test = "from solution import f\ndef test_f():\n    assert f(1) == [3]\n"
    submission = {
        "completion": F,
        "grader": {"kind": "pytest", "files": {"test_f.py": test}},
        "environment": _name(version),
    }
    [result] = client.reward([submission], extract="none").results
    assert result.reward is None
    assert result.error is not None
    assert result.error.reason == "invalid_task"
    wanted = f"the environment has no pytest for its Python {version[0]}.{version[1]}: "
    assert wanted in result.error.message
