"""Init process of a container: forwards signals to the service and reaps orphans.

As pid 1 the process inherits all orphans of its pid namespace, for example a fork server after the
death of its zygote. The service waits only for its own children, so these orphans would remain as
zombies. In addition, the kernel drops signals without a handler in pid 1: a SIGTERM during the
start of the service would be lost.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
SENT_BY_A_PROCESS = 0  # siginfo's si_code is greater if the kernel is the sender, as for Ctrl-C


def stand_before() -> None:
    """As pid 1, fork and return only in the child; as any other process, return at once."""
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
        elif info.si_code <= SENT_BY_A_PROCESS:  # the child has a terminal's Ctrl-C already
            os.kill(child, info.si_signo)


def _reap(child: int) -> None:
    """Collect the status of all ended children; exit with the status of `child` after its end."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
        if pid == 0:
            return
