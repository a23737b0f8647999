"""The wheels of `make dist`, installed into an environment that has nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 300.0
PROBLEMS = """\
{"task_id": 1, "code": "def double(n):\\n    return 2 * n", "test_list": ["assert double(2) == 4"]}
"""
REWARD = """
from proctor_trainers.demo import main
raise SystemExit(main())
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a virtual environment with the three wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    # pip reads its own configuration, which says where packages come from.
    subprocess.run(
        ["make", "--silent", "dist", f"DIST={folder / 'dist'}", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    wheels = sorted((folder / "dist").glob("*.whl"))
    assert [each.name.partition("-")[0] for each in wheels] == [
        *["proctor_client", "proctor_service", "proctor_trainers"]
    ]
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    programs = folder / "venv" / "bin"
    options = ("--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
    subprocess.run(
        [programs / "python", "-m", "pip", "install", *options, *wheels],
        check=True,
        timeout=LIMIT_SECONDS,
    )
    return programs


def test_the_command_line(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text(PROBLEMS)
    said = run(installed / "proctor", "eval", "problems.jsonl", "--format", "mbpp", cwd=tmp_path)
    assert re.search(r"^passed +1\b", said, re.MULTILINE), said
    run(installed / "proctor", "doctor", cwd=tmp_path)


def test_rewards_of_a_trainer(installed: Path, tmp_path: Path) -> None:
    assert "8 judged, 3 passed" in run(installed / "python", "-c", REWARD, cwd=tmp_path)


def test_a_training(installed: Path, tmp_path: Path) -> None:
    arguments = ("-m", "proctor_trainers.demo_train", "--steps", "40")
    said = run(installed / "python", *arguments, cwd=tmp_path)
    assert "2560 completions were judged." in said
