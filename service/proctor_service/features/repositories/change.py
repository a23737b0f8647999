"""The change of a repository as a value: files as git has them, by path."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

Mode = Literal["644", "755", "link"]
"""Mode of a file as git has it: a regular file, an executable one, or a symbolic link."""

Reason = Literal[
    "protected",  # decides how tests are found and run
    "protected_keys",  # settings of the test runner inside the file; the rest of it crosses
    "new_test",  # a file that the runner would collect and the task does not bring
    "shadows_the_runner",  # a module with the name of the test runner
    "git",  # `.git` at any depth
    "submodule",  # a commit of another repository in place of a folder
    "cache",  # `__pycache__`, `*.pyc`, `.pytest_cache`
    "environment",  # a virtual environment or `node_modules` inside the repository
    "ignored",  # an untracked file that the base's `.gitignore` names
    "below_a_link",  # the change makes a link of one of its parents
    "outside",  # the path leaves the repository
    "no_regular_file",  # a FIFO, a socket, a device
    "binary_without_data",  # git's line `Binary files differ` in place of the content
]
"""Why a file of a submission does not cross into the grading sandbox."""


@dataclass(frozen=True, slots=True)
class FileState:
    """A file in git's terms. `content`: for a link, its target."""

    mode: Mode
    content: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """Files below the repository's folder after a change, by path.

    `files`: paths as bytes, relative to the repository, without a leading slash; None: deleted.
    """

    files: Mapping[bytes, FileState | None]

    def __bool__(self) -> bool:
        return bool(self.files)


class StoredFiles(Mapping[bytes, FileState | None]):
    """Files by path, read when asked for: neither a mode nor the presence of a path reads contents."""

    @abstractmethod
    def __contains__(self, path: object) -> bool: ...

    @abstractmethod
    def mode(self, path: bytes) -> Mode | None:
        """Return the mode of a file of the mapping; None for a deleted file."""


def mode_of(files: Mapping[bytes, FileState | None], path: bytes) -> Mode | None:
    """Return the mode of a file of a mapping; None for a deleted file."""
    if isinstance(files, StoredFiles):
        return files.mode(path)
    state = files[path]
    return None if state is None else state.mode


class Base(Protocol):
    """The repository's files before the change."""

    def paths(self) -> Collection[bytes]:
        """Return the paths of all files and links, tracked or untracked, except for `.git`."""
        ...

    def state(self, path: bytes) -> FileState | None:
        """Return the state of a file or link; None if absent."""
        ...


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file of the submission that does not cross. `path`: as text, other bytes as `\\xff`."""

    path: str
    reason: Reason


LONGEST_PATH_BYTES = 4096
"""PATH_MAX of Linux."""
MAX_COMPONENTS = 128


def is_possible(path: bytes) -> bool:
    """Return True for a path allowed in a repository: bounded, and below the repository's folder."""
    if not path or len(path) > LONGEST_PATH_BYTES or b"\0" in path:
        return False
    names = path.split(b"/")
    return len(names) <= MAX_COMPONENTS and not any(each in (b"", b".", b"..") for each in names)


def shown_path(path: bytes) -> str:
    """Return a path for people: UTF-8, other bytes as `\\xff`."""
    return path.decode("utf-8", "backslashreplace")
