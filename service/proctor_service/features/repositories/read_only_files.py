"""Files of a grading sandbox made read-only while its tests run. Pure.

Read-only are code of tests and settings of the runner, since tested code may rewrite a test before the runner
reads the file. Other files of tests stay writable: suites rewrite outputs, snapshots and data beside their
code, and builds rewrite files ignored by git.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from proctor_service.features.repositories.change import FileState, mode_of
from proctor_service.features.repositories.protection import Rules

MOST_FILES = 500
"""A mount costs some 30 microseconds; of more files, those come first that decide for sure."""
_CODE = frozenset(
    [b"py", b"pyx", b"js", b"cjs", b"mjs", b"jsx", b"ts", b"cts", b"mts", b"tsx", b"vue", b"coffee", b"go",
     b"java", b"kt", b"groovy", b"scala", b"php", b"rs", b"rb", b"c", b"cc", b"cpp", b"cxx", b"h", b"hpp",
     b"cs", b"swift", b"sh", b"bash", b"ini"]
)  # fmt: skip
_SETTINGS = (
    b"conftest.", b"pytest.", b".pytest.", b"tox.", b"sitecustomize.", b"usercustomize.", b"jest.",
    b"vitest.", b"vite.", b"babel.", b".babelrc", b".mocharc", b"karma.", b"ava.",
)  # fmt: skip
"""Beginnings of names of settings; only those count that are protected by their names."""


def read_only_files(
    rules: Rules, graded: Mapping[bytes, FileState | None], change: Collection[bytes]
) -> list[bytes]:
    """Return the paths of these files, at most MOST_FILES, surely deciding files first.

    `graded`: files put over the base. `change`: paths of the submission's change, open for the submission.
    """
    ranked = []
    placed = frozenset(graded)
    for path in placed.union(rules.base.paths()):
        name = path.rpartition(b"/")[2]
        is_setting = name.startswith(_SETTINGS)
        if path in change or not (is_setting or name.rpartition(b".")[2] in _CODE):
            continue
        rank = rules.rank_in_run(path, is_setting=is_setting)
        if rank is not None:
            ranked.append((rank, path))
    found: list[bytes] = []
    for _, path in sorted(ranked):
        text = os.fsdecode(path)
        is_made = path not in placed and rules.is_ignored(path)
        is_gone = path in placed and mode_of(graded, path) is None
        is_writable = any(fnmatchcase(text, pattern) for pattern in rules.protection.writable)
        if not (is_made or is_gone or is_writable):
            found.append(path)
            if len(found) == MOST_FILES:
                break
    return found
