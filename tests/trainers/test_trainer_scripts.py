"""The scripts where there is no trainer: their help, their mistakes, the demo, and what they import."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Service
from waits import WAIT_SECONDS

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ("trl", "unsloth")
PROGRAM = """
import json, sys
before = set(sys.modules)
import proctor_trainers.trl, proctor_trainers.unsloth, proctor_trainers.demo
import proctor_trainers.grpo, proctor_trainers.problems, proctor_trainers.trl.__main__
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT / name) for name in ("client", "service", "trainers")]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**clean, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


def test_importing_the_adapters_imports_no_trainer_and_nothing_of_the_service() -> None:
    done = run("-c", PROGRAM)
    loaded = set(json.loads(done.stdout))
    assert loaded >= {"proctor_trainers", "proctor_client"}
    assert not loaded & {"torch", "trl", "transformers", "datasets", "unsloth", "wandb"}
    assert not loaded & {"proctor_service", "fastapi", "typer", "numpy"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_help_is_complete(script: str) -> None:
    done = run("-m", f"proctor_trainers.{script}", "--help")
    assert done.returncode == 0
    for option in ("--model", "--steps", "--dataset", "--url", "--report-to", "--output-dir"):
        assert option in done.stdout
    own = {
        "trl": ("--tiny", "--tools", "Qwen/Qwen2.5-0.5B-Instruct"),
        "unsloth": ("--load-in-4bit",),
    }
    assert all(option in done.stdout for option in own[script])


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_missing_extra_is_named(script: str) -> None:
    assert importlib.util.find_spec("torch") is None, "these tests run without a trainer"
    done = run("-m", f"proctor_trainers.{script}", "--steps", "1")
    assert done.returncode == 1
    assert f"pip install 'proctor-trainers[{script}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_argument_is_told() -> None:
    done = run("-m", "proctor_trainers.trl", "--steps", "0")
    assert done.returncode == 2
    assert "--steps: it must be 1 or more" in done.stderr


@pytest.mark.slow
def test_the_demo_at_a_service(service: Service) -> None:
    done = run("-m", "proctor_trainers.demo", "--url", service.url)
    assert done.returncode == 0, done.stderr
    line, *rewards = done.stdout.splitlines()
    assert line.startswith(
        "[proctor] reward call 1: 8 judged, 3 passed, 1 skipped (no code), 0 unavailable, "
    )
    assert [each.split()[0] for each in rewards] == [
        *["1.0", "0.0", "0.0", "0.0", "1.0", "1.0", "0.0", "0.0"]
    ]


@pytest.mark.slow
def test_the_demo_at_a_service_of_its_own() -> None:
    done = run("-m", "proctor_trainers.demo")
    assert done.returncode == 0, done.stderr
    assert "8 judged, 3 passed" in done.stdout


def test_the_demo_where_no_service_answers() -> None:
    done = run("-m", "proctor_trainers.demo", PROCTOR_URL="http://127.0.0.1:1")
    assert done.returncode == 1
    assert "error: no service at http://127.0.0.1:1" in done.stderr
    assert "start one with: proctor serve" in done.stderr
    assert "Traceback" not in done.stderr
