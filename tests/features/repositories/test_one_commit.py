"""A `.git` that git itself accepts, written without git, and the rules for ignored files beside git's own."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor_service.features.repositories.enclosing import guest_source
from proctor_service.features.repositories.ignore_rules import rules_of, rules_of_folder
from proctor_service.features.repositories.one_commit import write_repository


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    done = ["git", "-C", str(folder), *words]
    return subprocess.run(
        done, capture_output=True, check=True, env=environment, text=True, errors="surrogateescape"
    ).stdout


def put(path: Path, text: str = "x\n", mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of all kinds, and with a `.git` that tracks an ignored one."""
    for number in range(30):
        put(tmp_path / f"d{number % 3}/e{number % 5}/file {number}", f"{number}\n" * number)
    for name in (
        "a.c",
        "a/x",
        "a-b/x",
        "a0",
        "\udcff.bin",
        "café.py",
        "sub/.git/config",
        "sub/x",
        "build/z",
        ".git-blame-ignore-revs",
    ):
        put(tmp_path / name)
    put(tmp_path / "run", mode=0o755)
    put(tmp_path / ".gitignore", "build/\n*.log\n")
    put(tmp_path / "noise.log")
    (tmp_path / "link").symlink_to("a.c")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "fifo.log")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-f", "build/z")
    return tmp_path


def test_git_accepts_the_commit(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = os.fsencode(folder)
    commit = write_repository(
        path, "v1.2.3", "base", rules_of_folder(path).is_ignored, 1_700_000_000
    )
    assert git(folder, "rev-parse", "HEAD").strip() == commit
    assert git(folder, "status", "--porcelain") == ""
    assert git(folder, "fsck", "--full", "--strict") == ""
    assert git(folder, "describe").strip() == "v1.2.3"
    assert git(folder, "describe", "--tags", "--long", "--dirty").startswith("v1.2.3-0-g")
    assert len(git(folder, "log", "--all", "--format=%H").split()) == 1
    files = git(folder, "ls-files", "-z").split("\0")
    assert {"build/z", "link", ".git-blame-ignore-revs", "sub/x", "\udcff.bin", "café.py"} <= set(
        files
    )
    assert not {"noise.log", "fifo.log", "sub/.git/config"} & set(files)
    index = tmp_path_factory.mktemp("index") / "index"
    environment = {"GIT_INDEX_FILE": str(index)}
    (folder / "sub/.git/config").rename(index.parent / "config")
    (folder / "sub/.git").rmdir()
    for words in (["add", "-A"], ["add", "-f", "build/z"]):
        subprocess.run(["git", "-C", folder, *words], env={**os.environ, **environment}, check=True)
    done = subprocess.run(
        ["git", "-C", folder, "write-tree"],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
    )
    assert done.stdout.decode() == git(folder, "rev-parse", "HEAD^{tree}")


def test_changes_are_seen_and_committed_by_git(folder: Path) -> None:
    write_repository(os.fsencode(folder))
    put(folder / "a.c", "changed\n")
    (folder / "a0").unlink()
    assert git(folder, "status", "--porcelain") == " M a.c\n D a0\n"
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "change")
    assert git(folder, "fsck", "--full") == ""


@pytest.mark.parametrize("version", [2, 4])
def test_the_source_for_a_guest_does_the_same(folder: Path, version: int) -> None:
    git(folder, "update-index", f"--index-version={version}")
    names: dict[str, Any] = {"__name__": "guest", "__file__": "guest"}
    exec(compile(guest_source(), "guest", "exec"), names)
    write: Callable[..., str] = names["write_repository"]
    path = os.fsencode(folder)
    write(path, "", "base", names["rules_of_folder"](path).is_ignored)
    assert "build/z" in git(folder, "ls-files")
    assert git(folder, "status", "--porcelain") == ""


def test_a_tag_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    for tag in ("../../x", "a..b", "-x", "x.lock", "a//b", "/a", "a b", "a\n", "x/"):
        with pytest.raises(ValueError, match="tag"):
            write_repository(os.fsencode(tmp_path), tag)
    assert list(tmp_path.iterdir()) == []
    write_repository(os.fsencode(tmp_path), "release/1.0")
    assert git(tmp_path, "describe").strip() == "release/1.0"


PATTERNS = (
    "a", "b", "*.x", "a*", "*b", "?", "[ab]", "[!a]", "[a-c]x", "a/b", "/a", "a/", "**/b", "a/**", "a/**/b",
    "!b", "!a/", "!*.x", "\\!c", "\\#d", "# c", "a/*", "/*", "!/a", "**", "*", "b ", "c\\ ", "a/b/", "x[",
    "[]-a]", "foo/*.x", "!foo", "*/b", "a/*/c", "/**/c", "", "[[:alpha:]]",
)  # fmt: skip
NAMES = ("a", "b", "c", "ab", "ax", "b.x", "foo", "!c", "#d", "c ", "aab", "xc", "x[", "]", "-")


def test_the_rules_for_ignored_files_are_those_of_git(tmp_path: Path) -> None:
    random_choice = random.Random(41)
    wrong = []
    for number in range(25):
        folder = tmp_path / str(number)
        git(tmp_path, "init", "-q", str(folder))
        text = "\n".join(random_choice.choices(PATTERNS, k=4)) + "\n"
        put(folder / ".gitignore", text)
        for _ in range(30):
            path = folder.joinpath(*random_choice.choices(NAMES, k=random_choice.randrange(1, 4)))
            above = [each for each in path.parents if each.is_file()]
            if not above and not path.exists():
                put(path)
        if (folder / "a").is_dir():
            put(folder / "a/.gitignore", "\n".join(random_choice.choices(PATTERNS, k=2)) + "\n")
        others = set(git(folder, "ls-files", "-o", "--exclude-standard", "-z").split("\0"))
        rules = rules_of_folder(os.fsencode(folder))
        for file in folder.rglob("*"):
            name = str(file.relative_to(folder))
            is_own = not file.is_file() or name.startswith(".git/")
            if not is_own and rules.is_ignored(os.fsencode(name)) == (name in others):
                wrong.append((name, text))
    assert wrong == []


def test_patterns_of_a_task_name_files_and_folders() -> None:
    rules = rules_of(["*.lock", "ci/"])
    found = [rules.is_ignored(each) for each in (b"a/b.lock", b"ci/run.sh", b"ci.py")]
    assert found == [True, True, False]
    assert not rules_of(["a" * 20 + "*" * 50 + "b"]).is_ignored(b"a" * 4000)
