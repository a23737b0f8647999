"""Reads a unified diff, as written by git, `diff -u` and people, into files and hunks. Pure, linear time.

A hunk has the number of lines stated in its head. Where the head contradicts the text, the lines are counted:
lines with a blank, `+`, `-` or `\\` at the begin, and empty lines, up to the next head. Text around files,
such as mail heads, fences and signatures, is passed over, as in `git apply`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from proctor_service.features.repositories import quoted_names
from proctor_service.features.repositories.binary_patches import BinaryData, read_binary
from proctor_service.features.repositories.change import (
    LONGEST_PATH_BYTES,
    MAX_COMPONENTS,
    Mode,
    shown_path,
)
from proctor_service.features.repositories.failures import (
    MAX_PATCH_BYTES,
    MAX_PATCH_LINES,
    MAX_PATCHED_FILES,
    PatchFailed,
)

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
"""Matches `@@ -13,7 +13,7 @@ def words(text):`."""
_HEADS = re.compile(rb"^(?:\+\+\+ |@@ -|diff --git ).*$", re.M)
_STUB = re.compile(rb"(?:Binary )?[Ff]iles (.+) and (.+) differ\r?$", re.S)
"""Matches `Binary files a/logo.png and b/logo.png differ`."""

FileKind = Literal["modify", "create", "delete", "rename", "copy"]


@dataclass(slots=True)
class Hunk:
    """A hunk. `start`: line number in the old file from 1, None if not stated. `lines`: with line ends.

    `marks`: for each line ` `, `-` or `+`.
    """

    number: int
    start: int | None
    marks: bytes
    lines: list[bytes]

    @property
    def is_first_of_new(self) -> bool:
        return self.start == 0 and not self.marks.strip(b"+")

    @property
    def old(self) -> list[bytes]:
        return [line for mark, line in zip(self.marks, self.lines, strict=True) if mark != 0x2B]


@dataclass(frozen=True, slots=True)
class Name:
    """A name of a file. `is_bare`: without a prefix such as `a/`, from a line `rename from`."""

    raw: bytes
    is_bare: bool = False


@dataclass(slots=True)
class FilePatch:
    """The part of a patch for one file.

    `mode`: the new mode, if the patch names it. `header`: both names of its line `diff --git`.
    """

    old: Name | None = None
    new: Name | None = None
    kind: FileKind = "modify"
    mode: Mode | Literal["submodule"] | None = None
    hunks: list[Hunk] = field(default_factory=list)
    binary: BinaryData | None = None
    is_stub: bool = False
    old_hash: bytes = b""
    new_hash: bytes = b""
    header: tuple[bytes, bytes] | None = None

    @property
    def may_create(self) -> bool:
        """True for hunks without an old side: `diff -N` names a new file on both sides."""
        return self.kind == "modify" and bool(self.hunks) and self.hunks[0].is_first_of_new

    @property
    def has_possible_names(self) -> bool:
        names = (name.raw for name in (self.old, self.new) if name is not None)
        return all(
            len(each) <= LONGEST_PATH_BYTES
            and each.count(b"/") < MAX_COMPONENTS
            and b"\0" not in each
            for each in names
        )

    @property
    def shown(self) -> str:
        name = self.new or self.old
        return shown_path(name.raw) if name else ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Files of a patch in their order. `how`: repairs of the text."""

    files: list[FilePatch]
    how: tuple[str, ...]


def parse(text: bytes, *, is_counted: bool = False) -> Parsed:
    """Parse a patch. Raises PatchFailed for a text without a patch, and for a cut or damaged patch.

    `is_counted`: count the lines of every hunk, whatever its head says.
    """
    if len(text) > MAX_PATCH_BYTES:
        raise PatchFailed(f"the patch has more than {MAX_PATCH_BYTES} bytes")
    if text.count(b"\n") > MAX_PATCH_LINES:
        raise PatchFailed(f"the patch has more than {MAX_PATCH_LINES} lines")
    how = []
    heads = [each.endswith(b"\r") for each in _HEADS.findall(text)]
    if heads and all(heads):  # the transport made each line end with CRLF
        text = text.replace(b"\r\n", b"\n").removesuffix(b"\r")
        how.append("line_ends")
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    else:
        how.append("final_newline")
    reader = _Reader(lines, is_counted)
    files = reader.files()
    if not files:
        raise PatchFailed("the text has no diff: no line `diff --git`, and no `---` with `+++`")
    return Parsed(files, tuple(how + ["counts"] * reader.is_repaired))


