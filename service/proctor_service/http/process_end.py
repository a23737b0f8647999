"""End of a process whose threads may still work."""

from __future__ import annotations

import os
import sys
import threading


def end_process(status: int) -> None:
    """End the process if a thread still works, which Python would wait for."""
    main = threading.main_thread()
    if any(each is not main and not each.daemon for each in threading.enumerate()):
        import logging  # here: a command without threads starts faster without it

        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
