"""The repositories of git around a folder, each of which gets one commit in place of its history.

Standard library only: this module runs in a sandbox, too, from Python 3.8; `guest_source` returns it with the
modules that it imports. Files and links `.git`, worktrees and alternates are followed as git does.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Iterator, List, Set, Tuple

from proctor_service.features.repositories import ignore_rules, one_commit
from proctor_service.features.repositories.ignore_rules import rules_of_folder
from proctor_service.features.repositories.one_commit import (
    git_folder,
    tracked_paths,
    write_repository,
)

_OBJECTS = re.compile(rb"[0-9a-f]{2}|pack")
"""Matches the folders of a store with objects: `3f`, `pack`."""
_MOST_STORES = 1000
_IMPORTS = re.compile(r"^from proctor_service\S* import (?:\([^)]*\)|.*)\n", re.M)
"""Matches an import of the service's own modules, on one line or in brackets."""


def commit_around(directory: bytes, tag: str) -> None:
    """Give the repositories around a folder one commit each, of all their files, and remove their objects.

    These are the one that git finds from the folder, which gets `tag`, and those further above that track
    files below the folder. Raises OSError where that is not possible.
    """
    directory = os.path.realpath(directory)
    tops = []
    commons = []
    for top, common in _repositories(directory):
        tops.append(top)
        commons.append(common)
    stores = list(_stores([os.path.join(each, b"objects") for each in commons]))
    for common in commons:  # a worktree shares the objects of the repository that it was made in
        above, name = os.path.split(common)
        if name == b".git" and above not in tops:
            tops.append(above)
        if _is_below(directory, common):
            raise OSError("the files lie inside of the folder of git")
    if b"/" in tops:
        raise OSError("it is the folder /")
    for number, top in enumerate(tops):
        write_repository(top, "" if number else tag, is_ignored=rules_of_folder(top).is_ignored)
    new = {os.path.join(top, b".git") for top in tops}
    for common in commons:
        if common not in new and os.path.isdir(common):
            shutil.rmtree(common)
    for store in stores:
        if os.path.dirname(store) not in new:
            _remove_objects(store)


def _repositories(directory: bytes) -> Iterator[Tuple[bytes, bytes]]:
    """Yield each repository around a folder, the innermost first, and its folder with objects."""
    top, is_found = directory, False
    while True:
        git = git_folder(top)
        common = _common(git) if git else b""
        if git and os.path.isdir(os.path.join(common, b"objects")):
            if not is_found or _tracks(git, os.path.relpath(directory, top)):
                yield top, common
            is_found = True
        if top == b"/":
            return
        top = os.path.dirname(top)


def _tracks(git: bytes, folder: bytes) -> bool:
    tracked = tracked_paths(os.path.join(git, b"index"))
    return any(path.startswith(folder + b"/") for path in tracked)


def _common(git: bytes) -> bytes:
    """Return the folder with the objects of a worktree; that of any other repository is its own."""
    try:
        with open(os.path.join(git, b"commondir"), "rb") as file:
            common = os.path.join(git, file.read().rstrip(b"\r\n"))
    except OSError:
        common = git
    return os.path.realpath(common)


def _stores(waiting: List[bytes]) -> Iterator[bytes]:
    """Yield folders of objects and those of their alternates."""
    found: Set[bytes] = set()
    while waiting and len(found) < _MOST_STORES:
        store = os.path.realpath(waiting.pop())
        if store in found:
            continue
        found.add(store)
        yield store
        try:
            with open(os.path.join(store, b"info/alternates"), "rb") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        waiting += [os.path.join(store, line) for line in lines if line[:1] not in (b"", b"#")]


def _remove_objects(store: bytes) -> None:
    if os.path.isdir(store):
        for name in os.listdir(store):
            if _OBJECTS.fullmatch(name):
                shutil.rmtree(os.path.join(store, name))


def _is_below(path: bytes, folder: bytes) -> bool:
    return (path + b"/").startswith(folder + b"/")


def guest_source() -> str:
    """Return a program whose `main(directory, tag)` does what `commit_around` does, for a sandbox."""
    modules = (ignore_rules.__file__, one_commit.__file__, __file__)
    text = "\n\n".join(_IMPORTS.sub("", Path(each).read_text()) for each in modules)
    return text + "\n\ndef main(directory, tag):\n    commit_around(os.fsencode(directory), tag)\n"
