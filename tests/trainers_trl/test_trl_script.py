"""`python -m proctor_trainers.trl`, from the command line, on a CPU; and Unsloth's, which needs more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from service_process import ServiceProcess

ROOT = Path(__file__).resolve().parents[2]


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT / "client"), str(ROOT / "trainers")])
    return subprocess.run(
        [sys.executable, "-m", f"proctor_trainers.{script}", *arguments],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("tools", [(), ("--tools",)])
def test_a_tiny_model_trains(
    tools: tuple[str, ...], service: ServiceProcess, tmp_path: Path
) -> None:
    done = run(
        *["trl", "--tiny", "--steps", "3", "--url", service.url, *tools],
        *["--num-generations", "4", "--batch-size", "4", "--max-completion-length", "16"],
        *["--dataset-limit", "2", "--output-dir", str(tmp_path / "model")],
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    if not tools:
        for number in (1, 2, 3):
            assert f"[proctor] reward call {number}: 4 judged, " in done.stdout
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(
        r"Trained 3 steps in [\d.]+ s: reward 0\.000 at first, 0\.000 at last", last
    )
    assert (tmp_path / "model" / "config.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tiny", "--batch-size", "3"], "error: .*divisible"),
        (["--model", "/nowhere/at/all"], "error: the model /nowhere/at/all could not be loaded"),
        (["--tiny", "--dataset", "nowhere.jsonl"], "error: nowhere.jsonl: no such file"),
        (["--tiny", "--dataset", "no/such"], "error: the data set no/such .train. could not be"),
        (["--tiny", "--url", "http://127.0.0.1:1"], "error: no service at http://127.0.0.1:1"),
        (["--tiny", "--url", "127.0.0.1:1"], "error: url: it must begin with http"),
    ],
)
def test_mistakes_are_told_in_a_line(
    arguments: list[str], said: str, service: ServiceProcess
) -> None:
    done = run("trl", "--steps", "1", "--url", service.url, *arguments)
    assert done.returncode == 1
    assert re.search(said, done.stderr), done.stderr
    assert "Traceback" not in done.stderr


def test_unsloth_says_that_it_needs_a_cuda_device() -> None:
    done = run("unsloth", "--steps", "1")
    assert done.returncode == 1
    assert "error: Unsloth needs a CUDA device, and torch finds none here." in done.stderr
    assert "Traceback" not in done.stderr
