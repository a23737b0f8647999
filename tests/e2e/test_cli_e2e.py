"""The command line with the real service: one that it starts itself, and that never outlives it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from harness import WAIT_SECONDS, running_service
from shared_data import shared_data
from typer.testing import CliRunner

import proctor_service.cli.target
from proctor_service.cli import build
from proctor_service.cli.demo import toys
from proctor_service.cli.temporary import temporary_service
from proctor_service.settings import Settings

HOLDER = """
import sys
from proctor_service.cli.temporary import temporary_service
with temporary_service() as running:
    print(running.pid, flush=True)
    sys.stdin.read()
"""


@contextmanager
def leaving(pid: int) -> Iterator[None]:
    """Checks that a process, not of ours perhaps, is gone after the block."""
    descriptor = os.pidfd_open(pid)
    try:
        yield
        gone, _, _ = select.select([descriptor], [], [], WAIT_SECONDS)
        assert gone, f"the service {pid} is still there"
    finally:
        os.close(descriptor)


def test_a_service_for_a_while() -> None:
    with temporary_service() as running:
        with leaving(running.pid):
            assert httpx.get(f"{running.url}/capacity", trust_env=False).status_code == 401
            headers = {"Authorization": f"Bearer {running.token}"}
            answer = httpx.get(f"{running.url}/capacity", headers=headers, trust_env=False)
            assert answer.status_code == 200
            os.kill(running.pid, signal.SIGTERM)
        assert "token" not in repr(running)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_service_ends_with_the_command_however_that_ends(sign: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        with leaving(int(holder.stdout.readline())):
            holder.send_signal(sign)
            holder.wait(WAIT_SECONDS)


def test_demo_gets_every_verdict_that_it_promises() -> None:
    said = CliRunner().invoke(build(), ["demo"])
    assert said.exit_code == 0, said.output
    assert all(toy.name in said.stdout for toy in toys())
    assert "total reward 3.0, pass rate 33 % (3 of 9)" in said.stdout


def test_eval_starts_a_service_where_none_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROCTOR_URL", raising=False)
    monkeypatch.setattr(proctor_service.cli.target, "DEFAULT_URL", "http://127.0.0.1:1")
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"completion": "x = 1", "grader": {"kind": "exec"}}))
    said = CliRunner().invoke(build(), ["eval", str(path), "--format", "jsonl"])
    assert said.exit_code == 0, said.output
    assert "using the service" not in said.stderr


def test_eval_judges_problems_of_each_format(tmp_path: Path) -> None:
    humaneval = tmp_path / "humaneval.jsonl"
    humaneval.write_text(
        json.dumps(
            {
                "task_id": "H/0",
                "prompt": 'def twice(x):\n    """Twice x."""\n',
                "entry_point": "twice",
                "canonical_solution": "    return 2 * x\n",
                "test": "def check(candidate):\n    assert candidate(2) == 4\n",
            }
        )
    )
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"completion": "x = 1", "grader": {"kind": "exec"}}))
    files = [
        (shared_data("mbpp/mbpp.jsonl"), "mbpp"),
        (shared_data("codecontests/codecontests_60.jsonl"), "stdio"),
        (humaneval, "humaneval"),
        (own, "jsonl"),
    ]
    with running_service(Settings(), judge=None) as service:
        for path, form in files:
            arguments = ["eval", str(path), "--format", form, "--limit", "10"]
            said = CliRunner().invoke(build(), [*arguments, "--url", service.url])
            assert said.exit_code == 0, said.output
            assert "100.0 %" in said.stdout
