"""Analysis of long tests in a process of its own, with a limit of time.

    service ── tests ──▶ process ── sources of the tests ──▶ service
                                 ── level ─────────────────▶
                                 ── level and plan ────────▶

The parser of CPython holds the lock of the interpreter for a second per megabyte; in a thread the parser
would hold up the event loop. The process has bounds of CPU time and memory in proportion to the text, no
variables of the environment, and ends with the service. Tests run beside the submission if their analysis
is ended. This module imports no pydantic there: this import alone would take half a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from proctor_service.errors import InvalidTask, JudgeFailed
from proctor_service.judge.analysis.levels import (
    Analysis,
    TestSource,
    beside_the_submission,
    level_of,
    sources_of,
    with_plan,
)
from proctor_service.judge.analysis.suite import parse_suite

if TYPE_CHECKING:
    from proctor_client.wire import AssertsGrader

CPU_SECONDS = 2.0
"""CPU time of an analysis for each megabyte of text, or part of a megabyte."""
_READING_SECONDS = 4.0
"""The same for the parser alone. The parser takes 1 s on an idle machine, and more on a busy machine;
unreadable tests cannot be judged."""
ENDED = "the analysis of the tests takes too much time or memory"
"""Reason of tests after an ended analysis."""
_WALL_TIMES = 10  # of the CPU time
_LEAST_MEMORY_BYTES = 1 << 30  # of address space
_MEMORY_TIMES = 512  # a node of a syntax tree has up to 600 bytes, and two characters or more
_MEGABYTE = 1 << 20
_PR_SET_PDEATHSIG = 1
_DEEPEST_RECURSION = 10_000  # of pickling: a formula contains formulas


def analyse_apart(grader: AssertsGrader) -> Analysis:
    """Return the result of `analyse`, from a process. Blocks until its end; to call in a thread.

    Tests are for the submission's process if their analysis takes longer than `CPU_SECONDS`. Raises
    InvalidTask as `analyse`, and for tests too large to be read; JudgeFailed for a bug in the
    analysis.
    """
    from proctor_service.settings.interpreter import interpreter_environment  # needs pydantic

    characters = len(grader.setup) + sum(map(len, grader.tests))
    megabytes = 1 + characters // _MEGABYTE
    seconds = _READING_SECONDS * megabytes, CPU_SECONDS * megabytes
    memory_bytes = _LEAST_MEMORY_BYTES + _MEMORY_TIMES * characters
    names = ("tests", "setup", "entry_point", "method", "integrity")
    fields = {name: getattr(grader, name) for name in names}
    try:
        ran = subprocess.run(
            [sys.executable, "-S", "-P", "-m", __name__],
            input=pickle.dumps((os.getpid(), seconds, memory_bytes, fields)),
            stdout=subprocess.PIPE,
            env=interpreter_environment(),
            timeout=_WALL_TIMES * max(seconds),
            check=False,
        )
        answer, status = ran.stdout, ran.returncode
    except subprocess.TimeoutExpired as error:
        answer, status = error.stdout or b"", -signal.SIGKILL
    if status > 0:
        raise JudgeFailed("the analysis of the tests failed; the service's log has the traceback")
    return analysis_in(grader, answer)


def analysis_in(grader: AssertsGrader, answer: bytes) -> Analysis:
    """Return the analysis in an answer; an ended process's answer may lack a part.

    The bytes are from our own process, which runs no code of the tests. Raises InvalidTask.
    """
    unpickler = pickle.Unpickler(io.BytesIO(answer))
    tests: tuple[TestSource, ...] | None = None
    found: Analysis | None = None
    try:
        tests = _value(unpickler.load())
        found = _value(unpickler.load())
        found = _value(unpickler.load())
    except (EOFError, pickle.UnpicklingError):
        if tests is None:
            raise InvalidTask(ENDED) from None
    return found or beside_the_submission(grader, tests or (), ENDED, ("", grader.setup))


def _value(message: Any) -> Any:
    if isinstance(message, InvalidTask):
        raise message
    return message


def _end_after(seconds: float) -> None:
    """Let the kernel end this process after so much CPU time in all."""
    signal.setitimer(signal.ITIMER_PROF, max(seconds - time.process_time(), 1e-6))


def main() -> None:
    """Analyse the tests on standard input, and write the three parts of the answer."""
    parent, (reading_seconds, seconds), memory_bytes, fields = pickle.load(sys.stdin.buffer)
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) or os.getppid() != parent:
        raise SystemExit("the service that wanted this analysis is gone")
    _end_after(reading_seconds)
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    bound = memory_bytes if most == resource.RLIM_INFINITY else min(memory_bytes, most)
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    with contextlib.suppress(OSError):  # where memory runs out, this process is the one to end
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    gc.disable()
    pickler = pickle.Pickler(sys.stdout.buffer)
    grader: Any = SimpleNamespace(**fields)
    try:
        suite = parse_suite(grader)
        pickler.dump(sources_of(suite))
        sys.stdout.flush()
        _end_after(seconds)
        analysis = level_of(grader, suite)
        pickler.dump(analysis)
        sys.stdout.flush()
        analysis = with_plan(analysis, suite)
        sys.setrecursionlimit(_DEEPEST_RECURSION)
        pickler.dump(analysis)
    except InvalidTask as error:
        pickler.dump(error)
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.flush()
    os._exit(0)  # at once: freeing all nodes would take long


if __name__ == "__main__":
    main()
