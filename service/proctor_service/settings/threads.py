"""Threads of the service's event loops, which may not hold up the end of a process."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor


class _LeftThreads(ThreadPoolExecutor):
    """Threads that nobody waits for at the end: what a request asked of one may take minutes."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


def leave_threads() -> None:
    """Let the running event loop end while its threads work. Then call `end_process`."""
    asyncio.get_running_loop().set_default_executor(_LeftThreads())


def end_process(status: int) -> None:
    """End the process if a thread still works, which Python would wait for."""
    main = threading.main_thread()
    if any(each is not main and not each.daemon for each in threading.enumerate()):
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
