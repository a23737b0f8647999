"""No history around the folder of a task reaches an agent or the grading, wherever git keeps it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import host_image
import pytest
from unpacked_image import unpacked_image

from proctor_client.wire import RepositoryGrader
from proctor_service.errors import InvalidTask
from proctor_service.features.environments.by_name import KnownEnvironments
from proctor_service.features.repositories.prepared import PreparedStates
from proctor_service.sandbox.environments import BuiltEnvironment
from proctor_service.sandbox.interface import Command, Limits
from proctor_service.sandbox.local import LocalBackend
from proctor_service.sandbox.local.launch import make_plan
from proctor_service.settings import Settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("git") is None, reason="git makes the repository"),
]
LIMITS = Limits(60, 60, 512, 1 << 16, 64, 64)
LOOK = """
git status --short; git rev-parse --show-toplevel; git describe --tags 2> /dev/null || echo none
git rev-list --all --count; git fsck --full --lost-found; git stash list; git reflog; git notes list
git for-each-ref --format='%(refname)'; cd "$(git rev-parse --git-dir)"; ls | grep HEAD
"""
SEARCH = """
git init -q --bare /tmp/none
for store in $(find / -xdev -type d -name objects); do for id in $OLD; do
  if GIT_OBJECT_DIRECTORY=$store git --git-dir=/tmp/none cat-file -e $id; then echo "$id in $store"; fi
