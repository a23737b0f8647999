"""The client for threads is generated: what is committed is what the generator makes of its source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_client_for_threads_is_generated_from_the_client_for_event_loops() -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "client" / "generate.py"), "--check"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "")
