"""The fault bench: three replicas behind nginx, and a trainer which must not notice their faults.

    .venv/bin/python bench/faults.py [--rewards 5000] [--rollouts 100]

Needs nginx and redis-server. Replicas are killed, restarted, stopped, cut off, slowed down and filled,
one after the other, until all is answered; then the same rewards are sent again with the same keys.
Before, the time of ten submissions while another job floods a single service with 5,000.
Ends with status 1 when an answer is missing, wrong, or different the second time.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import httpx

from fault_rig.bench import Result, run
from fault_rig.flood import flood, p95_seconds
from fault_rig.processes import Process


def main() -> None:
    """Run the faults, and print the observations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rewards", type=int, default=5000)
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--faults", type=int, default=21, help="at least so many")
    arguments = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {platform.platform()}, {os.cpu_count()} cores,")
    print(f"Python {platform.python_version()}")
    alone, beside = measure_flood()
    print(
        f"p95 of ten submissions     {1000 * alone:.0f} ms alone, {1000 * beside:.0f} ms in a flood"
    )
    result = run(arguments.rewards, arguments.rollouts, arguments.faults)
    print_result(result)
    first, second = result.first, result.second
    wanted = (arguments.rewards + arguments.rollouts, arguments.rewards)
    good = (first.judged, second.judged) == wanted
    good = good and not (first.wrong or second.wrong or first.lost or result.differences)
    sys.exit(0 if good else 1)


def measure_flood() -> tuple[float, float]:
    """p95 seconds of small requests: alone, and beside a flood."""
    process = Process()
    try:
        process.start({})
        with httpx.Client(base_url=process.url, trust_env=False, timeout=60.0) as http:
            p95_seconds(http)
            alone = p95_seconds(http)
            with flood(http):
                return alone, p95_seconds(http)
    finally:
        process.close()


def print_result(result: Result) -> None:
    """A line for each figure."""
    first, second = result.first, result.second
    print(f"faults                     {dict(result.faults)}")
    print(f"judged                     {first.judged} in {result.seconds:.0f} s")
    print(f"wrong                      {len(first.wrong)} {first.wrong[:5]}")
    print(f"lost                       {first.lost}")
    print(f"items sent again           {dict(first.errors)}")
    print(f"calls that failed          {dict(first.failed_calls)}")
    print(f"the second time: judged    {second.judged}")
    print(f"wrong                      {len(second.wrong)} {second.wrong[:5]}")
    print(f"other than the first time  {len(result.differences)} {result.differences[:5]}")


if __name__ == "__main__":
    main()
