"""The command line against the real app over HTTP, with a judge that goes by a script."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from command_line import proctor
from constants import constants
from harness import Service, running_service
from pydantic import SecretStr
from waits import WAIT_SECONDS

from proctor_client import wire
from proctor_client.tasks.task import Task
from proctor_service.cli.console import plain
from proctor_service.cli.judging import BATCH, BATCH_CHARACTERS, Attempt, batches
from proctor_service.errors import SandboxLost
from proctor_service.features.evaluation.judging import attempts, submission_of
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings import Settings

pytestmark = pytest.mark.usefixtures("no_settings")

NOBODY = "http://127.0.0.1:1"
GIVEN = ["problems.jsonl", "--format", "mbpp", "--completions", "completions.jsonl"]
COMMANDS = ["serve", "doctor", "eval", "bench", "demo"]


async def scripted(submission: Submission, backend: Sandboxes) -> Judgement:
    """What becomes of a submission is written in it."""
    source = submission.source
    if "lost" in source:
        raise SandboxLost("the sandbox went away")
    if "wrong" in source:
        failure = wire.Failure(index=0, test="assert f() == 1", message="f() returned [2]\x1b[2J")
        return Judgement("failed", total=1, failures=(failure,))
    if "broken" in source:
        text = "Traceback (most recent call last):\n  File …\nNameError: name 'x' is not defined"
        return Judgement("runtime_error", total=1, message=text)
    return Judgement("passed", passed=1, total=1)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A service without tokens, and with the scripted judge."""
    with running_service(judge=scripted) as running:
        yield running


def problems(tmp_path: Path, *solutions: str | None) -> Path:
    """A file in MBPP's form."""
    path = tmp_path / "problems.jsonl"
    rows = [
        {"task_id": number, "code": code, "test_list": ["assert f() == 1"]}
        for number, code in enumerate(solutions)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def completions(tmp_path: Path, *pairs: tuple[int, str]) -> Path:
    """A file of completions."""
    path = tmp_path / "completions.jsonl"
    rows = [{"task_id": task, "completion": text} for task, text in pairs]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# ---------------------------------------------------------------- as a whole


def test_without_a_command_it_says_what_there_is() -> None:
    said = proctor()
    assert all(command in said.output for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    said = proctor(command, "--help")
    assert said.exit_code == 0
    assert f"Usage: proctor {command}" in said.stdout


def test_version() -> None:
    assert proctor("--version").stdout.startswith("proctor ")


def test_what_a_program_wrote_is_safe_to_print() -> None:
    assert plain("a\x1b[31mb\n c\x00") == "a�[31mb c�"
    assert plain("Traceback (most recent call last):\n  File x\nE: y\n") == "E: y"
    assert len(plain("x" * 10_000_000)) == 200


# ---------------------------------------------------------------- eval


def test_eval_judges_the_references(service: Service, tmp_path: Path) -> None:
    said = proctor(
        "eval", problems(tmp_path, "a", "b"), "--format", "mbpp", PROCTOR_URL=service.url
    )
    assert said.exit_code == 0, said.output
    assert "pass rate    100.0 %" in said.stdout
    assert "Failures" not in said.stdout


def test_eval_lists_what_failed(service: Service, tmp_path: Path) -> None:
    path = problems(tmp_path, "a", "wrong", "broken")
    said = proctor("eval", path, "--format", "mbpp", PROCTOR_URL=service.url)
    assert said.exit_code == 1
    assert "pass rate      33.3 %" in said.stdout
    assert "1     failed         assert f() == 1: f() returned [2]" in said.stdout
    assert "2     runtime_error  NameError: name 'x' is not defined" in said.stdout
    assert "\x1b" not in said.stdout


def test_eval_shows_errors_apart(service: Service, tmp_path: Path) -> None:
    path = problems(tmp_path, "a", "lost", "wrong")
    said = proctor("eval", path, "--format", "mbpp", PROCTOR_URL=service.url)
    assert said.exit_code == 2
    assert "pass rate            50.0 %" in said.stdout
    failures, _, errors = said.stdout.partition("Could not be judged")
    assert "sandbox_lost" in errors
    assert "the sandbox went away" in errors
    assert "the sandbox went away" not in failures


def test_eval_lists_the_first_failures(service: Service, tmp_path: Path) -> None:
    path = problems(tmp_path, *["wrong"] * 23)
    said = proctor("eval", path, "--format", "mbpp", PROCTOR_URL=service.url)
    assert said.stdout.count("f() returned") == 20
    assert "and 3 more" in said.stdout


def test_eval_takes_several_completions_of_a_task(service: Service, tmp_path: Path) -> None:
    path = problems(tmp_path, None, None)
    written = completions(tmp_path, (0, "```\nwrong\n```"), (0, "<answer>x</answer>"), (1, "prose"))
    output = tmp_path / "results.jsonl"
    arguments = ["--format", "mbpp", "--completions", str(written), "--output", str(output)]
    said = proctor("eval", path, *arguments, PROCTOR_URL=service.url)
    assert said.exit_code == 1
    assert "tasks solved  1 of 2" in said.stdout
    assert "no_code" in said.stdout
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    verdicts = {(row["task_id"], row["sample"]): row["verdict"] for row in rows}
    assert verdicts == {("0", 0): "failed", ("0", 1): "passed", ("1", 0): "no_code"}
    assert {row["reward"] for row in rows} == {0.0, 1.0}


def test_eval_judges_the_first_tasks_only(service: Service, tmp_path: Path) -> None:
    path = problems(tmp_path, "a", "wrong")
    said = proctor("eval", path, "--format", "mbpp", "--limit", "1", PROCTOR_URL=service.url)
    assert said.exit_code == 0


def test_eval_goes_where_the_environment_says(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_URL", service.url)
    said = proctor("eval", problems(tmp_path, "a"), "--format", "mbpp")
    assert said.exit_code == 0
    assert f"using the service at {service.url}" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.jsonl", "--format", "mbpp"], "none.jsonl: No such file or directory"),
        (["bad.jsonl", "--format", "mbpp"], "bad.jsonl:1: not JSON"),
        (["problems.jsonl", "--format", "mbpp"], "problems.jsonl:1: no reference solution"),
        (GIVEN, f"no service answers at {NOBODY}: "),
        (
            [*GIVEN, "--output", "none/results.jsonl"],
            "none/results.jsonl: No such file or directory",
        ),
    ],
)
def test_eval_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    problems(tmp_path, None)
    completions(tmp_path, (0, "x"))
    (tmp_path / "bad.jsonl").write_text("{")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_URL", NOBODY)
    said = proctor("eval", *arguments)
    assert said.exit_code == 2
    assert said.stderr.startswith(f"proctor: {message}")
    assert said.stdout == ""


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("elsewhere", "url: it must begin with http:// or https://"),
        ("http://elsewhere:PORT", "url: Invalid port"),
    ],
)
def test_eval_says_what_is_wrong_with_the_address(tmp_path: Path, url: str, message: str) -> None:
    said = proctor("eval", problems(tmp_path, "a"), "--format", "mbpp", PROCTOR_URL=url)
    assert said.exit_code == 2
    assert said.stderr.startswith(f"proctor: {message}")


