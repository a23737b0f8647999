"""`proctor replay` of what a real service has judged and recorded, by a real service."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import proctor
from harness import running_service
from sqlalchemy import create_engine, text
from waits import WAIT_SECONDS

from proctor_client import Client, wire
from proctor_service.cli.temporary import temporary_service
from proctor_service.settings import Settings

pytestmark = pytest.mark.usefixtures("no_settings")

README = Path(__file__).resolve().parents[4] / "service" / "README.md"
SCORINGS: tuple[wire.Scoring, ...] = ("all", "fraction")
GRADERS: dict[str, dict[str, Any]] = {
    "asserts": {"kind": "asserts", "tests": ["assert double(2) == 4", "assert double(5) == 10"]},
    "calls": {
        "kind": "calls",
        "entry_point": "double",
        "cases": [{"args": [2], "expected": 4}, {"args": ["a"], "expected": "aa"}],
    },
    "stdio": {"kind": "stdio", "cases": [{"stdin": "3", "stdout": "6"}]},
    "exec": {"kind": "exec"},
    "command": {"kind": "command", "argv": ["python3", "-c", "import solution"]},
    "pytest": {
        "kind": "pytest",
        "files": {
            "test_it.py": "from solution import double\ndef test_it(): assert double(2) == 4"
        },
    },
}
COMPLETIONS = (
    "```python\ndef double(n):\n    return 2 * n\n```",
    "I think:\n<answer>\ndef double(n):\n    return n ** 2\n</answer>",
    "print(2 * int(input()))",
    "raise SystemExit(3)",
    "def double(n):\n    raise ValueError('\N{SNOWMAN}')",
    "I do not know.",
)


def record(journal: str) -> int:
    """Has a service judge and record the job; returns the number of evaluations."""
    with (
        temporary_service(settings={"PROCTOR_JOURNAL": journal}, allow_degraded=True) as running,
        Client(running.url, token=running.token) as client,
    ):
        for scoring in SCORINGS:
            for grader in GRADERS.values():
                answer = client.reward(
                    COMPLETIONS, grader=grader, job="run", scoring=scoring, tags=["x"]
                )
                assert answer.summary.errors == 0
    return len(SCORINGS) * len(GRADERS) * len(COMPLETIONS)


def wait_for(journal: str, count: int) -> None:
    """Waits until the journal has so many evaluations; the service writes them soon."""
    end = time.monotonic() + WAIT_SECONDS
    while (
        len(proctor("journal", "list", "--json", PROCTOR_JOURNAL=journal).stdout.splitlines())
        < count
    ):
        assert time.monotonic() < end, "the journal lacks evaluations"


def test_a_job_gets_the_same_rewards_again_until_its_graders_change(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = f"sqlite:///{path}"
    recorded = record(journal)
    with running_service(Settings(allow_degraded=True), judge=None) as service:

        def replay() -> tuple[int, dict[str, int], str]:
            result = proctor(
                "replay", "--job", "run", PROCTOR_URL=service.url, PROCTOR_JOURNAL=journal
            )
            found = re.findall(r"^([a-z ]+?)  +(\d+)", result.stdout, re.MULTILINE)
            return result.exit_code, {name: int(count) for name, count in found}, result.output

        status, counts, said = replay()
        left_out = len(SCORINGS) * len(GRADERS)  # the completion without code
        assert status == 0, said
        assert counts == {
            "judged again": recorded - left_out,
            "unchanged": recorded - left_out,
            "changed": 0,
            "not judged again": left_out,
        }
        engine = create_engine(journal)
        with engine.begin() as connection:  # as if the service had judged three of them otherwise
            changed = connection.execute(
                text(
                    "UPDATE evaluations SET reward = 0.0, verdict = 'failed' WHERE number IN (SELECT"
                    " number FROM evaluations WHERE verdict = 'passed' LIMIT 3) RETURNING id"
                )
            )
            expected = {row.id for row in changed}
        engine.dispose()
        status, counts, said = replay()
    assert (status, counts["changed"], len(expected)) == (1, 3, 3), said
    assert set(re.findall(r"ev_[0-9a-f]{32}", said)) == expected


def test_the_commands_of_the_documents_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = re.search(
        r"<!-- journal -->\n```bash\n(.*?)^```$", README.read_text(), re.DOTALL | re.M
    )
    assert found is not None
    begin, *lines = [line for line in found[1].splitlines() if line]
    url = begin.removeprefix("PROCTOR_JOURNAL=").removesuffix(" proctor serve")
    assert lines.pop(0) == f"export PROCTOR_JOURNAL={url}"
    journal = f"sqlite:///{tmp_path / 'journal.db'}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_JOURNAL", journal)
    with temporary_service(allow_degraded=True) as running:
        monkeypatch.setenv("PROCTOR_TOKEN", running.token)
        monkeypatch.setenv("PROCTOR_URL", running.url)
        with Client(running.url, token=running.token) as client:
            answer = client.reward(COMPLETIONS, grader=GRADERS["asserts"], job="run-17")
        wait_for(journal, len(COMPLETIONS))
        shown = {
            "ev_5f0c6f2b8d2e4a0c9a5b1f3d7e6c8a90": answer.results[0].evaluation_id,
        }
        for line in lines:
            command, *arguments = [shown.get(word, word) for word in shlex.split(line)]
            assert command == "proctor"
            ran = proctor(*arguments)
            assert ran.exit_code == 0, f"{line}: {ran.output}"
    assert len((tmp_path / "run-17.jsonl").read_text().splitlines()) == len(COMPLETIONS)
