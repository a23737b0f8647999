"""The part of a change that crosses into the grading sandbox, and the graded state. Pure, no I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from proctor_service.features.repositories import settings_keys
from proctor_service.features.repositories.applying import parents
from proctor_service.features.repositories.change import (
    Change,
    FileState,
    LeftOut,
    Mode,
    Reason,
    StoredFiles,
    mode_of,
    shown_path,
)
from proctor_service.features.repositories.protection import SIGNAL_FILES, Rules

_OF_THE_TASK: tuple[Reason, ...] = ("protected", "new_test", "shadows_the_runner")


@dataclass(frozen=True, slots=True)
class Crossing:
    """The crossing part of a change. `signals`: names of docs/signals.md."""

    change: Change
    left_out: tuple[LeftOut, ...] = ()
    signals: tuple[str, ...] = ()


class _Selected(StoredFiles):
    """Some files of a change, read on demand, and others in their place."""

    def __init__(
        self,
        files: Mapping[bytes, FileState | None],
        paths: Collection[bytes],
        own: Mapping[bytes, FileState],
    ) -> None:
        self._files, self._paths, self._own = files, dict.fromkeys(paths), own

    def __getitem__(self, path: bytes) -> FileState | None:
        if path not in self._paths:
            raise KeyError(path)
        return self._own[path] if path in self._own else self._files[path]

    def __contains__(self, path: object) -> bool:
        return path in self._paths

    def mode(self, path: bytes) -> Mode | None:
        """See `change.StoredFiles`."""
        return mode_of(self._own if path in self._own else self._files, path)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class _Graded(StoredFiles):
    """The crossing files, read on demand, and the task's files on top."""

    def __init__(
        self, files: Mapping[bytes, FileState | None], own: Mapping[bytes, FileState | None]
    ) -> None:
        self._files, self._own = files, own
        self._more = [path for path in own if path not in files]

    def __getitem__(self, path: bytes) -> FileState | None:
        return self._own[path] if path in self._own else self._files[path]

    def __contains__(self, path: object) -> bool:
        return path in self._own or path in self._files

    def mode(self, path: bytes) -> Mode | None:
        """See `change.StoredFiles`."""
        return mode_of(self._own if path in self._own else self._files, path)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._files
        yield from self._more

    def __len__(self) -> int:
        return len(self._files) + len(self._more)


def take_out(change: Change, rules: Rules) -> Crossing:
    """Return the crossing part of a change, and the list of the rest with reasons.

    The states of the change are read one after another; the result reads them again on demand.
    """
    taking = _Taking(change, rules)
    taking.by_path()
    taking.below_links()
    taking.in_place_of_folders()
    return taking.result()