def test_a_wrong_token_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(tokens=SecretStr('{"a": "right"}'))
    path = problems(tmp_path, "a")
    with running_service(settings, judge=scripted) as service:
        monkeypatch.setenv("PROCTOR_URL", service.url)
        arguments = ["eval", str(path), "--format", "mbpp"]
        said = proctor(*arguments)
        assert said.exit_code == 2
        assert "set PROCTOR_TOKEN" in said.stderr
        monkeypatch.setenv("PROCTOR_TOKEN", "right")
        assert proctor(*arguments).exit_code == 0


def test_batches_are_what_a_service_takes() -> None:
    task = Task(id="t", place="f:1", grader={"kind": "exec"})
    small = attempts([(task, "x")] * (2 * BATCH + 1))

    def sizes(items: Sequence[Attempt]) -> list[int]:
        return [len(each) for each in batches((item, submission_of(item)) for item in items)]

    assert sizes(small) == [BATCH, BATCH, 1]
    assert [each.sample for each in small[:3]] == [0, 1, 2]
    large = [Attempt(task, "x" * (BATCH_CHARACTERS // 2))] * 3
    assert sizes(large) == [1, 1, 1]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_it_and_what_it_asked_for(tmp_path: Path) -> None:
    began = threading.Event()

    async def never(submission: Submission, backend: Sandboxes) -> Judgement:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    path = problems(tmp_path, "a", "b")
    with constants(orphan_seconds=0.0), running_service(judge=never) as service:
        command = [sys.executable, "-m", "proctor_service", "eval", str(path), "--format", "mbpp"]
        environment = {**os.environ, "PROCTOR_URL": service.url}
        with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as child:
            assert began.wait(WAIT_SECONDS)
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=WAIT_SECONDS)
        assert child.returncode == 130
        assert said.decode().splitlines()[-1] == "proctor: stopped"
        assert b"Traceback" not in said


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
