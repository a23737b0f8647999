"""Cost of a verifier's calls and runs, beside the cases of `stdio`.

    PYTHONPATH=client:service python bench/verifiers.py [--calls 1000] [--runs 100] [--allow-degraded]

Starts a service. A verifier calls a function that says how long it takes itself; what a call takes beyond is
the service's part: its median must be at most 1 ms. In turn with the runs of a verifier, `stdio` judges as
many cases of the same program: a run costs no more than a case. Of both, the seconds of the whole request are
divided by their number, after those of a request with one of them. The floors, in the same rounds: a line to
another process and back, twice, for a call passes two sandboxes; and the program in a bare interpreter.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

from measuring import Connection, check

from proctor_service.cli.temporary import temporary_service
from proctor_service.version import version as service_version

PROGRAM = "print(2 * int(input()))"
FUNCTION = """
from time import perf_counter
def f(x):
    begun = perf_counter()
    y = 2 * x
    return [y, perf_counter() - begun]
"""
CALLS = """
from statistics import median
from time import perf_counter

def verify(submission, params):
    submission.call("f", 0)
    beyond = []
    for number in range(params["count"]):
        begun = perf_counter()
        value, own = submission.call("f", number)
        beyond.append(perf_counter() - begun - own)
        assert value == 2 * number
    beyond.sort()
    return {"score": 1.0, "message": f"{median(beyond)} {beyond[len(beyond) * 95 // 100]}"}
"""
RUNS = """
def verify(submission, params):
    outputs = [submission.run(f"{number}\\n").stdout for number in range(params["count"])]
    return outputs == [f"{2 * number}\\n" for number in range(params["count"])]
"""
LIMITS = {"cpu_seconds": 10, "wall_seconds": 10}
MOST_MS = 1.0


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--allow-degraded", action="store_true")
    asked = parser.parse_args()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.machine()}, "
        f"Linux {platform.release()}, Python {platform.python_version()}, "
        f"Proctor {service_version()}, {asked.rounds} rounds\n"
    )
    with temporary_service(allow_degraded=asked.allow_degraded) as running:
        connection = Connection(running)
        calls, late_calls, lines = [], [], []
        runs, cases, floor = [], [], []
        for _ in range(asked.rounds):
            lines.append(_lines(asked.calls))
            middle, late = _calls(connection, asked.calls)
            calls.append(middle)
            late_calls.append(late)
            runs.append(_each(connection, asked.runs, by_verifier=True))
            cases.append(_each(connection, asked.runs, by_verifier=False))
            floor.append(_bare(min(10, asked.runs)))
        connection.close()
    call = statistics.median(calls)
    run, case = statistics.median(runs), statistics.median(cases)
    print("| | median, ms | |\n|---|---|---|")
    print(f"| call, beyond the submission's own time | {call:.3f} | aim {MOST_MS} |")
    print(f"| call, the 95th of 100 | {statistics.median(late_calls):.3f} | |")
    print(f"| floor: two lines to a process and back | {statistics.median(lines):.3f} | |")
    print(f"| run of a verifier | {run:.2f} | {run / case:.2f} of a case |")
    print(f"| case of stdio | {case:.2f} | |")
    print(f"| floor: a bare interpreter | {statistics.median(floor):.2f} | |")
    print(f"\nabove their aim: {'calls' if call > MOST_MS else 'none'}")


def _calls(connection: Connection, count: int) -> tuple[float, float]:
    """Return the median and the 95th percentile of calls, in ms beyond the submission's own time."""
    _, [result] = _judged(connection, FUNCTION, _verifier(CALLS, count))
    middle, late = result["message"].split()
    return 1000 * float(middle), 1000 * float(late)


def _lines(count: int) -> float:
    """Return the median ms of two lines to another process and back."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if not pid:
            ours.close()
            while line := theirs.recv(4096):
                theirs.sendall(line)
            os._exit(0)
        theirs.close()
        taken = []
        for _ in range(count):
            begun = time.perf_counter()
            for _ in range(2):
                ours.sendall(b"[1, 2, 3]\n")
                ours.recv(4096)
            taken.append(1000 * (time.perf_counter() - begun))
    os.waitpid(pid, 0)
    return statistics.median(taken)


def _each(connection: Connection, count: int, *, by_verifier: bool) -> float:
    """Return the ms of one run or case among many, without what a request costs by itself."""
    seconds = []
    for number in (1, count + 1):
        grader: dict[str, Any] = _verifier(RUNS, number)
        if not by_verifier:
            cases = [{"stdin": f"{each}\n", "stdout": f"{2 * each}\n"} for each in range(number)]
            grader = {"kind": "stdio", "cases": cases}
        taken, _ = _judged(connection, PROGRAM, grader)
        seconds.append(taken)
    return 1000 * (seconds[1] - seconds[0]) / count


def _bare(count: int) -> float:
    """Return the ms of the program in an interpreter of its own, without a sandbox."""
    taken = []
    for number in range(count):
        begun = time.perf_counter()
        command = [sys.executable, "-I", "-c", PROGRAM]
        subprocess.run(command, input=f"{number}\n", text=True, capture_output=True, check=True)
        taken.append(1000 * (time.perf_counter() - begun))
    return statistics.median(taken)


def _verifier(source: str, count: int) -> dict[str, Any]:
    return {"kind": "verifier", "source": source, "params": {"count": count}}


def _judged(
    connection: Connection, program: str, grader: dict[str, Any]
) -> tuple[float, list[dict[str, Any]]]:
    taken, results = connection.judge(
        [], submissions=[{"completion": program}], grader=grader, limits=LIMITS, cache=False
    )
    check(results)
    return taken, results


if __name__ == "__main__":
    main()
