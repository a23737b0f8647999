"""Variables of the environment for another interpreter of the service."""

from __future__ import annotations

import os
import sys
from os import environ


def interpreter_environment() -> dict[str, str]:
    """Return where the modules of this process and the interpreter's library are; no secrets."""
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return paths | {name: environ[name] for name in ("LD_LIBRARY_PATH",) if name in environ}