class _Reader:
    def __init__(self, lines: list[bytes], is_counted: bool) -> None:
        self._lines, self._at, self._is_counted = lines, 0, is_counted
        self.is_repaired = False

    def _line(self, at: int) -> bytes:
        return self._lines[at] if at < len(self._lines) else b""

    def files(self) -> list[FilePatch]:
        files: list[FilePatch] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if len(files) > MAX_PATCHED_FILES:
                raise PatchFailed(f"the patch has more than {MAX_PATCHED_FILES} files")
            if files and not files[-1].has_possible_names:
                raise PatchFailed("a name that no file can have", files[-1].shown[:200])
            if line.startswith(b"diff --git "):
                files.append(self._git_file(line[11:]))
            elif self._is_plain_head(self._at):
                files.append(self._plain_file(FilePatch()))
            elif line.startswith((b"Binary files ", b"Files ")) and (stub := _STUB.match(line)):
                files.append(_stub_file(FilePatch(), stub))
                self._at += 1
            elif line.startswith(b"@@ -") and _HUNK.match(line):
                raise PatchFailed(f"line {self._at + 1}: a hunk without the name of its file")
            elif line.startswith((b"diff --cc ", b"diff --combined ")):
                raise PatchFailed(f"line {self._at + 1}: a diff of a merge against two parents")
            else:
                self._at += 1
        if files and not files[-1].has_possible_names:
            raise PatchFailed("a name that no file can have", files[-1].shown[:200])
        return files

    def _is_plain_head(self, at: int) -> bool:
        return (
            self._line(at).startswith(b"--- ")
            and self._line(at + 1).startswith(b"+++ ")
            and self._line(at + 2).startswith(b"@@")
        )

    def _plain_file(self, file: FilePatch) -> FilePatch:
        """Read `---`, `+++` and hunks; after a git head its kind stays."""
        old = quoted_names.name_of(self._lines[self._at][4:])
        new = quoted_names.name_of(self._lines[self._at + 1][4:])
        if old is None and new is None:
            raise PatchFailed(f"line {self._at + 1}: a file without a name")
        self._at += 2
        if file.kind in ("modify", "create", "delete"):
            file.old = Name(old) if old is not None else None
            file.new = Name(new) if new is not None else None
            file.kind = "create" if old is None else "delete" if new is None else "modify"
        self._hunks(file)
        return file

    def _git_file(self, rest: bytes) -> FilePatch:
        file = FilePatch()
        file.header = names = quoted_names.names_of_header(rest.rstrip(b"\r"))
        first = self._at + 1
        self._at += 1
        while self._at < len(self._lines) and self._extended(file, self._lines[self._at]):
            self._at += 1
        if names is not None and file.kind in ("modify", "create", "delete"):
            file.old = Name(names[0]) if file.kind != "create" else None
            file.new = Name(names[1]) if file.kind != "delete" else None
        line = self._line(self._at)
        if line.startswith(b"--- ") and self._line(self._at + 1).startswith(b"+++ "):
            kind, mode = file.kind, file.mode
            self._plain_file(file)
            if kind in ("create", "delete") and file.kind != kind:
                raise PatchFailed(
                    f"line {first}: the head of the file contradicts itself", file.shown
                )
            file.mode = mode
        elif line.startswith(b"@@"):
            self._hunks(file)
        elif line.rstrip() == b"GIT binary patch":
            file.binary, self._at = read_binary(self._lines, self._at + 1, file.shown)
        elif line.startswith(b"Binary files ") and line.rstrip().endswith(b" differ"):
            file.is_stub = True
            self._at += 1
        is_moved = file.kind in ("rename", "copy")
        if (file.old is None and file.new is None) or (is_moved and not (file.old and file.new)):
            raise PatchFailed(f"line {first}: the names of the file cannot be told apart")
        return file

    def _extended(self, file: FilePatch, line: bytes) -> bool:
        """Take a line of git's extended head; False where the head ends."""
        word, _, value = line.rstrip(b"\r").partition(b" ")
        match word, value.split(b" ")[0]:
            case b"old", b"mode":
                pass
            case b"new", b"mode":
                file.mode = _mode(value[5:])
            case b"new", b"file":
                file.kind, file.mode = "create", _mode(value[10:])
            case b"deleted", b"file":
                file.kind, file.mode = "delete", _mode(value[10:])
            case ((b"rename" | b"copy"), (b"from" | b"old")):
                file.old = Name(quoted_names.bare_name(value.partition(b" ")[2]), is_bare=True)
                file.kind = "rename" if word == b"rename" else "copy"
            case ((b"rename" | b"copy"), (b"to" | b"new")):
                file.new = Name(quoted_names.bare_name(value.partition(b" ")[2]), is_bare=True)
                file.kind = "rename" if word == b"rename" else "copy"
            case ((b"similarity" | b"dissimilarity"), b"index"):
                pass
            case b"index", _ if b".." in value:
                hashes, _, mode = value.partition(b" ")
                file.old_hash, _, file.new_hash = hashes.partition(b"..")
                if mode == b"160000":
                    file.mode = "submodule"
            case _:
                return False
        return True

    def _hunks(self, file: FilePatch) -> None:
        while True:
            at = self._at
            while at < len(self._lines) and not self._lines[at].strip():
                at += 1
            line = self._line(at)
            if not line.startswith(b"@@"):
                return
            if line.startswith(b"@@@"):
                raise PatchFailed("a diff of a merge against two parents", file.shown)
            self._at = at
            file.hunks.append(self._hunk(file, len(file.hunks) + 1))

    def _hunk(self, file: FilePatch, number: int) -> Hunk:
        head = _HUNK.match(self._lines[self._at])
        begin, end = self._at + 1, None
        if head is not None and not self._is_counted:
            counts = [1 if each is None else int(each) for each in (head[2], head[4])]
            end = self._end_by_counts(begin, counts[0], counts[1])
        if end is None:
            end = self._counted_end(begin, file, number)
            self.is_repaired = self.is_repaired or not self._is_counted or head is None
        self._at = end
        marks, lines = bytearray(), list[bytes]()
        for at in range(begin, end):
            line = self._lines[at]
            if line.startswith(b"\\"):
                if lines:
                    lines[-1] = lines[-1].removesuffix(b"\n")
                continue
            marks.append(line[0] if line[:1] in (b"+", b"-") else 0x20)
            lines.append((line[1:] if line[:1] in (b"+", b"-", b" ") else line) + b"\n")
        return Hunk(number, None if head is None else int(head[1]), bytes(marks), lines)

    def _end_by_counts(self, at: int, old: int, new: int) -> int | None:
        """Return the end of a hunk by the counts in its head; None if the counts contradict the text."""
        while old > 0 or new > 0:
            if at == len(self._lines):
                return None
            mark = self._lines[at][:1]
            if mark in (b" ", b"", b"\r"):
                old, new = old - 1, new - 1
            elif mark == b"-":
                old -= 1
            elif mark == b"+":
                new -= 1
            elif mark != b"\\":
                return None
            if old < 0 or new < 0:
                return None
            at += 1
        while self._line(at).startswith(b"\\"):
            at += 1
        behind = at
        while behind < len(self._lines) and self._lines[behind][:1] in (b" ", b"", b"\r"):
            behind += 1  # context beyond the counts, or text behind the patch
        return None if self._is_changed_line(behind) else at

    def _counted_end(self, at: int, file: FilePatch, number: int) -> int:
        """Return the end of a hunk by its lines. Raises PatchFailed where changes lie behind the end."""
        begin = at
        while at < len(self._lines) and self._lines[at][:1] in (
            b" ",
            b"+",
            b"-",
            b"\\",
            b"",
            b"\r",
        ):
            if self._is_plain_head(at) or self._is_signature(at):
                break
            at += 1
        behind = at
        while at > begin and not self._lines[at - 1].strip(b"\r"):
            at -= 1
        while behind < len(self._lines):
            line = self._lines[behind]
            if line.startswith((b"diff --git ", b"@@", b"```", b"~~~")) or self._is_plain_head(
                behind
            ):
                break
            if self._is_signature(behind):
                break
            if self._is_changed_line(behind):
                raise PatchFailed(
                    f"line {behind + 1}: a changed line outside of a hunk", file.shown, number
                )
            behind += 1
        if not any(self._lines[each][:1] in (b"+", b"-") for each in range(begin, at)):
            raise PatchFailed("a hunk without a changed line", file.shown, number)
        return at

    def _is_changed_line(self, at: int) -> bool:
        line = self._line(at)
        return line[:1] in (b"+", b"-") and not (self._is_plain_head(at) or self._is_signature(at))

    def _is_signature(self, at: int) -> bool:
        """Return True for `-- ` with a version behind it, as at the end of a mail of `git format-patch`."""
        return self._line(at).rstrip() == b"--" and (
            self._line(at + 1)[:1].isdigit() or at + 1 >= len(self._lines)
        )


def _stub_file(file: FilePatch, stub: re.Match[bytes]) -> FilePatch:
    old, new = (quoted_names.name_of(each) for each in stub.groups())
    file.old, file.new = Name(old) if old else None, Name(new) if new else None
    file.kind = "create" if old is None else "delete" if new is None else "modify"
    file.is_stub = True
    return file


def _mode(text: bytes) -> Mode | Literal["submodule"]:
    """Return the mode of git's octal digits: `100755` is "755"."""
    text = text.strip()
    if text.startswith(b"120"):
        return "link"
    if text.startswith(b"160"):
        return "submodule"
    return "755" if re.fullmatch(rb"[0-7]{3,5}[1357][0-7]{2}", text) else "644"
