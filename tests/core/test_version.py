"""The version of the service, with the commit that it is built from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import proctor
from harness import Service

from proctor_service import version as module
from proctor_service.version import RELEASE, version

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHOWN = re.compile(rf"{re.escape(RELEASE)}(\+[0-9a-f]{{7}})?")  # 0.2.0 or 0.2.0+abc1234


def test_the_command_and_the_service_tell_the_same(service: Service) -> None:
    with service.client() as client:
        health = client.get("/healthz").json()
        documented = client.get("/openapi.json").json()["info"]["version"]
    assert SHOWN.fullmatch(health["version"])
    assert documented == health["version"]
    assert proctor("--version").stdout == f"proctor {health['version']}\n"


@pytest.mark.parametrize(
    "files",
    [
        {".git/HEAD": COMMIT},
        {".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": f"{COMMIT}\n"},
        {
            ".git/HEAD": "ref: refs/heads/a/b\n",
            ".git/packed-refs": f"# pack-refs with: peeled\n{COMMIT} refs/heads/a/b\n",
        },
        {
            ".git": "gitdir: ../main/.git/worktrees/tree\n",
            "../main/.git/worktrees/tree/HEAD": "ref: refs/heads/side\n",
            "../main/.git/worktrees/tree/commondir": "../..\n",
            "../main/.git/refs/heads/side": COMMIT,
        },
        {"service/proctor_service/commit.txt": COMMIT},
    ],
    ids=["detached", "branch", "packed", "worktree", "built"],
)
def test_the_commit_is_that_of_the_build_or_of_the_tree(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "tree" / "service" / "proctor_service"
    package.mkdir(parents=True)
    monkeypatch.setattr(module, "_PACKAGE", package)
    assert version() == RELEASE
    for name, text in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert version() == f"{RELEASE}+{COMMIT[:7]}"
