"""The command line with the real service: one that it starts itself, and that never outlives it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from command_line import proctor
from harness import Service
from shared_data import shared_data
from typer.testing import CliRunner
from waits import WAIT_SECONDS

import proctor_service.cli.target
from proctor_service.cli import build
from proctor_service.cli.demo import toys
from proctor_service.cli.temporary import temporary_service

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
            assert (
                httpx.get(f"{running.url}/capacity", trust_env=False, timeout=240).status_code
                == 401
            )
            headers = {"Authorization": f"Bearer {running.token}"}
            answer = httpx.get(
                f"{running.url}/capacity", headers=headers, trust_env=False, timeout=240
            )
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


def test_eval_judges_problems_of_each_format(service: Service, tmp_path: Path) -> None:
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
    for path, form in files:
        arguments = ["eval", str(path), "--format", form, "--limit", "10"]
        said = proctor(*arguments, PROCTOR_URL=service.url)
        assert said.exit_code == 0, said.output
        assert "100.0 %" in said.stdout


def test_eval_writes_its_figures_for_programs_and_for_a_browser(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems, completions = tmp_path / "problems.jsonl", tmp_path / "completions.jsonl"
    grader = {"kind": "asserts", "tests": ["assert f(2) == 4"]}
    rows = [{"id": name, "completion": "", "grader": grader} for name in ("one", "<b>two</b>")]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    right, wrong = "def f(x): return 2 * x", "raise ValueError('<script>')"
    answers = [("one", right), ("one", right), ("<b>two</b>", right), ("<b>two</b>", wrong)]
    completions.write_text(
        "".join(json.dumps({"task_id": name, "completion": text}) + "\n" for name, text in answers)
    )
    report, page = tmp_path / "report.json", tmp_path / "report.html"
    monkeypatch.setenv("PROCTOR_URL", service.url)
    arguments = ["eval", str(problems), "--format", "jsonl", "--completions", str(completions)]
    arguments += ["--extract", "none"]
    said = CliRunner().invoke(build(), [*arguments, "--json", str(report), "--html", str(page)])
    assert said.exit_code == 1, said.output
    assert "pass@2" in said.stdout
    lost = CliRunner().invoke(build(), [*arguments, "--json", str(tmp_path / "no" / "where")])
    assert lost.exit_code == 2
    found = json.loads(report.read_text())
    assert (found["dataset"], found["format"], found["passed"]) == ("problems.jsonl", "jsonl", 3)
    assert found["pass_at"]["1"]["estimate"] == 0.75
    assert found["pass_at"]["2"]["estimate"] == 1.0
    assert found["by_task"][1] == {"task_id": "<b>two</b>", "judged": 2, "passed": 1, "errors": 0}
    html = page.read_text()
    assert re.search(r"75(\.0)?\s*%", html)
    assert "&lt;b&gt;two&lt;/b&gt;" in html
    assert "<script" not in html
    assert "<b>" not in html
