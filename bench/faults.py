"""The fault bench: three replicas behind nginx, and a trainer that must not notice what befalls them.

    .venv/bin/python bench/faults.py [--rewards 5000] [--rollouts 100]

Needs nginx and redis-server. Replicas are killed, restarted, stopped, cut off, slowed down and filled,
one after the other, until all is answered; then the same rewards are sent again with the same keys.
Ends with status 1 when an answer is missing, wrong, or another one the second time.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fault_rig.bench import Result, run


def main() -> None:
    """Runs it, and prints what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rewards", type=int, default=5000)
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--faults", type=int, default=21, help="at least so many")
    arguments = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {platform.platform()}, {os.cpu_count()} cores,")
    print(f"Python {platform.python_version()}")
    result = run(arguments.rewards, arguments.rollouts, arguments.faults)
    print_result(result)
    first, second = result.first, result.second
    wanted = (arguments.rewards + arguments.rollouts, arguments.rewards)
    good = (first.judged, second.judged) == wanted
    good = good and not (first.wrong or second.wrong or first.lost or result.differences)
    sys.exit(0 if good else 1)


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
