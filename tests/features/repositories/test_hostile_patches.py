"""Texts that would take much time or memory end by a bound, and data of patches cannot name its own size."""

from __future__ import annotations

import base64
import zlib

import pytest
from repository_files import Files, files_of, state_of

from proctor_service.features.repositories import failures, patch_text
from proctor_service.features.repositories.patches import PatchFailed, read_edits, read_patch

HEAD = b"diff --git a/f b/f\n--- a/f\n+++ b/f\n"
LENGTHS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def base85(data: bytes) -> bytes:
    packed = zlib.compress(data, 9)
    parts = [packed[at : at + 52] for at in range(0, len(packed), 52)]
    lines = (LENGTHS[len(each) - 1 :][:1] + base64.b85encode(each, pad=True) for each in parts)
    return b"\n".join(lines) + b"\n\n"


def binary(kind: bytes, size: int, data: bytes) -> bytes:
    head = b"diff --git a/f b/f\nindex 0000000..1111111\nGIT binary patch\n"
    return head + b"%s %d\n" % (kind, size) + base85(data)


SAME = b"a\n" * 100_000
HOSTILE = {
    "lines": b"\n" * 2_000_000,
    "bytes": b"x" * 70_000_000,
    "files": b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n" * 6000,
    "hunks in many places": HEAD + b"@@ -900000 +1 @@\n-a\n+b\n" * 5000,
    "one hunk in many places": HEAD + b"@@ -900000,50001 +1 @@\n" + b" a\n" * 50_000 + b"-a\n+b\n",
    "one file again and again": (HEAD + b"@@ -1 +1 @@\n-a\n+a\n@@ -3 +3 @@\n-a\n+a\n") * 4000,
    "copies of a file": b"".join(
        b"diff --git a/f b/%d\ncopy from f\ncopy to %d\n--- a/f\n+++ b/%d\n@@ -1 +1 @@\n-a\n+b\n" % (n, n, n)
        for n in range(4000)
    ),
    "data that is large": binary(b"literal", 300_000_000, b"\0" * 1_000_000),
    "data that says it is large": binary(b"literal", 70_000_000, b"\0" * 70_000_000),
    "data of another size": binary(b"literal", 5, b"\0" * 1_000_000),
    "delta that is large": binary(b"delta", 9_000_000, b"\0" * 9_000_000),
    "delta of another file": binary(b"delta", 4, b"\x05\x05\x01a"),
    "delta beyond the file": binary(b"delta", 9, b"\xc0\x9a\x0c\x10" + b"\xff\xff\xff\xff\x7f"),
    "delta beyond itself": binary(b"delta", 5, b"\xc0\x9a\x0c\x10\x7f"),
    "delta without an end": binary(b"delta", 4, b"\xff\xff\xff\xff"),
    "blanks in a head": b"diff --git" + b" a" * 1_000_000 + b"\n",
    "names without an end": b'diff --git "a/' + b"\\\\" * 500_000 + b"\n",
    "a deep name": b"--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+x\n" % (b"a/" * 1_000_000 + b"a"),
    "nul": b'--- "a/f\\000"\n+++ "b/f\\000"\n@@ -1 +1 @@\n-a\n+b\n',
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_patch_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MAX_WORK_LINES", 1_000_000)  # less, to be quick
    monkeypatch.setattr(patch_text, "MAX_PATCHED_FILES", 5000)
    base = Files({b"f": state_of(SAME.decode())})
    with pytest.raises(PatchFailed):
        read_patch(HOSTILE[name]).applied(base)


def test_many_folders_with_the_same_names_are_not_all_tried() -> None:
    files = {f"d{number}/f{inner}.py": "x\n" for number in range(100) for inner in range(30)}
    text = "".join(f"--- a/f{n}.py\n+++ b/f{n}.py\n@@ -1 +1 @@\n-y\n+z\n" for n in range(30))
    patch = read_patch(text.encode())
    assert len(patch.needed(files_of(files).paths())) < len(files)
    with pytest.raises(PatchFailed):
        patch.applied(files_of(files))


def test_a_large_patch_is_applied() -> None:
    lines = [b"%d\n" % number for number in range(20_000)]
    hunks = (b"@@ -%d +%d @@\n-%d\n+x\n" % (n + 3, n, n) for n in range(0, 20_000, 2))
    base = Files({b"f": state_of(b"".join(lines).decode())})
    applied = read_patch(HEAD + b"".join(hunks)).applied(base)
    state = applied.change.files[b"f"]
    assert state is not None
    assert state.content.count(b"x\n") == 10_000
    assert applied.how == ("offset",)


def test_hostile_edits_are_refused() -> None:
    block = b"f\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n"
    base = Files({b"f": state_of(SAME.decode())})
    many = b"f\n<<<<<<< SEARCH\na\n" + b"=======\n" * 1000 + b">>>>>>> REPLACE\n"
    for text in (block, block * 5000, b"\n" * 2_000_000, many, b"<" * 1_000_000):
        with pytest.raises(PatchFailed):
            read_edits(text).applied(base)
