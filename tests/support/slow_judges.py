"""A judge process that takes long to read one value: `python slow_judges.py`, started by a `Pool`.

Bounds of the codec keep each real value under two seconds or so; this stands for one that is not
bounded well enough.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from proctor_service.cli.judge_process import build
from proctor_service.codec.decoding import Decoder
from proctor_service.features.replicas.judge_processes.process import run

SLOW = "a value that takes long to read"
SECONDS = 10.0

_decode = Decoder.decode


def decode(self: Decoder, wire: Any) -> Any:
    """Decode, after much work for a slow value."""
    value = _decode(self, wire)
    end = time.process_time() + SECONDS * (value == SLOW)
    while time.process_time() < end:
        pass
    return value


if __name__ == "__main__":
    Decoder.decode = decode  # type: ignore[method-assign]
    run(build, sys.argv[1:])
