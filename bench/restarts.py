"""Rolling restarts of three replicas at random moments, beside clients which must not notice them.

    .venv/bin/python bench/restarts.py [--clients 10] [--each 2000] [--restarts 20] [--direct]

Needs nginx and redis-server. The clients go through nginx, or each to a replica of its own (`--direct`).
Ends with status 1 if a call or an item failed for a client, a reward was wrong, an answer was lost, or
a result has not exactly one record in the journal.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from fault_rig.restarts import run


def main() -> None:
    """Run it, and print the observations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--each", type=int, default=2000, help="submissions of a client, at least")
    parser.add_argument("--restarts", type=int, default=20, help="at least so many")
    parser.add_argument("--direct", action="store_true", help="without nginx")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    arguments = parser.parse_args()
    result = run(
        arguments.clients,
        arguments.each,
        arguments.restarts,
        behind_nginx=not arguments.direct,
        seed=arguments.seed,
    )
    judged = sum(score.judged for score in result.scores)
    print(f"judged                {judged} in {result.seconds:.0f} s, {result.restarts} restarts")
    print(f"wrong                 {sum(len(score.wrong) for score in result.scores)}")
    print(f"lost                  {sum(score.lost for score in result.scores)}")
    print(f"not once in journal   {result.unrecorded}")
    for name in ("errors", "failed_calls"):
        counts: Counter[str] = Counter()
        for score in result.scores:
            counts += getattr(score, name)
        print(f"{name:22}{dict(counts)}")
    sys.exit(1 if result.noticed else 0)


if __name__ == "__main__":
    main()
