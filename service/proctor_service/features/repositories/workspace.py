"""The repository in a sandbox of its image, as a task has it: for an agent, and for grading."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace

from proctor_client.wire import RepositoryGrader
from proctor_service.errors import FileRefused, InvalidTask
from proctor_service.features.repositories import enclosing, one_commit
from proctor_service.features.repositories.base import SandboxBase
from proctor_service.features.repositories.change import FileState
from proctor_service.features.repositories.changes import of_patch
from proctor_service.features.repositories.facts import Facts
from proctor_service.features.repositories.patches import PatchFailed
from proctor_service.features.repositories.reversal import reversed_patch
from proctor_service.features.repositories.shell import SHELLS, Shell, activation, prepare
from proctor_service.features.repositories.trees import SOURCE, Tree
from proctor_service.sandbox.interface import Command, Operation, StatefulSandbox

_NEAREST_TAG = """
git -c safe.directory='*' -C "$1" describe --tags --abbrev=0 --match '*[0-9]*' 2> /dev/null ||
git -c safe.directory='*' -C "$1" describe --tags --abbrev=0 2> /dev/null
"""
"""Prints the tag that tools take the version from, as `setuptools_scm` looks for it; else any."""
_GIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Workspace:
    """A repository in a sandbox, in the state that the policy meets.

    `base`: its files then. `from_commit`: the task's files of another commit, by path.
    """

    sandbox: StatefulSandbox
    tree: Tree
    base: SandboxBase
    shell: Shell
    from_commit: Mapping[bytes, FileState]
    site_packages: tuple[str, ...]

    @classmethod
    def of(
        cls, sandbox: StatefulSandbox, grader: RepositoryGrader, facts: Facts, folder: str
    ) -> Workspace:
        """Return the repository of a sandbox with these facts. `folder`: for files that cross."""
        tree = Tree(sandbox, facts.directory, folder)
        base = SandboxBase(tree, facts.sizes)
        shell = shell_of(grader, facts)
        return cls(sandbox, tree, base, shell, facts.from_commit, facts.site_packages)


def shell_of(grader: RepositoryGrader, facts: Facts) -> Shell:
    """Return how the commands of a task run."""
    variables = {**facts.variables, **grader.env}
    return Shell(facts.program, facts.directory, variables, facts.image_variables)


async def prepare_repository(
    sandbox: StatefulSandbox, grader: RepositoryGrader, folder: str
) -> Facts:
    """Bring the repository of a fresh sandbox into the state that the policy meets.

    `folder`: for files that cross. Raises InvalidTask.
    """
    operation = Operation(SOURCE, ("facts", grader.directory, list(SHELLS)))
    directory, is_there, shells = json.loads(await sandbox.operate(operation))
    if not is_there:
        raise InvalidTask(f"directory: there is no folder {directory} in the environment")
    if not shells:
        raise InvalidTask("the image has neither bash nor sh")
    image_variables, variables = await activation(sandbox, shells[0], grader.activate)
    facts = Facts(directory, shells[0], image_variables, variables)
    shell, tree = shell_of(grader, facts), Tree(sandbox, directory, folder)
    from_commit: dict[bytes, FileState] = {}
    if grader.files_from is not None:
        from_commit = await _files_of_commit(sandbox, grader, shell, folder)
    tag = ""
    if grader.prepare is not None:
        if grader.prepare.commands:  # which may replace the history
            tag = await _nearest_tag(sandbox, shell)
        if grader.prepare.patch:
            await _apply(tree, grader)
        await prepare(sandbox, shell, grader.prepare.commands)
    await _commit(sandbox, directory, await _nearest_tag(sandbox, shell) or tag)
    operation = Operation(SOURCE, ("site_packages", directory))
    packages = tuple(json.loads(await sandbox.operate(operation)))
    sizes, _ = await tree.sizes()
    return replace(facts, site_packages=packages, sizes=sizes, from_commit=from_commit)


async def hide_files(
    sandbox: StatefulSandbox, grader: RepositoryGrader, facts: Facts, folder: str
) -> None:
    """Hide from an agent what the task hides, also in the one commit. Raises InvalidTask."""
    await Tree(sandbox, facts.directory, folder).remove(grader.hide)
    await _commit(sandbox, facts.directory, await _nearest_tag(sandbox, shell_of(grader, facts)))


async def _apply(tree: Tree, grader: RepositoryGrader) -> None:
    assert grader.prepare is not None
    patch = grader.prepare.patch.encode("utf-8", "surrogateescape")
    if grader.prepare.reverse:
        patch = reversed_patch(patch)
    sizes, _ = await tree.sizes()
    try:
        change = await of_patch(patch, SandboxBase(tree, sizes))
    except PatchFailed as failed:
        raise InvalidTask(f"prepare.patch does not apply: {failed.file} {failed.message}") from None
    await tree.put(change.files)


async def _nearest_tag(sandbox: StatefulSandbox, shell: Shell) -> str:
    """Return the nearest tag of the history; empty without one.

    By git of the image, before any submission: without it, no program there asks for the tag.
    """
    words = (shell.program, "-c", _NEAREST_TAG, "git", shell.directory)
    ended = await sandbox.exec(Command(words, timeout_seconds=_GIT_SECONDS))
    tag = ended.stdout.decode("utf-8", "replace").strip() if ended.exit_code == 0 else ""
    return tag if one_commit.is_tag_name(tag) else ""


async def _commit(sandbox: StatefulSandbox, directory: str, tag: str) -> None:
    """Replace the history around the directory by one commit, with a tag if any. Raises InvalidTask."""
    try:
        await sandbox.operate(Operation(enclosing.guest_source(), (directory, tag)))
    except FileRefused as refused:
        raise InvalidTask(f"the repository has no commit: {refused.message}"[:1000]) from None


async def _files_of_commit(
    sandbox: StatefulSandbox, grader: RepositoryGrader, shell: Shell, folder: str
) -> dict[bytes, FileState]:
    """Return files of another commit of the image's repository, by path. Raises InvalidTask."""
    wanted = grader.files_from
    assert wanted is not None
    place = posixpath.join("/tmp", posixpath.basename(folder))
    script = (
        'place="$1" top="$2" commit="$3"; shift 3; mkdir "$place" && exec git -c safe.directory="*" '
        '--git-dir="$top/.git" --work-tree="$place" checkout -q "$commit" -- "$@"'
    )
    words = (place, shell.directory, wanted.commit, *wanted.paths)
    ended = await sandbox.exec(
        Command((shell.program, "-c", script, "git", *words), timeout_seconds=_GIT_SECONDS)
    )
    if ended.exit_code != 0:
        why = ended.stderr.decode("utf-8", "replace")[-500:]
        raise InvalidTask(f"files_from: git of the image fails: {why}")
    brought = Tree(sandbox, place, folder)
    sizes, _ = await brought.sizes()
    states = await brought.states(sizes.keys())
    await brought.remove([place])
    return {path: state for path, state in states.items() if state is not None}
