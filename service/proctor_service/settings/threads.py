"""Threads of the service's event loops, which may not hold up the end of a process."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor


class _LeftThreads(ThreadPoolExecutor):
    """Threads that nobody waits for at the end: what a request asked of one may take minutes."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


def leave_threads() -> None:
    """Let the running event loop end while its threads work. Then call `end_process` of
    `http/process_end.py`."""
    asyncio.get_running_loop().set_default_executor(_LeftThreads())
