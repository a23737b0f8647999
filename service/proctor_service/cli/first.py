"""The first process of a container, in front of the service: it passes signals on, and reaps.

To pid 1 fall all orphans of its pid namespace, and a forkserver is one when its zygote has died; the
service waits for its own children only, so they would stay as zombies. And what pid 1 does not handle,
the kernel drops: a SIGTERM while the service still starts would be lost.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
SENT_BY_A_PROCESS = 0  # siginfo's si_code is above it when the kernel sends, as for Ctrl-C


def stand_before() -> None:
    """As pid 1: forks, and returns only in the child. As any other process: returns at once."""
    if os.getpid() != 1:
        return
    awaited = (*PASSED_ON, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    _watch_over(child, awaited)


def _watch_over(child: int, awaited: tuple[signal.Signals, ...]) -> NoReturn:
    while True:
        info = signal.sigwaitinfo(awaited)
        if info.si_signo == signal.SIGCHLD:
            _reap(child)
        elif info.si_code <= SENT_BY_A_PROCESS:  # a terminal's Ctrl-C has reached the child too
            os.kill(child, info.si_signo)


def _reap(child: int) -> None:
    """Takes the status of all that have ended; with the child's this process ends too."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
        if pid == 0:
            return
