"""What W&B wrote in offline mode: the rows of a run's history, read back from its file.

The file is a log as LevelDB has them, in blocks of 32 KiB, of protobuf messages of the package's own.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK_BYTES = 32 << 10
BEGINNING = b":W&B"
BEGINNING_BYTES = 7
FRAME = struct.Struct("<IHB")  # a checksum, the length, and whether it is whole
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def history(folder: Path) -> list[dict[str, Any]]:
    """The rows of the one run whose files are in this folder, with W&B's own `_step` in each."""
    from wandb.proto.wandb_internal_pb2 import Record

    [path] = folder.glob("wandb/offline-run-*/*.wandb")
    rows = []
    for message in _messages(path.read_bytes()):
        record = Record.FromString(message)
        if record.HasField("history"):
            row = {
                each.key or ".".join(each.nested_key): json.loads(each.value_json)
                for each in record.history.item
            }
            rows.append({**row, "_step": record.history.step.num})
    return rows


def _messages(data: bytes) -> Iterator[bytes]:
    assert data.startswith(BEGINNING)
    parts: list[bytes] = []
    at = BEGINNING_BYTES
    while at + FRAME.size <= len(data):
        left_in_block = BLOCK_BYTES - at % BLOCK_BYTES
        if left_in_block < FRAME.size:
            at += left_in_block
            continue
        _, length, kind = FRAME.unpack_from(data, at)
        at += FRAME.size
        parts.append(data[at : at + length])
        at += length
        if kind in (WHOLE, LAST):
            yield b"".join(parts)
            parts = []
