"""`python -m proctor_trainers.art`: what it prints, what it refuses, and how it stops."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from art_playing import outcomes, until
from art_students import FATES, Student
from policy_server import Asked, calls, completion, policy_server, says
from service_process import ServiceProcess
from shared_data import shared_data
from waits import WAIT_SECONDS

from proctor_client import Client
from proctor_trainers.art import backends
from proctor_trainers.art.__main__ import run
from proctor_trainers.art.memory import MemoryBackend
from proctor_trainers.art.policies import is_served

ROOT = Path(__file__).resolve().parents[2]
TOY = ("--backend", "memory", "--dataset", "toy", "--num-problems", "4",
       "--trajectories-per-problem", "4")  # fmt: skip


@contextmanager
def script(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The script in a process of its own, in the working directory of the test."""
    path = os.pathsep.join([str(ROOT / "client"), str(ROOT / "trainers")])
    with subprocess.Popen(
        [sys.executable, "-m", "proctor_trainers.art", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.fixture(scope="module")
def standing() -> Iterator[ServiceProcess]:
    """A service for the tests that look at nothing in it."""
    with ServiceProcess() as running:
        yield running


# ---------------------------------------------------------------- training


def test_a_training_from_beginning_to_end(service: ServiceProcess) -> None:
    student = Student(lambda number: FATES[number % 4])
    with (
        policy_server(student.answer) as policy,
        script(
            *TOY,
            "--service-url",
            service.url,
            "--base-url",
            policy.url,
            "--num-steps",
            "2",
            "--project",
            "p",
            "--run-name",
            "r",
        ) as child,
    ):
        out, err = child.communicate(timeout=WAIT_SECONDS)
    assert child.returncode == 0, err
    assert "step 2: 100%" in err
    step = r"Step {}: reward=0\.500, success=50\.0% \(8/16\), time=\d+\.\ds"
    wanted = [
        r"ART Training \(job: [0-9a-f]{8}\)",
        "=+",
        "Backend: memory",
        "Base model: Qwen/Qwen3-8B",
        "Problems: 4",
        "Steps: 2",
        "Batch size: 4",
        "Trajectories per problem: 4",
        "Project: p, run: r",
        re.escape(f"Policy: Qwen/Qwen3-8B at {policy.url}"),
        "=+",
        step.format(1),
        step.format(2),
        "=+",
        "Training complete!",
        "  Total trajectories: 32",
        r"  Successful: 16 \(50\.0%\)",
        "  Steps completed: 2",
    ]
    lines = out.splitlines()
    assert len(lines) == len(wanted), out
    for line, form in zip(lines, wanted, strict=True):
        assert re.fullmatch(form, line), line
    assert {asked.body["model"] for asked in policy.received} == {"Qwen/Qwen3-8B"}
    assert {asked.body["temperature"] for asked in policy.received} == {1.0}
    assert all(asked.body["logprobs"] for asked in policy.received)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_training_that_is_stopped_leaves_nothing_behind(
    service: ServiceProcess, sign: signal.Signals
) -> None:
    """Stopped in the middle of the second step, where no rollout comes to its end."""
    student = Student(lambda number: FATES[number % 4] if number < 16 else "endless")
    with (
        Client(service.url) as client,
        policy_server(student.answer) as policy,
        script(*TOY, "--service-url", service.url, "--base-url", policy.url) as child,
    ):
        policy.wait_for(16 + 4 + 16 + 16)
        assert client.count_active(tags=["art-training"]).total == 16
        child.send_signal(sign)
        out, err = child.communicate(timeout=WAIT_SECONDS)
        assert child.returncode == 128 + sign, err
        until(lambda: outcomes(service.url).total() == 32)
        assert outcomes(service.url)["cancelled"] == 16
        until(lambda: client.count_active().total == 0)
        assert len(policy.received) == 52
    *_, said, _, stopped, total, successful, steps = out.splitlines()
    assert said == f"{sign.name}: stopping; what is under way is cancelled"
    assert stopped == "Training stopped"
    assert total == "  Total trajectories: 16"
    assert successful == "  Successful: 8 (50.0%)"
    assert steps == "  Steps completed: 1"
    assert "Traceback" not in err
    assert "never retrieved" not in err


def test_too_many_failures_are_a_line_and_a_summary(
    standing: ServiceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    student = Student(lambda number: "broken")
    with policy_server(student.answer) as policy:
        status = run([*TOY, "--service-url", standing.url, "--base-url", policy.url])
    out, err = capsys.readouterr()
    assert status == 1
    assert "Training stopped\n  Total trajectories: 0\n" in out
    wanted = "error: step 1: more than 25% of 16 rollouts failed: policy_unavailable: "
    assert wanted in err


def test_refining_on_mbpp_from_a_file(
    standing: ServiceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Problems in turn, two a step; each answers wrongly, and then as the reference does."""
    path = shared_data("mbpp/mbpp.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()[:3]]

    def answer(asked: Asked) -> object:
        [row] = [each for each in rows if each["text"].strip() in asked.task]
        code = row["code"] if asked.turn else "raise KeyError('slip')"
        return says(f"```python\n{code}\n```")

    with policy_server(answer) as policy:  # type: ignore[arg-type]
        arguments = ["--backend", "memory", "--dataset", str(path), "--dataset-limit", "3"]
        arguments += ["--agent", "refine", "--max-attempts", "2", "--batch-size", "2"]
        arguments += ["--num-steps", "2", "--trajectories-per-problem", "2", "--model", "own"]
        status = run([*arguments, "--service-url", standing.url, "--base-url", policy.url])
    assert status == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(", time")[0] for line in lines if line.startswith("Step ")] == [
        "Step 1: reward=1.000, success=100.0% (4/4)",
        "Step 2: reward=1.000, success=100.0% (4/4)",
    ]
    assert {asked.body["model"] for asked in policy.received} == {"own"}
    asked_about = [row["text"].strip() for row in rows]
    counts = [sum(text in asked.task for asked in policy.received) for text in asked_about]
    assert counts == [8, 4, 4]


class Serving(MemoryBackend):
    """Serves what it trains, as far as one can tell: under a name of its own for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.configs: list[Any] = []

    async def _prepare_backend_for_training(self, model: Any, config: Any) -> tuple[str, str]:
        self.configs.append(config)
        return "http://0.0.0.0:1/v1", "its-key"


@pytest.mark.parametrize("is_there", [False, True])
def test_the_policy_is_what_the_backend_serves_unless_a_server_is_there(
    standing: ServiceProcess,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_there: bool,
) -> None:
    backend = Serving()
    monkeypatch.setattr("proctor_trainers.art.__main__.make_backend", lambda name: backend)
    monkeypatch.setattr("proctor_trainers.art.arguments.is_served", lambda url: is_there)
    student = Student(lambda number: "right")
    with policy_server(student.answer) as policy:
        arguments = ["--backend", "local", "--dataset", "toy", "--num-problems", "1"]
        arguments += ["--num-steps", "2", "--trajectories-per-problem", "1"]
        assert run([*arguments, "--service-url", standing.url, "--base-url", policy.url]) == 0
        asked = [
            (each.body["model"], each.headers.get("authorization")) for each in policy.received
        ]
        port = policy.server_address[1]
    out = capsys.readouterr().out
    if is_there:
        assert backend.configs == [None]  # a port of the backend's own choice
        assert asked == [("Qwen/Qwen3-8B", None)] * 2
        assert "it runs already: it is not what is trained, and does not change" in out
    else:
        assert backend.configs == [{"port": port, "server_args": {"port": port}}]
        assert asked == [(f"train-001@{step}", "Bearer its-key") for step in (0, 1)]
        assert f"Policy: what is trained, served by the backend at {policy.url}" in out


def test_a_run_goes_on_where_it_ended(
    standing: ServiceProcess,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As ART's own backends do, which find the model's checkpoints."""
    backend = MemoryBackend()
    monkeypatch.setattr("proctor_trainers.art.__main__.make_backend", lambda name: backend)
    student = Student(lambda number: "right")
    with policy_server(student.answer) as policy:
        arguments = [*TOY, "--service-url", standing.url, "--base-url", policy.url]
        assert run([*arguments, "--num-steps", "1"]) == 0
        assert run([*arguments, "--num-steps", "2"]) == 0
    out = capsys.readouterr().out
    assert "1 steps of train-001 are trained already\nStep 2: " in out
    assert [each.step for each in backend.trained] == [1, 2]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("is_stubborn", [False, True])
def test_a_backend_is_interrupted_and_a_second_time_whatever_it_does(
    standing: ServiceProcess,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_stubborn: bool,
) -> None:
    class Endless(MemoryBackend):
        async def train(self, model: Any, trajectory_groups: Any, **options: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            if is_stubborn:
                signal.raise_signal(signal.SIGINT)  # before the loop had a turn
            await asyncio.Event().wait()

    monkeypatch.setattr("proctor_trainers.art.__main__.make_backend", lambda name: Endless())
    before = signal.getsignal(signal.SIGINT)
    try:
        with policy_server(Student(lambda number: "right").answer) as policy:
            status = run([*TOY, "--service-url", standing.url, "--base-url", policy.url])
        assert is_stubborn or signal.getsignal(signal.SIGINT) == before
    finally:
        signal.signal(signal.SIGINT, before)
    assert status == 130
    out = capsys.readouterr().out
    assert "SIGINT: stopping" in out
    assert "Training stopped\n  Total trajectories: 16\n" in out
    assert "Steps completed: 0" in out


# ---------------------------------------------------------------- the dry run


def dry_run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    status = run([*TOY, "--dry-run", *arguments])
    first, *lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Dry run \(job: [0-9a-f]{8}\): nothing is trained", first)
    return status, lines


def test_a_dry_run_says_that_all_is_well(
    service: ServiceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    student = Student(lambda number: "retried")
    with policy_server(student.answer) as policy, Client(service.url) as client:
        status, lines = dry_run(capsys, "--service-url", service.url, "--base-url", policy.url)
        assert len(client.sandboxes(tags=["art-rollout", "train-001"])) == 1
        assert len(policy.received) == 2
    assert status == 0
    assert lines[:4] == [
        "ok      keys: none is needed",
        "ok      backend: memory, which trains nothing",
        "ok      problems: 4 of toy",
        "ok      service: it answers, and lets us in",
    ]
    assert re.fullmatch(
        rf"ok      policy Qwen/Qwen3-8B at {policy.url}: one rollout of problem \S+: passed, "
        r"reward 1\.0, 2 turns, \d\d tokens with logprobs",
        lines[4],
    )
    assert not Path(".art").exists()


def test_a_dry_run_without_a_service(capsys: pytest.CaptureFixture[str], nowhere: str) -> None:
    status, lines = dry_run(capsys, "--service-url", nowhere)
    assert status == 1
    assert lines[3].startswith(f"FAILED  service: no service at {nowhere}: connection: ")
    assert lines[4] == "start one with: proctor serve"
    assert lines[5].startswith("-       policy and rollout: not checked")


def test_a_dry_run_without_a_policy(
    standing: ServiceProcess, capsys: pytest.CaptureFixture[str], nowhere: str
) -> None:
    base_url = f"{nowhere}/v1"
    status, lines = dry_run(
        capsys, "--service-url", standing.url, "--base-url", base_url, "--model", "m"
    )
    assert status == 1
    assert lines[4].startswith(f"FAILED  policy m at {base_url}: it gives no answer: policy: ")
    assert lines[5].startswith("start one with: vllm serve m --enable-auto-tool-choice")
    assert lines[6] == "or give another address with --base-url"


def test_a_dry_run_starts_no_backend(
    standing: ServiceProcess,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    nowhere: str,
) -> None:
    monkeypatch.setattr("proctor_trainers.art.dry_run.check_backend", lambda name: name)
    status, lines = dry_run(
        capsys, "--service-url", standing.url, "--backend", "local", "--base-url", f"{nowhere}/v1"
    )
    assert status == 0
    said = "not checked, nothing listens there: --backend local serves it, once it trains"
    assert lines[4] == f"-       policy Qwen/Qwen3-8B at {nowhere}/v1: {said}"


def test_a_dry_run_without_the_problems(
    standing: ServiceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines = dry_run(capsys, "--service-url", standing.url, "--dataset", "none.jsonl")
    assert status == 1
    assert lines[2] == "FAILED  problems: none.jsonl: no such file"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--use-openai"], "--use-openai needs a key: set OPENAI_API_KEY"),
        (
            ["--backend", "tinker"],
            "--backend tinker needs a key: set TINKER_API_KEY or ART_TINKER_API_KEY",
        ),
    ],
)
def test_a_dry_run_without_a_key(
    standing: ServiceProcess,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    wanted: str,
) -> None:
    status, lines = dry_run(capsys, "--service-url", standing.url, *arguments)
    assert status == 1
    assert lines[0] == f"FAILED  keys: {wanted}"
    assert run([*TOY, "--service-url", standing.url, *arguments]) == 1


def test_a_dry_run_with_a_policy_that_gives_no_logprobs(
    standing: ServiceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with policy_server(lambda asked: calls(("submit_solution", {"code": "1"}))) as policy:
        status, lines = dry_run(capsys, "--service-url", standing.url, "--base-url", policy.url)
    assert status == 1
    assert lines[4].endswith(": its answers have no logprobs, without which ART trains on nothing")


def test_a_dry_run_with_a_token_that_is_not_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_TOKEN", "wrong")
    with ServiceProcess(PROCTOR_TOKENS='{"team": "right-and-long-enough"}') as service:
        status, lines = dry_run(capsys, "--service-url", service.url)
    assert status == 1
    assert "unauthorized" in lines[3]


# ---------------------------------------------------------------- keys and arguments


def test_openai_is_asked_with_its_key_and_nobody_else_gets_it(
    standing: ServiceProcess,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    student = Student(lambda number: "right")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-1234567890-1234567890")
    with policy_server(student.answer) as policy:
        arguments = ["--service-url", standing.url]
        status, _ = dry_run(capsys, *arguments, "--base-url", policy.url)
        assert status == 0
        monkeypatch.setenv("OPENAI_BASE_URL", policy.url)
        status, lines = dry_run(capsys, *arguments, "--use-openai")
        assert status == 0
        monkeypatch.setenv("VLLM_API_KEY", "vllm-key")
        status, more = dry_run(capsys, *arguments, "--base-url", policy.url)
        assert status == 0
        headers = [asked.headers.get("authorization") for asked in policy.received]
        models = [asked.body["model"] for asked in policy.received]
    assert headers == [None, "Bearer sk-openai-1234567890-1234567890", "Bearer vllm-key"]
    assert models == ["Qwen/Qwen3-8B", "gpt-4o-mini", "Qwen/Qwen3-8B"]
    assert lines[0] == "ok      keys: OPENAI_API_KEY"
    assert more[0] == "ok      keys: VLLM_API_KEY"
    assert "sk-openai" not in "".join(lines)


@pytest.mark.parametrize("name", ["TINKER_API_KEY", "ART_TINKER_API_KEY"])
def test_both_names_of_the_tinker_key_work(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "")
    monkeypatch.setenv(name, "tml-1")
    assert backends.set_tinker_key() == name
    assert os.environ["TINKER_API_KEY"] == "tml-1"


@pytest.mark.parametrize(("backend", "extra"), [("local", "backend"), ("tinker", "tinker")])
def test_a_backend_that_is_not_installed_says_what_to_install(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    extra: str,
) -> None:
    monkeypatch.setenv("ART_TINKER_API_KEY", "tml-1")
    assert run(["--backend", backend]) == 1
    err = capsys.readouterr().err
    assert f"error: --backend {backend}: torch, " in err
    assert f"pip install 'openpipe-art[{extra}]==0.5.18'" in err


def test_a_backend_is_told_to_serve_at_the_base_url() -> None:
    assert backends.server_config("http://127.0.0.1:8123/v1") == {
        "port": 8123,
        "server_args": {"port": 8123},
    }


def test_whether_a_policy_runs_already(nowhere: str) -> None:
    assert not is_served(f"{nowhere}/v1")
    with policy_server(lambda asked: lambda handler: handler.send_json(completion({}))) as policy:
        assert is_served(policy.url)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--use-openai", "--base-url", "http://a/v1"], "two policies"),
        (["--distill"], "--distill needs the policy that plays"),
        (["--base-url", "localhost:8000"], "--base-url: it must begin with http"),
        (["--max-exceptions", "25"], "--max-exceptions: it must be from 0 to 1"),
        (["--num-steps", "0"], "--num-steps: it must be 1 or more"),
        (["--run-name", "a/b"], "--run-name: it must be 1 to 100 characters"),
        (["--agent", "dance"], "invalid choice: 'dance'"),
    ],
)
def test_arguments_that_cannot_be(
    capsys: pytest.CaptureFixture[str], arguments: list[str], wanted: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(arguments)
    assert wanted in capsys.readouterr().err


def test_help_names_every_argument(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        run(["--help"])
    out = capsys.readouterr().out
    names = (
        "backend model base-model num-problems num-steps trajectories-per-problem base-url project "
        "run-name learning-rate dry-run service-url agent max-attempts batch-size dataset "
        "dataset-split dataset-limit use-openai max-exceptions"
    )
    for name in names.split():
        assert re.search(rf"^  --{name}\b", out, re.MULTILINE), name
    assert "ART_TINKER_API_KEY" in out
