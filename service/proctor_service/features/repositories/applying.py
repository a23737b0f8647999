"""Applies the files of a patch in one reading to a base, wholly or not at all. Pure, no I/O.

Within one diff of git, copies and swapped files take their source as of before the diff; of several diffs in
a row, each takes the source as left by the earlier diffs. A diff of git is sorted by path, so the next diff
begins where the order falls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from proctor_service.features.repositories import hunks
from proctor_service.features.repositories.binary_patches import blob_hash, patched_binary
from proctor_service.features.repositories.change import (
    Base,
    Change,
    FileState,
    LeftOut,
    Mode,
    Reason,
    is_possible,
    shown_path,
)
from proctor_service.features.repositories.failures import Applied, PatchFailed, Work
from proctor_service.features.repositories.patch_text import FilePatch
from proctor_service.features.repositories.readings import Reading

FILE_LINES = 50
"""Work of applying a file's part, besides its hunks, as a number of lines."""
ReasonOf = Callable[[bytes], Reason | bool | None]
"""Tells why a path does not cross whatever the patch does there, or True; None or False for others."""


def stated_reason(found: Reason | bool | None) -> Reason | None:
    """Return the reason of a ReasonOf: True is "protected"."""
    return ("protected" if found else None) if isinstance(found, bool) else found


