"""docs/upgrades.md, command by command: from a version with an older journal to this one, and back.

A client asks for rewards all the while, and gets every one of them, and the right one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from harness import free_ports
from history import ROOT, extract, install_command
from waits import WAIT_SECONDS

from proctor_client import Client

OLD = "7b0e2d37e8cd4aed4652c7115ed9cebcff54a98a"
"""The last state before the journal's second migration."""
BLOCK = re.compile(r"<!-- upgrade -->\n```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SECONDS = 4 * WAIT_SECONDS
GRADER = {"kind": "asserts", "tests": ["assert double(2) == 4", "assert double(5) == 10"]}
COMPLETIONS = ("def double(n):\n    return 2 * n", "def double(n):\n    return n ** 2", "No idea.")
REWARDS = [1.0, 0.0, 0.0]
UNCHANGED = re.compile(r"^unchanged +4 *$", re.MULTILINE)
"""Of six evaluations, as two hold no code; a change is a failure of the command."""


class Shell:
    """One bash that gets a block of commands after the other, and stops at the first that fails."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        clean = {name: text for name, text in os.environ.items() if "PROCTOR_" not in name}
        clean.pop("XDG_STATE_HOME", None)
        with (folder / "log").open("wb") as log:
            self._bash = subprocess.Popen(
                ["bash", "-euo", "pipefail"],
                cwd=folder,
                env={**clean, "HOME": str(folder), "NO_PROXY": "127.0.0.1"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """All that it has printed."""
        return (self._folder / "log").read_text(errors="replace")

    def run(self, block: str) -> str:
        """Runs commands; returns what they and the services print meanwhile."""
        before = len(self.said)
        self._count += 1
        done = self._folder / f"done-{self._count}"
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{block}\ntouch {done}\n".encode())
        self._bash.stdin.flush()
        turns = int(SECONDS / 0.05)
        while not done.exists():  # bash has no event for us
            turns -= 1
            assert turns > 0, self.said[-4000:]
            assert self._bash.poll() is None, self.said[-4000:]
            threading.Event().wait(0.05)
        return self.said[before:]

    def close(self) -> None:
        """Ends it, and all that it has started."""
        with suppress(ProcessLookupError):  # bash may have ended before what it has started
            os.killpg(self._bash.pid, signal.SIGTERM)
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        self._bash.wait(SECONDS)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    install_command(
        extract(OLD, tmp_path / "then", "client", "service"), tmp_path / "old/bin/proctor"
    )
    install_command(ROOT, tmp_path / "new/bin/proctor")
    found = Shell(tmp_path)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def training(url: str) -> Iterator[list[float | None]]:
    """Has a client ask for rewards until the block ends. Fails when it gets none."""
    stop = threading.Event()
    rewards: list[float | None] = []
    failures: list[BaseException] = []

    def train() -> None:
        try:
            with Client(url, max_attempts=60, retry_budget_seconds=SECONDS) as client:
                while not stop.wait(0.05):
                    answer = client.reward(COMPLETIONS, grader=GRADER, job="run-18", cache=False)
                    rewards.extend(result.reward for result in answer.results)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        yield rewards
    finally:
        stop.set()
        thread.join(2 * SECONDS)
    assert failures == []


def test_the_commands_of_the_page(shell: Shell, tmp_path: Path) -> None:
    port, tried = map(str, free_ports(2))
    text = (ROOT / "docs" / "upgrades.md").read_text()
    text = text.replace("8080", port).replace("8081", tried)
    before, change, after, back = BLOCK.findall(text)
    ready = f"curl -s --fail --retry 60 --retry-delay 1 --retry-connrefused http://127.0.0.1:{port}/readyz"
    url = f"http://127.0.0.1:{port}"

    shell.run(f"export PROCTOR_PORT={port}\nold/bin/proctor serve & OLD=$!\n{ready}")
    with Client(url, max_attempts=60, retry_budget_seconds=SECONDS) as client:
        for _ in range(2):
            client.reward(COMPLETIONS, grader=GRADER, job="run-17", cache=False)
    with training(url) as rewards:
        assert UNCHANGED.search(shell.run(before))
        shell.run(change)
        assert UNCHANGED.search(shell.run(after))
        shell.run(back)
        shell.run(ready)
    assert rewards == REWARDS * (len(rewards) // len(REWARDS))
    assert len(rewards) > len(REWARDS)
    assert UNCHANGED.search(shell.run(f"PROCTOR_URL={url} old/bin/proctor replay --job run-17"))
    assert shell.run(
        "PROCTOR_JOURNAL=sqlite:///after.db new/bin/proctor journal list --job run-17 --json"
    )
    assert "the journal takes no records now" not in shell.said
    shell.run("kill -TERM $OLD; wait $OLD")
