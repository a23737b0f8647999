"""The `pytest` grader with each pytest that it works with, from interpreters that have nothing else."""

from __future__ import annotations

import venv
from collections.abc import Iterator
from typing import Any

import pytest
from harness import Service, running_service
from judging import judge
from pytest_environments import VERSIONS, interpreter
from visible_folder import visible_folder

from proctor_service.settings import Settings

TESTS = """
import pytest
from solution import f

@pytest.mark.parametrize("x,y", [(1, 2), (3, 6)])
def test_parameters(x, y): assert f(x) == y

def test_raises():
    with pytest.raises(TypeError): f(None)

def test_approx(): assert f(0.1) == pytest.approx(0.2)
"""
UNITS = """
import unittest
from solution import f

class Unit(unittest.TestCase):
    def test_one(self): self.assertEqual(f(1), 2)
    def test_parts(self):
        for x in range(3):
            with self.subTest(x=x): self.assertEqual(f(x), 2 * x)
    @unittest.skip("not now")
    def test_skipped(self): assert 0
"""
RIGHT = "def f(x): return 2 * x"
VERDICTS = {
    RIGHT: "passed",
    "import unittest, unittest.mock\n" + RIGHT: "passed",
    "def f(x): return 2": "failed",
    "def f(x): raise KeyError('no')": "failed",
    "import pytest\ndef f(x): pytest.skip('no')": "failed",
    "import unittest\ndef f(x): raise unittest.SkipTest": "failed",
    "import sys\ndef f(x): sys.exit(0)": "failed",
    "def f(x) return": "syntax_error",
    "f = unknown": "runtime_error",
    "import pytest\npytest.skip('no', allow_module_level=True)": "runtime_error",
    "import sys\nsys.exit(0)": "early_exit",
    "import os\ndef f(x): os._exit(0)": "early_exit",
    "import pytest\ndef f(x): pytest.exit('no', returncode=0)": "early_exit",
}


@pytest.fixture(scope="module", params=[*VERSIONS, "the service's"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """With a pytest of the sandboxes' interpreter; or the service's, where that interpreter has none."""
    with visible_folder() as folder:
        if request.param in VERSIONS:
            python = interpreter(request.param)
        else:
            venv.create(folder / "venv", with_pip=False)
            python = folder / "venv" / "bin" / "python"
        with running_service(Settings(sandbox_python=python), judge=None) as running:
            yield running


def grader(text: str) -> dict[str, Any]:
    return {"kind": "pytest", "files": {"test_it.py": text}}


@pytest.mark.parametrize("text", [TESTS, UNITS, TESTS + UNITS], ids=["pytest", "unittest", "both"])
def test_verdicts_are_the_same_with_every_pytest(service: Service, text: str) -> None:
    results = judge(service, *({"completion": source} for source in VERDICTS), grader=grader(text))
    for (source, verdict), result in zip(VERDICTS.items(), results, strict=True):
        assert (source, result["verdict"]) == (source, verdict)
        assert result["reward"] == (1.0 if verdict == "passed" else 0.0)
