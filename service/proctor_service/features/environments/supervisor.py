"""Runs a program, and ends all its processes when the parent process dies.

    python -I -S supervisor.py PARENT COMMAND [ARGUMENT…]

Standard library only. The supervisor leads a process group of its own. Exit status: the program's,
or 128 + the signal at its end.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
NOT_STARTED = 127


def main() -> int:
    """Run the command and return the exit status."""
    parent = int(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM) or os.getppid() != parent:
        return NOT_STARTED
    try:
        status = subprocess.call(sys.argv[2:])
    except OSError as error:
        print(f"{sys.argv[2]}: {error.strerror}", file=sys.stderr)
        return NOT_STARTED
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    raise SystemExit(main())
