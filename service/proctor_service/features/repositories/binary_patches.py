"""Git's binary patches: base85 lines of zlib data, a whole content or a delta. Pure, bounded.

The format is defined by git's apply.c and patch-delta.c (gitformat-pack(5), "Deltified representation").
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Literal

from proctor_service.features.repositories.failures import PatchFailed, Work

MAX_DELTA_BYTES = 8 * 1024 * 1024
MAX_CONTENT_BYTES = 64 * 1024 * 1024
"""Of a file that a binary patch makes: a few bytes of a text may mean very many."""
_BLOCK_LINES = 4096
_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_VALUES = bytes(_DIGITS.find(each) % 256 for each in range(256))
_HEAD = re.compile(rb"(literal|delta) (\d{1,12})\r?$")
"""Matches `literal 10` and `delta 27`."""
_LENGTHS = {each: number for number, each in enumerate(_DIGITS[10:62], 1)}
"""`A` to `Z` are 1 to 26 bytes of a line, `a` to `z` 27 to 52."""


@dataclass(frozen=True, slots=True)
class BinaryData:
    """The forward half of a binary patch. `size_bytes`: of the data behind zlib."""

    kind: Literal["literal", "delta"]
    size_bytes: int
    compressed: bytes


def read_binary(lines: list[bytes], at: int, file: str) -> tuple[BinaryData, int]:
    """Read the halves of a binary patch from `at`. Return the first, and the place behind both."""
    forward, at = _half(lines, at, file)
    if forward is None:
        raise PatchFailed("a binary patch without its data", file)
    _, at = _half(lines, at, file)
    return forward, at


def _half(lines: list[bytes], at: int, file: str) -> tuple[BinaryData | None, int]:
    head = _HEAD.match(lines[at]) if at < len(lines) else None
    if head is None:
        return None, at
    at += 1
    parts, lengths = [], []
    while at < len(lines) and (line := lines[at].rstrip(b"\r")):
        length = _LENGTHS.get(line[0])
        if length is None or len(line) != 1 + (length + 3) // 4 * 5:
            if line.startswith((b"diff ", b"--", b"`", b"~")):
                break
            raise PatchFailed(f"line {at + 1}: damaged data of a binary patch", file)
        parts.append(line[1:])
        lengths.append(length)
        at += 1
    if at < len(lines) and not lines[at].strip():
        at += 1
    kind: Literal["literal", "delta"] = "literal" if head[1] == b"literal" else "delta"
    return BinaryData(kind, int(head[2]), _decoded(parts, lengths, file)), at


def _decoded(parts: list[bytes], lengths: list[int], file: str) -> bytes:
    """Return the bytes of base85 lines: five digits are four bytes."""
    if all(each % 4 == 0 for each in lengths[:-1]):
        blocks = (parts[at : at + _BLOCK_LINES] for at in range(0, len(parts), _BLOCK_LINES))
        return b"".join(_of_digits(b"".join(each), file) for each in blocks)[: sum(lengths)]
    return b"".join(
        _of_digits(part, file)[:length] for part, length in zip(parts, lengths, strict=True)
    )


def _of_digits(text: bytes, file: str) -> bytes:
    values = text.translate(_VALUES)
    if b"\xff" in values:
        raise PatchFailed("damaged data of a binary patch: no base85", file)
    words = [
        (((a * 85 + b) * 85 + c) * 85 + d) * 85 + e
        for a, b, c, d, e in zip(*(values[each::5] for each in range(5)), strict=True)
    ]
    try:
        return struct.pack(f">{len(words)}I", *words)
    except struct.error as error:
        raise PatchFailed("damaged data of a binary patch: no base85", file) from error


def patched_binary(data: BinaryData, old: bytes, work: Work, file: str) -> bytes:
    """Return the new content. Raises PatchFailed for damaged data, and a delta of another file."""
    if data.kind == "delta" and data.size_bytes > MAX_DELTA_BYTES:
        raise PatchFailed(f"a delta of more than {MAX_DELTA_BYTES} bytes", file)
    if data.size_bytes > MAX_CONTENT_BYTES:
        raise PatchFailed(f"a binary file of more than {MAX_CONTENT_BYTES} bytes", file)
    work.spend(size_bytes=data.size_bytes)
    inflating = zlib.decompressobj()
    try:
        plain = inflating.decompress(data.compressed, data.size_bytes + 1)
    except zlib.error as error:
        raise PatchFailed("damaged data of a binary patch: no zlib", file) from error
    if len(plain) != data.size_bytes:
        raise PatchFailed("damaged data of a binary patch: another size", file)
    return plain if data.kind == "literal" else _from_delta(plain, old, work, file)


def _from_delta(delta: bytes, old: bytes, work: Work, file: str) -> bytes:
    damaged = PatchFailed("damaged data of a binary patch: no delta", file)
    try:
        source_bytes, at = _size(delta, 0)
        target_bytes, at = _size(delta, at)
        if source_bytes != len(old):
            raise PatchFailed("the binary patch is for another content of the file", file)
        if target_bytes > MAX_CONTENT_BYTES:
            raise PatchFailed(f"a binary file of more than {MAX_CONTENT_BYTES} bytes", file)
        work.spend(size_bytes=target_bytes)
        parts, length = [], 0
        while at < len(delta):
            code = delta[at]
            at += 1
            if code & 0x80:
                offset, at = _number(delta, at, code, 4)
                size, at = _number(delta, at, code >> 4, 3)
                part = old[offset : offset + (size or 0x10000)]
                is_whole = len(part) == (size or 0x10000)
            else:
                part = delta[at : at + code]
                at += code
                is_whole = code > 0 and len(part) == code
            parts.append(part)
            length += len(part)
            if not is_whole or length > target_bytes:
                raise damaged
    except IndexError:
        raise damaged from None
    if length != target_bytes:
        raise damaged
    return b"".join(parts)


def _size(delta: bytes, at: int) -> tuple[int, int]:
    """Return a length in groups of seven bits, lowest first, and the place behind the length."""
    size, shift = 0, 0
    while True:
        byte = delta[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80 or shift > 63:
            return size, at


def _number(delta: bytes, at: int, flags: int, width: int) -> tuple[int, int]:
    """Return a copy's offset or size from the bytes named by the flags, lowest first."""
    number = 0
    for place in range(width):
        if flags >> place & 1:
            number |= delta[at] << 8 * place
            at += 1
    return number, at


def blob_hash(content: bytes, digits: int) -> bytes:
    """Return the id of git's blob as so many hex digits; 64 are SHA-256."""
    algorithm = hashlib.sha256 if digits == 64 else hashlib.sha1
    whole = algorithm(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return whole.hexdigest().encode()[:digits]
