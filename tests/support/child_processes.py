"""Ways to have child processes do some work, and to hear from each what went wrong."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waits import WAIT_SECONDS

CHILDREN = 8

Wrong = list[str]
Subjects = list[tuple[Callable[..., Wrong], Any]]


def forked(work: Callable[[int], Wrong], meanwhile: Callable[[], Wrong] = list) -> Wrong:
    """`work` in each of CHILDREN forks, and `meanwhile` here."""
    ends: list[tuple[int, int]] = []
    for child in range(CHILDREN):
        reads, writes = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reads)
            status = 1
            try:
                with os.fdopen(writes, "w") as out:
                    json.dump(work(child), out)
                status = 0
            finally:
                os._exit(status)
        os.close(writes)
        ends.append((pid, reads))
    wrong = meanwhile()
    for child, (pid, reads) in enumerate(ends):
        with os.fdopen(reads) as said:
            text = said.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        wrong += json.loads(text) if not status else [f"child {child} ended with {status}"]
    return wrong


def pooled(method: str, subjects: Subjects) -> Wrong:
    """All in a pool of workers, which get each subject pickled."""
    with multiprocessing.get_context(method).Pool(4) as pool:
        asked = [
            pool.apply_async(work, (subject, child))
            for work, subject in subjects
            for child in range(CHILDREN)
        ]
        return [each for part in asked for each in part.get(120)]


def loaded(work: Callable[[int], Wrong]) -> Wrong:
    """As a DataLoader: workers that were forked with it, and hand back over a queue."""
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()
    workers = [
        context.Process(target=lambda child: queue.put(work(child)), args=(child,), daemon=True)
        for child in range(CHILDREN)
    ]
    for worker in workers:
        worker.start()
    wrong = [each for _ in workers for each in queue.get(timeout=WAIT_SECONDS)]
    for worker in workers:
        worker.join()
    return wrong


def sent(work: Callable[..., Wrong], subject: Any) -> Wrong:
    """As Ray: another interpreter, which nothing was forked into, gets it all pickled."""
    code = (
        "import json, pickle, sys, client_processes as own; "
        "name, *given = pickle.load(sys.stdin.buffer); print(json.dumps(getattr(own, name)(*given)))"
    )
    wrong: Wrong = []
    for child in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=pickle.dumps((work.__name__, subject, child)),
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            check=True,
        )
        wrong += json.loads(done.stdout.splitlines()[-1])
    return wrong
