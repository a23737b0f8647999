"""Patches as git writes them make the tree that git has, in all forms of `git diff`."""

from __future__ import annotations

import random
from pathlib import Path

from random_repositories import RandomTrees, Tree, commit_all, difference
from repository_files import Files

from proctor_service.features.repositories.patches import read_patch

PAIRS = 120
OPTIONS = (
    (), ("-M",), ("-M30%",), ("-C", "--find-copies-harder"), ("--no-prefix",), ("diff.mnemonicPrefix=true",),
    ("--full-index",), ("--histogram",), ("-U0",), ("-U1",), ("-U5",), ("-U10",), ("--no-renames",), ("-W",),
    ("--src-prefix=old/", "--dst-prefix=new/"), ("core.quotePath=false",), ("--inter-hunk-context=3",),
    ("--stat", "-p"), ("diff.noprefix=true", "-M", "-U2"),
)  # fmt: skip


def test_patches_of_git_make_the_tree_that_git_has(tmp_path: Path) -> None:
    trees = RandomTrees(41)
    pairs = [trees.pair() for _ in range(PAIRS)]
    branches: dict[str, Tree] = {}
    for number, (before, after) in enumerate(pairs):
        branches |= {f"before{number}": before, f"after{number}": after}
    commit_all(tmp_path / "git", branches)
    chosen = random.Random(41)
    wrong = []
    for number, (before, after) in enumerate(pairs):
        if before == after:
            continue
        options = ("--binary", *chosen.choice(OPTIONS))
        text = difference(tmp_path / "git", f"before{number}", f"after{number}", options)
        base = Files(before)
        patch = read_patch(text)
        needed = set(patch.needed(base.paths()))
        applied = patch.applied(Files({path: before[path] for path in before}))
        if base.after(applied.change) != after or not needed <= before.keys():
            wrong.append((number, options, text))
        if set(applied.how) - {"prefix"}:
            wrong.append((number, options, repr(applied.how).encode()))
    assert wrong == []


def test_a_patch_without_its_binary_data_leaves_those_files_out(tmp_path: Path) -> None:
    trees = RandomTrees(42)
    pairs = [trees.pair() for _ in range(40)]
    branches: dict[str, Tree] = {}
    for number, (before, after) in enumerate(pairs):
        branches |= {f"before{number}": before, f"after{number}": after}
    commit_all(tmp_path / "git", branches)
    for number, (before, after) in enumerate(pairs):
        text = difference(tmp_path / "git", f"before{number}", f"after{number}", ["--no-renames"])
        if not text:
            continue
        applied = read_patch(text).applied(Files(before))
        left_out = {each.path for each in applied.left_out}
        assert {each.reason for each in applied.left_out} <= {"binary_without_data"}
        made = Files(before).after(applied.change)
        for path in before.keys() | after.keys():
            if path.decode("utf-8", "backslashreplace") not in left_out:
                assert made.get(path) == after.get(path), (path, text)


def test_diffs_of_two_commits_apply_one_after_the_other(tmp_path: Path) -> None:
    trees = RandomTrees(43)
    pairs = [trees.pair() for _ in range(80)]
    branches: dict[str, Tree] = {}
    thirds = [trees.after(second) for _, second in pairs]
    for number, (first, second) in enumerate(pairs):
        branches |= {f"a{number}": first, f"b{number}": second, f"c{number}": thirds[number]}
    commit_all(tmp_path / "git", branches)
    options = (("--binary",), ("--binary", "-C", "--find-copies-harder"))
    wrong = []
    for number, (first, _) in enumerate(pairs):
        text = b"".join(
            difference(
                tmp_path / "git", f"{before}{number}", f"{after}{number}", options[number % 2]
            )
            for before, after in ("ab", "bc")
        )
        applied = read_patch(text).applied(Files(first)) if text else None
        if applied is not None and Files(first).after(applied.change) != thirds[number]:
            wrong.append((number, text))
    assert wrong == []