class _Taking:
    def __init__(self, change: Change, rules: Rules) -> None:
        self._files, self._base, self._rules = change.files, rules.base, rules
        self._paths = rules.base.paths()
        self._crossing: dict[bytes, None] = {}
        self._links: set[bytes] = set()
        self._deleted: set[bytes] = set()
        self._own: dict[bytes, FileState] = {}
        self._left_out: dict[LeftOut, None] = {}
        self._signals: dict[str, None] = {}

    def _leave(self, path: bytes, reason: Reason) -> None:
        self._left_out[LeftOut(shown_path(path), reason)] = None
        self._crossing.pop(path, None)

    def by_path(self) -> None:
        for path in self._files:
            reason = self._rules.reason(path)
            if reason is None:
                self._take(path)
                continue
            self._leave(path, reason)
            if reason in ("protected", "shadows_the_runner"):
                self._signals["protected_files_changed"] = None
            if reason == "git" and path.split(b"/")[0] != b".git":
                self._signals["nested_repository"] = None

    def _take(self, path: bytes) -> None:
        self._crossing[path] = None
        if self._has_own_keys(path):
            self._take_keys(path, self._files[path])
            if path not in self._crossing:
                return
        mode = mode_of(self._files, path)
        if mode is None:
            self._deleted.add(path)
        elif mode == "link":
            self._links.add(path)
        name = path.rpartition(b"/")[2]
        is_of_gradle = name.endswith((b".gradle", b".gradle.kts")) or b"buildSrc" in path.split(
            b"/"
        )
        if name in SIGNAL_FILES or is_of_gradle:
            self._signals["build_files_changed"] = None
        if name.endswith(b".rs") and mode is not None and path in self._paths:
            before, state = self._base.state(path), self._files[path]
            assert state is not None
            if before is not None and _inline_tests(before.content) != _inline_tests(state.content):
                self._signals["inline_tests_changed"] = None

    def _has_own_keys(self, path: bytes) -> bool:
        if not settings_keys.has_protected_keys(path):
            return False
        name = path.rpartition(b"/")[2]
        if name in (b"Cargo.toml", b"go.mod", b"composer.json"):
            return self._rules.has_keys_of(name)
        return self._rules.has_node if path.endswith(b".json") else self._rules.has_python

    def _take_keys(self, path: bytes, state: FileState | None) -> None:
        """Give a file of settings the protected keys of the base, or leave the file out."""
        before = self._base.state(path) if path in self._paths else None
        trusted = None if before is None or before.mode == "link" else before.content
        content = settings_keys.empty(path) if state is None else state.content
        try:
            merged = settings_keys.with_protected_keys(path, content, trusted)
        except settings_keys.Unreadable:
            merged = b""
            is_whole = True
        else:
            is_whole = merged != content and (state is None or state.mode == "link")
        if is_whole or (state is not None and state.mode == "link"):
            self._leave(path, "protected")
            self._signals["protected_files_changed"] = None
        elif state is not None and merged != content:
            self._own[path] = FileState(state.mode, merged)
            self._left_out[LeftOut(shown_path(path), "protected_keys")] = None
            self._signals["protected_files_changed"] = None

    def below_links(self) -> None:
        for path in list(self._crossing):
            above = parents(path)
            if path not in self._deleted and any(each in self._links for each in above):
                self._leave(path, "below_a_link")
            elif any(each in self._paths and each not in self._deleted for each in above):
                self._leave(path, "below_a_link" if path not in self._deleted else "protected")

    def in_place_of_folders(self) -> None:
        """Leave out files and links in the place of folders of which something stays."""
        added = [
            path for path in self._crossing if path not in self._paths and path not in self._deleted
        ]
        if not added:
            return
        present = sorted(self._paths)
        for path in added:
            at = bisect_left(present, path + b"/")
            while at < len(present) and present[at].startswith(path + b"/"):
                if present[at] not in self._deleted:
                    self._leave(path, "protected")
                    self._signals["protected_files_changed"] = None
                    break
                at += 1

    def result(self) -> Crossing:
        unchanged = [
            path
            for path, state in self._own.items()
            if path in self._paths and self._base.state(path) == state
        ]
        for path in unchanged:
            self._crossing.pop(path, None)
        files = _Selected(self._files, self._crossing, self._own)
        return Crossing(Change(files), tuple(self._left_out), tuple(self._signals))


def _inline_tests(content: bytes) -> tuple[int, bytes]:
    """Return the number of test attributes of a Rust source, and its text from the first test module on."""
    _, _, tests = content.partition(b"#[cfg(test)]")
    return content.count(b"#[test]") + content.count(b"::test]"), tests


def graded(
    rules: Rules,
    crossing: Change,
    reference: Change | None,
    tests: Mapping[bytes, FileState],
    remove: Collection[bytes],
) -> Change:
    """Return the state in which grading happens, as a change of the base.

    Protected files and keys have the state of the reference, or else of the base; the task's tests lie on
    top, and the files of `remove` are deleted.
    """
    files = crossing.files
    own: dict[bytes, FileState | None] = {}
    base, paths = rules.base, rules.base.paths()
    if reference is not None:
        for path, state in reference.files.items():
            if rules.reason(path) in _OF_THE_TASK:
                own[path] = state
            elif settings_keys.has_protected_keys(path):
                before = base.state(path) if path in paths else None
                merged = _with_keys(path, files.get(path, before), state)
                if merged != before or path in files:
                    own[path] = merged
    for path in remove:
        if path in paths or path in files or path in own:
            own[path] = None
    own.update(tests)
    return Change(_Graded(files, own))


def _with_keys(path: bytes, state: FileState | None, trusted: FileState | None) -> FileState | None:
    """Return a file of settings with the protected keys of the reference."""
    content = settings_keys.empty(path) if state is None else state.content
    try:
        merged = settings_keys.with_protected_keys(
            path, content, None if trusted is None else trusted.content
        )
    except settings_keys.Unreadable:
        return trusted
    if merged == content:
        return state
    return FileState(state.mode if state is not None else "644", merged)
