"""Resources of a running service before and after many rewards: memory, descriptors, processes,
mounts.

    python bench/leaks.py --url http://127.0.0.1:8080 --pid PID [--count 10000]

Prints a line for each, and ends with status 1 after a growth. Memory is let settle by a first
round. Requests are sent without Idempotency-Key and cache: answers stored on purpose would look
like a leak.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import httpx

TESTS = ["assert f(2) == 4", "assert f(3) == 9", "assert f(0) == 0"]
BATCH = 500
MEMORY_SHARE = 1.05


def judge(proctor: httpx.Client, mark: str, count: int) -> None:
    """Sends different submissions, a batch at a time. Raises SystemExit when a reward is wrong."""
    for start in range(0, count, BATCH):
        sources = [f"def f(x):\n    return x * x  # {mark} {start + i}" for i in range(BATCH)]
        body = {
            "submissions": [{"completion": source} for source in sources],
            "grader": {"kind": "asserts", "tests": TESTS},
            "extract": "none",
            "cache": False,
        }
        summary = proctor.post("/reward", json=body).raise_for_status().json()["summary"]
        if summary["passed"] != BATCH:
            sys.exit(f"wrong rewards: {summary}")


def descendants(pid: int) -> list[int]:
    """All processes below a process."""
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        for task in Path(f"/proc/{current}/task").glob("*/children"):
            children = [int(child) for child in task.read_text().split()]
            found += children
            todo += children
    return found


def holdings(pid: int) -> dict[str, int]:
    """Resources of the service now, once its pool is full again."""
    time.sleep(1)
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "memory_kb": int(resident.split()[1]),
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "processes": len(descendants(pid)),
        "mounts": len(Path(f"/proc/{pid}/mountinfo").read_text().splitlines()),
        "cgroups": sum(1 for _ in Path("/sys/fs/cgroup").glob(f"**/proctor-{pid}-*/slot-*")),
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--count", type=int, default=10_000)
    arguments = parser.parse_args()
    with httpx.Client(base_url=arguments.url, timeout=600) as proctor:
        judge(proctor, "settle", 2 * BATCH)
        before = holdings(arguments.pid)
        start = time.perf_counter()
        judge(proctor, "count", arguments.count)
        seconds = time.perf_counter() - start
        after = holdings(arguments.pid)
    grown = False
    for name, value in before.items():
        most = value * MEMORY_SHARE if name == "memory_kb" else value
        grown |= after[name] > most
        print(f"{name:12} {value:8} {after[name]:8}")
    print(f"{arguments.count} rewards in {seconds:.1f} s")
    sys.exit(1 if grown else 0)


if __name__ == "__main__":
    main()
