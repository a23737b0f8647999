"""Version of the service with the commit of its build: `0.2.0+abc1234`.

A build of a wheel or an image writes the commit into `commit.txt`; in a source tree read from git's
files, without a process.
"""

from __future__ import annotations

from pathlib import Path

RELEASE = "0.2.0"  # read by the build, too
_COMMIT_CHARACTERS = 7
_PACKAGE = Path(__file__).parent


def version() -> str:
    """Return the release, `+`, and the commit; the release alone where the commit is unknown."""
    commit = _built_commit() or _checked_out_commit(_PACKAGE.parents[1])
    return f"{RELEASE}+{commit[:_COMMIT_CHARACTERS]}" if commit else RELEASE


def _built_commit() -> str:
    try:
        return (_PACKAGE / "commit.txt").read_text().strip()
    except OSError:
        return ""


def _checked_out_commit(tree: Path) -> str:
    """Return the commit of HEAD in a source tree; empty for an installed package."""
    if not (tree / "service" / "proctor_service").is_dir():
        return ""
    try:
        git = _git_folder(tree)
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        return _commit_of(git, head.removeprefix("ref: "))
    except OSError:
        return ""


def _git_folder(tree: Path) -> Path:
    """Return the folder of git's files; in a worktree `.git` is a file with its name."""
    git = tree / ".git"
    return git if git.is_dir() else tree / git.read_text().strip().removeprefix("gitdir: ")


def _commit_of(git: Path, reference: str) -> str:
    """Return the commit of a branch: the reference has a file, or a line of `packed-refs`."""
    common = git / "commondir"  # of a worktree: where the branches are
    shared = git / common.read_text().strip() if common.is_file() else git
    if (shared / reference).is_file():
        return (shared / reference).read_text().strip()
    for line in (shared / "packed-refs").read_text().splitlines():
        commit, _, name = line.partition(" ")
        if name == reference:
            return commit
    return ""
