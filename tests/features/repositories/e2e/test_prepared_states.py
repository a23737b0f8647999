"""The state that a policy meets, as a layer over an image: made once, kept, and the same in each sandbox."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import host_image
import pytest
from unpacked_image import unpacked_image

from proctor_client.wire import RepositoryGrader
from proctor_service.errors import InvalidTask
from proctor_service.features.environments.by_name import KnownEnvironments
from proctor_service.features.environments.images import DERIVED, NOTES
from proctor_service.features.repositories.facts import Facts
from proctor_service.features.repositories.prepared import PreparedStates
from proctor_service.sandbox.environments import BuiltEnvironment
from proctor_service.sandbox.interface import Command, Limits, StatefulSandbox
from proctor_service.sandbox.local import LocalBackend
from proctor_service.sandbox.local.launch import make_plan
from proctor_service.settings import Settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("git") is None, reason="git makes the repository"),
]
LIMITS = Limits(60, 60, 512, 1 << 16, 64, 64)
PREPARE = {"commands": ["date +%N > made; chmod 755 a.py"]}
FILES = {"a.py": "1\n", "secret": "s\n", ".gitignore": "*.log\n", "pkg/b.py": "2\n"}
LOOK = """
cat made; ls; git describe --tags; git status --short; git rev-list --all --count
git cat-file --batch-all-objects --batch-check | wc -l; stat -c %a a.py; git ls-files secret
"""
Open = Callable[..., Coroutine[Any, Any, str]]
Work = Callable[..., None]


def history(app: Path) -> None:
    """Make a repository with three tags, of which the nearest with a number is `v1.2.0`."""
    git = ["git", "-C", str(app), "-c", "user.name=t", "-c", "user.email=t@example.org"]

    def commit(*tag: str) -> None:
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "c"], check=True)
        if tag:
            subprocess.run([*git, "tag", *tag], check=True)

    subprocess.run([*git, "init", "-q", "-b", "main", str(app)], check=True)
    commit("v1.0.0")
    commit("-a", "v1.2.0", "-m", "a release")
    for name, text in FILES.items():
        (app / name).parent.mkdir(exist_ok=True)
        (app / name).write_text(text)
    commit("latest")
    subprocess.run([*git, "checkout", "-q", "-b", "later"], check=True)
    commit("v9.0.0")
    subprocess.run([*git, "checkout", "-q", "main"], check=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltEnvironment:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_image, "PROGRAMS", (*host_image.PROGRAMS, "git"))
        folder = tmp_path_factory.mktemp("image") / "store"
        return unpacked_image(folder, lambda files: history(files / "app"), "/app")


@pytest.fixture
def work(built: BuiltEnvironment) -> Work:
    """Runs a function with another that opens a sandbox of a task, and runs a script there."""
    assert built.folder is not None
    known = KnownEnvironments({"app": built}, built.folder, most_bytes=1 << 33)

    def run(function: Callable[[Open], Any], *, keeps: bool = False) -> None:
        async def acted() -> None:
            backend = LocalBackend(make_plan(Settings(slots=2), environments=known))
            await backend.start()
            try:

                async def opened(
                    states: PreparedStates,
                    script: str,
                    files: Mapping[str, str] = {},
                    **fields: Any,
                ) -> str:
                    for_agent = fields.pop("for_agent", False)
                    task = grader(**fields)
                    async with states.opened(
                        task, backend, LIMITS, "app", files, for_agent=for_agent
                    ) as (sandbox, facts, _):
                        return await shell(sandbox, facts, script)

                await function(opened)
            finally:
                await backend.close()

        asyncio.run(acted())
        for folder in () if keeps else (DERIVED, NOTES):
            shutil.rmtree(known.folder / folder, ignore_errors=True)

    return run


async def shell(sandbox: StatefulSandbox, facts: Facts, script: str) -> str:
    assert facts.directory == "/app"
    ended = await sandbox.exec(Command(("sh", "-ec", f"cd {facts.directory}\n{script}")))
    assert ended.exit_code == 0, ended
    return ended.stdout.decode()


def grader(**fields: Any) -> RepositoryGrader:
    return RepositoryGrader(
        **{
            "kind": "repository",
            "test": "true",
            "fail_to_pass": ["t"],
            "prepare": PREPARE,
            **fields,
        }
    )


def test_a_state_is_made_once_and_has_one_commit_with_the_tag(
    work: Work,
) -> None:
    async def acted(opened: Open) -> None:
        states = PreparedStates()
        found = await asyncio.gather(*(opened(states, LOOK) for _ in range(6)))
        assert len(set(found)) == 1, found
        lines = found[0].splitlines()
        # one commit with its two folders, the tag, and five files
        assert lines[1:] == ["a.py", "made", "pkg", "secret", "v1.2.0", "1", "9", "755", "secret"]
        agent = await opened(states, LOOK, hide=["secret"], for_agent=True)
        assert agent.splitlines() == [*lines[:4], "v1.2.0", "1", "8", "755"]
        assert await opened(states, LOOK, for_agent=True) == found[0], "the same without `hide`"
        assert await opened(PreparedStates(), LOOK) == found[0], "after a restart"
        other = await opened(states, "cat made; cat log", {"log": "x"})
        assert other.splitlines() != lines[:1]
        assert other.endswith("x")

    work(acted)


def test_a_state_that_was_removed_is_made_again(work: Work, built: BuiltEnvironment) -> None:
    assert built.folder is not None
    found = []

    async def acted(opened: Open) -> None:
        states = PreparedStates()
        found.append(await opened(states, "cat made; git status --short"))
        assert found[-1] == await opened(states, "cat made; git status --short")

    work(acted, keeps=True)
    work(acted, keeps=True)
    assert found[0] == found[1]
    for mark in (built.folder / DERIVED).iterdir():
        mark.unlink()
    work(acted)
    assert found[1] != found[2]


def test_a_preparation_that_fails_is_not_kept(work: Work, built: BuiltEnvironment) -> None:
    async def acted(opened: Open) -> None:
        assert built.folder is not None
        prepare = {"commands": ["echo x > made", "exit 3"]}
        for _ in range(2):
            with pytest.raises(InvalidTask, match=r"prepare.commands.1 ends with 3"):
                await opened(PreparedStates(), "true", prepare=prepare)
        assert not list((built.folder / DERIVED).glob("*"))

    work(acted)
