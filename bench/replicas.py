"""A batch over replicas, on a single machine: the judges, the speedup, and the death of a peer.

    .venv/bin/python bench/replicas.py [--items 400] [--rounds 5] [--kills 10]

Needs two cores: each of two replicas is pinned to a core of its own. Alone and together are
measured in turn, and the client runs on either core. Ends with status 1 when a reward is wrong or
lost, or when a submission was judged more than twice.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from fault_rig.batches import Answer, attempts, batch, judged, replicas, send
from fault_rig.processes import Process

LOGGED = {"PROCTOR_LOG_LEVEL": "debug", "PROCTOR_LOG_FORMAT": "json"}
SHARED_BATCH = 1200


def main() -> None:
    """Run the benchmark, and print the observations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=10)
    arguments = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.platform()}, {os.cpu_count()} cores,")
    packages = ", ".join(f"{name} {version(name)}" for name in ("httpx", "uvicorn", "pydantic"))
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {packages}, load at the start {load:.1f}")
    good = share()
    good = compare(arguments.items, arguments.rounds) and good
    good = kill(arguments.items, arguments.kills) and good
    sys.exit(0 if good else 1)


def share() -> bool:
    """A request, and the number of its submissions judged by each of three replicas."""
    with replicas(3) as found:
        answer = send(found[0], batch(SHARED_BATCH, 0))
        counts = [judged(each) for each in found]
    print(f"one request of {SHARED_BATCH}, three replicas: {counts}, {seen(answer)}")
    return is_right(answer) and sum(counts) == SHARED_BATCH


def compare(items: int, rounds: int) -> bool:
    """The same request with a single replica and with two, each on a core of its own, in turn."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    seconds: list[tuple[float, float]] = []
    numbers = count(1)
    good = True
    with replicas(1, cores=cores) as alone, replicas(2, cores=cores) as pair:
        for first in (alone[0], pair[0], pair[1]):  # warm up: imports, and the first sandboxes
            send(first, batch(items // 4, next(numbers)))
        for _ in range(rounds):
            answers = [send(first, batch(items, next(numbers))) for first in (alone[0], pair[0])]
            good = good and all(map(is_right, answers))
            seconds.append((answers[0].seconds, answers[1].seconds))
            one, two = seconds[-1]
            print(f"  one replica {one:.2f} s, two {two:.2f} s, {one / two:.2f} times as fast")
    ratios = [one / two for one, two in seconds]
    print(f"two replicas, a core each, {items} submissions: median {statistics.median(ratios):.2f}")
    return good


def kill(items: int, kills: int) -> bool:
    """Two replicas; the second is killed in the middle of a request, again and again."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    answers: list[Answer] = []
    most = 0
    for number in range(kills):
        with replicas(2, LOGGED, cores) as found:
            at = items * (number + 1) // (kills + 2)
            answers.append(send(found[0], batch(items, number), at, killing(found[1])))
            most = max(most, *attempts(found).values())
    lost, wrong = sum(each.lost for each in answers), sum(each.wrong for each in answers)
    slowest = max((each.seconds for each in answers), default=0.0)
    print(
        f"a peer killed in the middle, {kills} times: {wrong} wrong, {lost} lost, no submission "
        f"judged more than {most} times, at most {slowest:.2f} s"
    )
    return not lost and not wrong and most <= 2


def killing(process: Process) -> Callable[[], None]:
    """The killer of a replica."""
    return process.kill


def is_right(answer: Answer) -> bool:
    """Whether all was judged, and rightly."""
    return answer.lost == answer.wrong == 0


def seen(answer: Answer) -> str:
    """An answer in words."""
    return f"{answer.wrong} wrong, {answer.lost} lost, {answer.seconds:.2f} s"


if __name__ == "__main__":
    main()