class WorkingFiles:
    """The repository's files while a text is applied: the base, and the changes so far."""

    def __init__(self, base: Base, paths: Collection[bytes]) -> None:
        self.base, self.paths = base, paths
        self.changed: dict[bytes, FileState | None] = {}

    def exists(self, path: bytes | None) -> bool:
        if path is None:
            return False
        return self.changed[path] is not None if path in self.changed else path in self.paths

    def state(self, path: bytes) -> FileState | None:
        if path in self.changed:
            return self.changed[path]
        return self.base.state(path) if path in self.paths else None

    def change(self) -> Change:
        """Return the files that differ from the base."""
        files = {}
        for path, state in self.changed.items():
            before = self.base.state(path) if path in self.paths else None
            if before != state:
                files[path] = state
        return Change(files)

    def conflicts(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each file placed below another file, and the file above."""
        made = [path for path, state in self.changed.items() if state is not None]
        for path in made:
            above = next((each for each in parents(path) if self.exists(each)), None)
            if above is not None:
                yield path, above
        added = {path for path in made if path not in self.paths}
        if added:
            for path in self.paths:
                above = next((each for each in parents(path) if each in added), None)
                if above is not None and self.exists(path):
                    yield path, above


def parents(path: bytes) -> list[bytes]:
    """Return the folders above a path, the outermost first: of `a/b/c` these are `a`, `a/b`."""
    found, at = [], path.find(b"/")
    while at >= 0:
        found.append(path[:at])
        at = path.find(b"/", at + 1)
    return found


def applied_in(
    files: Sequence[FilePatch],
    reading: Reading,
    base: Base,
    paths: Collection[bytes],
    reason_of: ReasonOf,
    work: Work,
) -> Applied:
    """Return the change made by a patch in one reading. Raises PatchFailed."""
    application = _Application(files, reading, WorkingFiles(base, paths), work)
    for file in files:
        application.apply(file, reason_of)
    return application.result()


def _diff_numbers(files: Sequence[FilePatch], reading: Reading) -> list[int]:
    """Return for each file the number of its diff."""
    found: list[int] = []
    number, last, last_kind = 0, b"", ""
    for file in files:
        path = reading.path(file.new) or reading.path(file.old) or b""
        is_new_type = path == last and (last_kind, file.kind) == ("delete", "create")
        number += bool(found) and path <= last and not is_new_type
        last, last_kind = path, file.kind
        found.append(number)
    return found


class _Application:
    def __init__(
        self, files: Sequence[FilePatch], reading: Reading, working: WorkingFiles, work: Work
    ) -> None:
        self._reading, self._working, self._work = reading, working, work
        numbers = _diff_numbers(files, reading)
        self._numbers = iter(numbers)
        self._diff_number = 0
        self._gone = {
            (number, path)
            for number, file in zip(numbers, files, strict=True)
            if file.kind in ("rename", "delete") and (path := reading.path(file.old)) is not None
        }
        self._starts: dict[bytes, tuple[int, FileState | None]] = {}
        self._replaced = set[bytes]()  # made anew before the part that takes the old file away
        self._how: dict[str, None] = {}
        self._left_out: dict[LeftOut, None] = {}

    def apply(self, file: FilePatch, reason_of: ReasonOf) -> None:
        old, new = self._reading.path(file.old), self._reading.path(file.new)
        self._diff_number = next(self._numbers)
        self._work.spend(lines=FILE_LINES)
        effects = [new] if file.kind != "rename" else [new, old]
        effects = [each for each in effects if each is not None] or [old]
        reason = self._reason(file, effects)
        if reason is not None:
            self._left_out[LeftOut(shown_path(effects[0] or b""), reason)] = None
            return
        try:
            self._apply(file, old, new)
        except PatchFailed:
            reasons = [
                stated_reason(reason_of(each)) if each is not None else None for each in effects
            ]
            if not all(reasons):
                raise
            for path, found in zip(effects, reasons, strict=True):
                if path is not None and found is not None:
                    self._left_out[LeftOut(shown_path(path), found)] = None

    def _reason(self, file: FilePatch, effects: Sequence[bytes | None]) -> Reason | None:
        if any(path is not None and b".." in path.split(b"/") for path in effects):
            return "outside"
        if file.mode == "submodule":
            return "submodule"
        return "binary_without_data" if file.is_stub and file.kind != "delete" else None

    def _apply(self, file: FilePatch, old: bytes | None, new: bytes | None) -> None:
        for name in (file.old, file.new):
            if name is not None and not is_possible(self._reading.path(name) or b""):
                raise PatchFailed("a name that no file can have", file.shown)
        if file.kind == "create" or (
            file.may_create and not self._working.exists(new) and not self._working.exists(old)
        ):
            assert new is not None
            self._create(file, new)
        elif file.kind == "delete":
            assert old is not None
            self._delete(file, old)
        elif file.kind == "modify":
            target = new if self._working.exists(new) else old
            assert target is not None
            self._put(target, self._patched(file, self._existing(target, file)))
        else:
            assert old is not None
            assert new is not None
            self._move(file, old, new)

    def _existing(self, path: bytes, file: FilePatch) -> FileState:
        state = self._working.state(path)
        if state is None:
            raise PatchFailed(f"the repository has no file {shown_path(path)}", file.shown)
        return state

    def _put(self, path: bytes, state: FileState | None) -> None:
        if path not in self._starts or self._starts[path][0] != self._diff_number:
            self._starts[path] = self._diff_number, self._working.state(path)
        self._working.changed[path] = state

    def _before(self, path: bytes) -> FileState | None:
        """Return the state of a file before the present diff."""
        number, state = self._starts.get(path, (-1, None))
        return state if number == self._diff_number else self._working.state(path)

    def _put_new(self, file: FilePatch, path: bytes, state: FileState) -> None:
        """Put a file in a free place, or in the place of a file removed by a later part of the diff."""
        if self._working.exists(path):
            if (self._diff_number, path) not in self._gone:
                shown = shown_path(path)
                raise PatchFailed(f"the repository already has a file {shown}", file.shown)
            self._replaced.add(path)
        self._put(path, state)

    def _create(self, file: FilePatch, path: bytes) -> None:
        made = self._patched(file, FileState("644", b""))
        if not (self._working.exists(path) and self._working.state(path) == made):
            self._put_new(file, path, made)

    def _delete(self, file: FilePatch, path: bytes) -> None:
        is_replaced = path in self._replaced
        before = self._before(path) if is_replaced else self._existing(path, file)
        assert before is not None
        if (file.hunks or file.binary is not None) and self._patched(file, before).content:
            raise PatchFailed("the patch removes the file, but not all of its lines", file.shown)
        if is_replaced:
            self._replaced.discard(path)
        else:
            self._put(path, None)

    def _move(self, file: FilePatch, old: bytes, new: bytes) -> None:
        working = self._working
        before = self._before(old)
        now = None if old in self._replaced else working.state(old)
        options = [before, now] if file.kind == "copy" else [now, before]
        states = [each for each in options if each is not None]
        if not states:
            raise PatchFailed(f"the repository has no file {shown_path(old)}", file.shown)
        try:
            made = self._patched(file, states[0])
        except PatchFailed:
            if len(states) == 1 or states[1] == states[0]:
                raise
            made = self._patched(file, states[1])
        if file.kind == "rename" and old != new:
            if old in self._replaced:
                self._replaced.discard(old)
            else:
                self._put(old, None)
        if old == new:
            self._put(new, made)
        else:
            self._put_new(file, new, made)

    def _patched(self, file: FilePatch, before: FileState) -> FileState:
        """Return the state of a file after its hunks, its binary data and its mode."""
        content = before.content
        if file.binary is not None:
            digits = len(file.old_hash)
            is_other = digits in (40, 64) and blob_hash(content, digits) != file.old_hash
            if is_other and file.binary.kind == "delta":
                raise PatchFailed("the binary patch is for another content of the file", file.shown)
            content = patched_binary(file.binary, content, self._work, file.shown)
            digits = len(file.new_hash)
            is_checked = digits in (40, 64) and file.kind != "delete"
            if is_checked and blob_hash(content, digits) != file.new_hash:
                raise PatchFailed("damaged data of a binary patch: another hash", file.shown)
        elif file.hunks:
            content, how = hunks.patched(content, file.hunks, self._work, file.shown)
            self._how.update(dict.fromkeys(how))
        mode: Mode = before.mode
        if file.mode is not None and file.mode != "submodule" and file.kind != "delete":
            mode = file.mode
        if mode == "link" and content != before.content:
            content = content.removesuffix(b"\n")
        return FileState(mode, content)

    def result(self) -> Applied:
        for path, parent in list(self._working.conflicts()):
            state = self._working.changed.get(parent)
            if state is None or state.mode != "link" or path not in self._working.changed:
                raise PatchFailed(
                    f"{shown_path(path)} would lie below the file {shown_path(parent)}",
                    shown_path(path),
                )
            self._working.changed.pop(path)
            self._left_out[LeftOut(shown_path(path), "below_a_link")] = None
        return Applied(self._working.change(), tuple(self._how), tuple(self._left_out))
