"""The command line against the real app over HTTP."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import proctor
from harness import Service, running_service

from proctor_service.cli.console import plain
from proctor_service.errors import SandboxLost
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes

pytestmark = pytest.mark.usefixtures("no_settings")

COMMANDS = ["serve", "doctor", "eval", "bench", "demo"]


def test_without_a_command_it_says_what_there_is() -> None:
    said = proctor()
    assert all(command in said.output for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    said = proctor(command, "--help")
    assert said.exit_code == 0
    assert f"Usage: proctor {command}" in said.stdout


def test_an_option_of_an_earlier_version_names_its_variable() -> None:
    said = proctor("eval", "file.jsonl", "--url", "http://127.0.0.1:1")
    assert said.exit_code == 2
    assert "No such option: --url; set PROCTOR_URL" in said.stderr


def test_version() -> None:
    assert proctor("--version").stdout.startswith("proctor ")


def test_what_a_program_wrote_is_safe_to_print() -> None:
    assert plain("a\x1b[31mb\n c\x00") == "a�[31mb c�"
    assert plain("Traceback (most recent call last):\n  File x\nE: y\n") == "E: y"
    assert len(plain("x" * 10_000_000)) == 200


@pytest.mark.parametrize("module", ["proctor_service.cli", "proctor_service.cli.doctor"])
def test_ctrl_c_while_it_loads_is_no_traceback(module: str) -> None:
    program = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == '{module}':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "sys.argv = ['proctor', 'doctor']\n"
        "from proctor_service.__main__ import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "proctor: stopped\n")


# ---------------------------------------------------------------- bench


def test_bench_measures_each_size(service: Service, tmp_path: Path) -> None:
    floor = tmp_path / "floor.py"
    floor.write_text("print('floor: 1000 evaluations/s on 2 cores, 2.00 ms CPU each')")
    said = proctor(
        "bench",
        "--seconds",
        "0",
        "--floor",
        floor,
        *("--size", "1", "--size", "20"),
        PROCTOR_URL=service.url,
    )
    assert said.exit_code == 0, said.output
    header, *rows = [line.split() for line in said.stdout.splitlines()[2:]]
    assert " ".join(header) == "batch batches rewards/s p50 ms p99 ms floor/s of the floor"
    assert [row[:2] for row in rows] == [["1", "3"], ["20", "3"]]
    assert {row[5] for row in rows} == {"1000"}


def test_bench_needs_a_floor_that_speaks(service: Service, tmp_path: Path) -> None:
    floor = tmp_path / "floor.py"
    floor.write_text("raise SystemExit('no such thing')")
    said = proctor("bench", "--seconds", "0", "--floor", floor, PROCTOR_URL=service.url)
    assert said.exit_code == 2
    assert said.stderr.splitlines()[-1].startswith(f"proctor: {floor}: ")


def test_bench_refuses_to_measure_what_does_not_work() -> None:
    async def lost(submission: Submission, backend: Sandboxes) -> Judgement:
        raise SandboxLost("the sandbox went away")

    with running_service(judge=lost) as service:
        said = proctor("bench", "--seconds", "0", PROCTOR_URL=service.url)
    assert said.exit_code == 2
    assert "a sound program was not passed: the sandbox went away" in said.stderr


# ---------------------------------------------------------------- demo


def test_demo_shows_every_result_and_tells_when_one_is_not_as_it_should_be(
    service: Service,
) -> None:
    said = proctor("demo", PROCTOR_URL=service.url)
    assert said.exit_code == 1
    assert "✓ addition" in said.stdout
    assert "total reward 8.0, pass rate 89 % (8 of 9)" in said.stdout
    assert "wrong sum: passed, not failed" in said.stdout
