"""Batches of a great many small items in one body: only the bytes of the body stay in memory.

One pass finds where each item begins and ends, and validates it. An item is decoded again when its
turn comes: the values of 45,000 items at once would take several times the memory of the body.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from proctor_service.errors import InvalidRequest, TooLarge
from proctor_service.http.body import parse_body, refused
from proctor_service.scheduling.pacer import Pacer

H = TypeVar("H", bound=BaseModel)
P = TypeVar("P", bound=BaseModel)

MOST_ITEMS = 1 << 16
TOKENS_AT_ONCE = 1024
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[\[\]{}]', re.DOTALL)
r"""A string, or a bracket. In `{"a\"[": [1]}`: `{`, `"a\"["`, `[`, `]` and `}`."""
_QUOTE, _OPENING = ord('"'), b"[{"
_BLANKS = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Batch(Generic[H, P]):
    """Items in the list of a body's field, and the body's other fields (`head`)."""

    field: str
    head: H
    model: type[P]
    body: bytearray
    bounds: array[int]

    def __len__(self) -> int:
        return len(self.bounds) // 2

    def __iter__(self) -> Iterator[P]:
        for index in range(len(self)):
            yield self.item(index)

    def item(self, index: int) -> P:
        """Decode an item. Raises InvalidRequest."""
        begin, end = self.bounds[2 * index], self.bounds[2 * index + 1]
        try:
            return self.model.model_validate(json.loads(self.body[begin:end].decode()))
        except ValidationError as error:
            raise refused(error, self.model, (self.field, index)) from None
        except (ValueError, RecursionError) as error:
            where = f"{self.field}.{index}"
            raise InvalidRequest(f"{where}: not JSON that is taken here: {error}") from None


async def parse_batch(field: str, head: type[H], item: type[P], body: bytearray) -> Batch[H, P]:
    """Return the batch of a body with a list of objects in `field`.

    Raises InvalidRequest, and TooLarge for more than MOST_ITEMS.
    """
    begin, end, bounds = await _list_in(field, body)
    rest = await parse_body(head, body[:begin] + body[end:])
    pacer = Pacer()
    batch = Batch(field, rest, item, body, bounds)
    at = begin
    for index in range(len(batch)):
        between = bytes(body[at : bounds[2 * index]]).strip(_BLANKS)
        if between != (b"," if index else b""):
            raise InvalidRequest(f"{field}.{index}: not an object")
        batch.item(index)
        at = bounds[2 * index + 1]
        await pacer.pause()
    if body[at:end].strip(_BLANKS):
        raise InvalidRequest(f"{field}.{len(batch)}: not an object")
    if not len(batch):
        raise InvalidRequest(f"{field}: there is none")
    return batch


async def _list_in(field: str, body: bytearray) -> tuple[int, int, array[int]]:
    """Return the places of the field's list, between its brackets, and those of its objects.

    The list of places has the begin and the end of each object.
    """
    pacer = Pacer()
    name = json.dumps(field).encode()
    bounds = array("Q")
    begin = end = depth = item = key_end = 0
    for number, token in enumerate(_TOKEN.finditer(body)):
        if number % TOKENS_AT_ONCE == 0:
            await pacer.pause()
        at = token.start()
        in_list = begin and not end
        if body[at] == _QUOTE:
            if depth == 1:
                key_end = token.end() if body[at : at + len(name)] == name else 0
        elif body[at] in _OPENING:
            depth += 1
            if depth == 3 and in_list:
                item = at
            elif depth == 2 and key_end:
                if bytes(body[key_end : at + 1]).translate(None, _BLANKS) == b":[":
                    if begin:
                        raise InvalidRequest(f"{field}: the body has it twice")
                    begin = at + 1
                key_end = 0
        else:
            depth -= 1
            if depth == 2 and in_list:
                if len(bounds) == 2 * MOST_ITEMS:
                    raise TooLarge(f"{field}: more than {MOST_ITEMS} items")
                bounds.extend((item, at + 1))
            elif depth == 1 and in_list:
                end = at
    if not end:
        raise InvalidRequest(f"{field}: the body has no such list")
    return begin, end, bounds
