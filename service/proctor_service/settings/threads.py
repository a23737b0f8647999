"""Threads of the service's event loops, which a process's end does not wait for."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor


class _LeftThreads(ThreadPoolExecutor):
    """Threads left behind at a process's end: a request's work in a thread may take minutes."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


def leave_threads() -> None:
    """Let the running event loop end while its threads work. Then call `end_process` of
    `http/process_end.py`."""
    asyncio.get_running_loop().set_default_executor(_LeftThreads())
