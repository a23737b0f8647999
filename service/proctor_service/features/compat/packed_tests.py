"""Tests in open-instruct's formats: a list, a list as JSON, or base64(zlib(pickle(list))).

A pickle is a program. The unpickler written in Python reads the pickle, with only the instructions
for lists, tuples, dicts, texts, numbers and None. So a pickle can neither name a class nor call a
function. The C unpickler is unsuitable: a few bytes can make it allocate any amount of memory.
"""

from __future__ import annotations

import binascii
import io
import json
import pickle
import zlib
from collections.abc import Iterable
from typing import Any

from proctor_service.errors import InvalidRequest

MOST_UNPACKED_BYTES = 128 << 20
MOST_CHARACTERS = 256 << 20
MOST_PIECES = 2_000_000
_PLAIN = """
    PROTO STOP MARK POP POP_MARK DUP PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET
    NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8
    EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS
    EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
"""


def _ignore_frame(unpickler: Any) -> None:
    """Skip the length of a frame, a mere hint for reading ahead."""
    unpickler.read(8)


class _PlainUnpickler(pickle._Unpickler):
    """Unpickler with only the instructions in `_PLAIN`; any other instruction is a KeyError."""

    dispatch = {
        code: pickle._Unpickler.dispatch[code]
        for code in (getattr(pickle, name)[0] for name in _PLAIN.split())
    } | {pickle.FRAME[0]: _ignore_frame}


class _Counted(io.BytesIO):
    """Bytes with a limited number of reads, at least a read for each instruction."""

    left = MOST_PIECES

    def read(self, size: int | None = -1, /) -> bytes:
        self._count()
        return super().read(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        self._count()
        return super().readline(size)

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise InvalidRequest("tests: a pickle of too many instructions")


def unpacked(tests: Any) -> list[Any]:
    """Return the list of tests. Raises InvalidRequest.

    Large tests may take seconds: call this function in a thread.
    """
    if isinstance(tests, str):
        tests = _from_text(tests)
    if isinstance(tests, list):
        return tests
    raise InvalidRequest("tests: not a list, nor one as JSON or base64(zlib(pickle))")


def check_size(texts: Iterable[str]) -> None:
    """Raise InvalidRequest for too many characters.

    A pickle of a few bytes can contain a long text a million times.
    """
    if sum(map(len, texts)) > MOST_CHARACTERS:
        raise InvalidRequest(f"tests: more than {MOST_CHARACTERS} characters")


def _from_text(text: str) -> Any:
    if not text.strip():
        return []
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        data = _inflated(binascii.a2b_base64(text))
        return _PlainUnpickler(_Counted(data)).load()
    except InvalidRequest:
        raise
    except Exception as error:  # a forged pickle breaks the unpickler in any way
        raise InvalidRequest(f"tests: not to be unpacked: {type(error).__name__}") from None


def _inflated(data: bytes) -> bytes:
    inflating = zlib.decompressobj()
    found = inflating.decompress(data, MOST_UNPACKED_BYTES)
    if not inflating.eof:
        raise InvalidRequest(f"tests: cut off, or more than {MOST_UNPACKED_BYTES} bytes")
    return found
