"""`proctor eval` against the real app over HTTP, with a judge that goes by a script."""

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
