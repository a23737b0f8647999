"""Long work in slices, so the event loop can serve other requests in between.

A C parser holds the interpreter lock even in another thread. This module therefore decodes a large
body piece by piece, with a pause for the loop after each piece.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

SLICE_SECONDS = 0.005
LONG_FIELDS = frozenset({"submissions", "grader", "cases", "tasks"})
_WHITE_SPACE = re.compile(r"[ \t\n\r]*")


class Pacer:
    """Timer that yields to the event loop when a slice of work has taken long enough."""

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._until = time.perf_counter() + seconds

    async def pause(self) -> None:
        """Yield to the event loop if the slice's time is used up."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + self._seconds


class SlicedJson:
    """Decoder of a JSON text, with regular pauses.

    The long fields of a request are split down to single submissions and cases; each other value is
    one piece, decoded at the speed of C.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._decoder = json.JSONDecoder()
        self._pacer = Pacer()

    async def decode(self) -> Any:
        """Return the whole value. Raises json.JSONDecodeError, ValueError and RecursionError."""
        value = await self._pieces()
        if self._peek():
            raise json.JSONDecodeError("Extra data", self._text, self._at)
        return value

    async def _pieces(self) -> Any:
        match self._peek():
            case "{":
                return await self._object()
            case "[":
                return await self._list()
            case _:
                return self._value()

    async def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._at += 1
        if self._skip("}"):
            return found
        while True:
            if self._peek() != '"':
                raise json.JSONDecodeError("Expecting property name", self._text, self._at)
            name = self._value()
            self._expect(":")
            found[name] = await self._pieces() if name in LONG_FIELDS else self._value()
            await self._pacer.pause()
            if self._skip("}"):
                return found
            self._expect(",")

    async def _list(self) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        if self._skip("]"):
            return found
        while True:
            self._peek()
            found.append(self._value())
            await self._pacer.pause()
            if self._skip("]"):
                return found
            self._expect(",")

    def _value(self) -> Any:
        self._peek()
        value, self._at = self._decoder.raw_decode(self._text, self._at)
        return value

    def _peek(self) -> str:
        """Return the next character after white space; empty at the end."""
        space = _WHITE_SPACE.match(self._text, self._at)
        assert space is not None, "the pattern matches the empty string"
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _skip(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._at += 1
        return True

    def _expect(self, character: str) -> None:
        if not self._skip(character):
            raise json.JSONDecodeError(f"Expecting {character!r}", self._text, self._at)