done; done 2> /dev/null
echo end
"""
"""Looks for old objects in all stores of the image."""


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    command += ["-c", "protocol.file.allow=always", *words]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


def history(top: Path, folder: str = ".") -> str:
    """Make a repository whose later commit fixes a file, with all that keeps the later commit.

    Returns ids of the later objects.
    """
    file = top / folder / "code.py"
    file.parent.mkdir(parents=True)
    git(top, "init", "-q", "-b", "main")
    (top / "README").write_text("a project\n")
    file.write_text(f"fault of {top.name}\n")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "base")
    git(top, "tag", "v1.2.0")
    file.write_text(f"the fix in {top.name}\n")
    git(top, "commit", "-qam", "the fix")
    ids = git(top, "rev-parse", "HEAD", "HEAD^{tree}", f"HEAD:{file.relative_to(top)}")
    git(top, "notes", "add", "-m", "the fix")
    git(top, "branch", "later")
    git(top, "reset", "-q", "--hard", "v1.2.0")
    file.write_text(f"stashed in {top.name}\n")
    git(top, "stash", "-q")
    git(top, "gc", "-q")
    return ids


def fill(files: Path) -> dict[str, str]:
    """Make repositories of all shapes; return the ids of their later objects."""
    shapes = ("plain", "main", "store", "part", "upstream", "inside", "super")
    ids = {name: history(files / name) for name in shapes}
    ids |= {name: history(files / name, "packages/x") for name in ("mono", "nested", "foreign")}
    # a worktree, and a link
    git(files / "main", "worktree", "add", "-q", "--detach", str(files / "tree"), "v1.2.0")
    (files / "tree/.git").write_text("gitdir: /main/.git/worktrees/tree\n")
    (files / "srv").mkdir()
    (files / "store/.git").rename(files / "srv/store.git")
    (files / "store/.git").symlink_to("/srv/store.git")
    # a submodule, whose history lies in the repository above it
    git(files / "super", "submodule", "--quiet", "add", str(files / "part"), "part")
    git(files / "super/part", "fetch", "-q", "origin", "later")
    git(files / "super", "commit", "-qam", "a submodule")
    shutil.rmtree(files / "part")
    # objects in another folder
    git(files, "clone", "-q", "--shared", str(files / "upstream"), str(files / "shared"))
    (files / "shared/.git/objects/info/alternates").write_text("/upstream/.git/objects\n")
    # a repository in a folder that the one above it tracks
    git(files / "nested/packages/x", "init", "-q")
    git(files / "nested/packages/x", "add", "-A")
    git(files / "nested/packages/x", "commit", "-qm", "all")
    # what is refused: a folder inside of git's, and a repository of the whole image
    (files / "inside/.git/work").mkdir()
    (files / "rooted").mkdir()
    (files / "rooted/code.py").write_text("x\n")
    git(files, "init", "-q")
    git(files, "add", "rooted")
    git(files, "commit", "-qm", "all")
    return ids


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[BuiltEnvironment, dict[str, str]]:
    """Return an environment, and the ids of later objects by the folder of their repository."""
    ids: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_image, "PROGRAMS", (*host_image.PROGRAMS, "git"))
        folder = tmp_path_factory.mktemp("image") / "store"
        environment = unpacked_image(folder, lambda files: ids.update(fill(files)), "/plain")
    return environment, ids


def looked(
    environment: BuiltEnvironment, directory: str, script: str, *, for_agent: bool = True
) -> str:
    """Return the output of a script in the prepared sandbox of a task."""
    assert environment.folder is not None
    known = KnownEnvironments({"app": environment}, environment.folder, most_bytes=1 << 33)
    task = RepositoryGrader(
        kind="repository", test="true", fail_to_pass=["t"], directory=directory, hide=["secret"]
    )

    async def acted() -> str:
        backend = LocalBackend(make_plan(Settings(slots=2), environments=known))
        await backend.start()
        try:
            async with PreparedStates().opened(
                task, backend, LIMITS, "app", {}, for_agent=for_agent
            ) as (sandbox, _, _):
                ended = await sandbox.exec(Command(("sh", "-ec", f"cd {directory}\n{script}")))
                assert ended.exit_code == 0, ended
                return ended.stdout.decode()
        finally:
            await backend.close()

    return asyncio.run(acted())


@pytest.mark.parametrize(
    ("directory", "repository", "histories"),
    [
        ("/plain", "/plain", ["plain"]),
        ("/mono/packages/x", "/mono", ["mono"]),
        ("/nested/packages/x", "/nested/packages/x", ["nested"]),
        ("/tree", "/tree", ["main"]),
        ("/store", "/store", ["store"]),
        ("/super/part", "/super/part", ["part"]),
        ("/super", "/super", ["super", "part"]),
        ("/shared", "/shared", ["upstream"]),
    ],
)
@pytest.mark.parametrize("for_agent", [True, False], ids=["agent", "grading"])
def test_there_is_one_commit(
    built: tuple[BuiltEnvironment, dict[str, str]],
    directory: str,
    repository: str,
    histories: list[str],
    for_agent: bool,
) -> None:
    environment, ids = built
    wanted = " ".join(ids[name] for name in histories).split()
    script = f"OLD='{' '.join(wanted)}'\n{LOOK}\n{SEARCH}"
    found = looked(environment, directory, script, for_agent=for_agent).splitlines()
    tag = "none" if directory.startswith("/nested") else "v1.2.0"
    references = ["refs/heads/main", *(["refs/tags/v1.2.0"] if tag != "none" else [])]
    assert found == [repository, tag, "1", *references, "HEAD", "end"]


def test_other_repositories_are_the_images_own(
    built: tuple[BuiltEnvironment, dict[str, str]],
) -> None:
    environment, ids = built
    old = ids["plain"].split()
    script = f"OLD='{' '.join(old)}'\n{SEARCH}"
    found = looked(environment, "/mono/packages/x", script).splitlines()
    assert found == [*(f"{each} in /plain/.git/objects" for each in old), "end"]


def test_a_submodule_is_part_of_the_commit(built: tuple[BuiltEnvironment, dict[str, str]]) -> None:
    script = "git ls-files part; cd part; git log --format=%s"
    assert looked(built[0], "/super", script).split() == ["part/README", "part/code.py", "base"]


@pytest.mark.parametrize(
    ("directory", "user", "reason"),
    [
        ("/inside/.git/work", 0, "inside of the folder of git"),
        ("/rooted", 0, "it is the folder /"),
        ("/foreign/packages/x", 1000, "ermission"),
    ],
)
def test_a_history_that_cannot_be_replaced_is_refused(
    built: tuple[BuiltEnvironment, dict[str, str]], directory: str, user: int, reason: str
) -> None:
    image = built[0].image
    assert image is not None
    environment = replace(built[0], image=replace(image, user=user, group=user))
    with pytest.raises(InvalidTask, match=f"the repository has no commit: .*{reason}"):
        looked(environment, directory, "true")
