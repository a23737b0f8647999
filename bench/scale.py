"""Capacity of a listening process before many cores, and autoscaling's view of a large batch.

    python bench/scale.py [--quick] [--out DIR] [--allow-degraded]

Starts services of its own, in a row: with real sandboxes, for the CPU of the listening process for
each reward; and with simulated ones (`simulated.py`), for its throughput before 8 to 64 cores.
Prints tables for bench/README.md and deploy/README.md, and writes plots and all figures as JSON
into DIR. Run on an otherwise idle machine; `--quick` takes less than a minute and is only a trial.
Several replicas: `bench/replicas.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import plots
import simulated
from figures import machine
from measuring import Connection, check, request_body, results_of, sound

from proctor_service.cli.temporary import Running, temporary_service
from proctor_service.features.replicas.judge_processes.worker import cpu_seconds
from proctor_service.settings import default_workers

SERVE = (sys.executable, simulated.__file__, "serve")
MOST_CPU_MS = 0.15
LEAST_PER_SECOND = 6000
LEAST_AT_CORES = 64
FOLLOWS = 0.85
"""Share of the ideal rate down to which the rate is said to follow the cores."""
REPLICA_DEPTH = 300
"""Waiting submissions that any replica could judge, for each: the target of deploy/overlays/prod."""
MOST_SEEN = 12
SIZES = (2, 4, 8, 16, 32, 64, 96)
"""Cores of a pod in the model."""
TEST_SECONDS = (0.003, 0.03, 0.3)
_GAUGE = re.compile(r"^proctor_(queue_depth|queue_portable|slots_busy) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured. `cores`: simulated ones. `batches`: in each round with these."""

    batch: int
    repeats: int
    workers: Sequence[int]
    cores: Sequence[int]
    at_once: Sequence[int]
    batches: int
    seen_every_seconds: float


WHOLE = Extent(4000, 3, (0, 1, 2), (8, 16, 32, 64), (1, 4), 8, 0.2)
QUICK = Extent(100, 1, (0, 1), (8, 16), (1, 2), 4, 0.02)


@dataclass(frozen=True, slots=True)
class Listening:
    """Batches with real sandboxes: CPU of the listening process for each reward, and the rates."""

    workers: int
    cpu_ms: Sequence[float]
    rewards_per_second: Sequence[float]


@dataclass(frozen=True, slots=True)
class Simulated:
    """Rounds with simulated sandboxes, so many batches at once.

    `busy`: the part of a core used by the listening process.
    """

    cores: int
    workers: int
    at_once: int
    rewards_per_second: Sequence[float]
    cpu_ms: Sequence[float]
    busy: Sequence[float]

    @property
    def rate(self) -> float:
        """The median of all rounds."""
        return statistics.median(self.rewards_per_second)

    @property
    def ideal(self) -> float:
        """Rewards a second of ever busy cores."""
        return self.cores / simulated.SECONDS


@dataclass(frozen=True, slots=True)
class Seen:
    """A scrape during a batch, so many seconds after its begin."""

    seconds: float
    depth: int
    portable: int
    busy: int

    @property
    def replicas(self) -> int:
        """Replicas wanted by the autoscaler for portable items, without its bounds."""
        return max(1, -(-self.portable // REPLICA_DEPTH))


@dataclass(frozen=True, slots=True)
class Figures:
    """The measurements."""

    batch: int
    listening: Sequence[Listening]
    simulated: Sequence[Simulated]
    seen: Sequence[Seen]
    seen_cores: int
    here: int
    """Cores of this machine."""

    @property
    def overhead_seconds(self) -> float:
        """Time of a core for one reward with hardly any test, the client's included."""
        return self.here / max(statistics.median(row.rewards_per_second) for row in self.listening)

    def limit(self, workers: int) -> float:
        """Rewards a second of a listening process with a core to itself.

        Without judge processes from its CPU time, else the highest observed rate.
        """
        if workers:
            return max(each.rate for each in self.simulated)
        return 1000 / min(
            statistics.median(row.cpu_ms) for row in self.listening if not row.workers
        )

    def model(self, cores: int, test_seconds: float) -> float:
        """Rewards a second of a pod, by the CPU time of its tests."""
        by_cores = cores / (test_seconds + self.overhead_seconds)
        return min(by_cores, self.limit(default_workers(cores)))

    def best(self) -> list[Simulated]:
        """For each number of cores, the run with the highest rate."""
        ranked = sorted(self.simulated, key=lambda each: (each.cores, each.rate))
        return list({each.cores: each for each in ranked}.values())


def measure(extent: Extent, *, allow_degraded: bool) -> Figures:
    """All parts, with a line on stderr for each. Raises WrongReward."""
    seen_cores = extent.cores[0]
    with _simulation(seen_cores) as running:
        _say("what autoscaling sees")
        seen = _see(running, extent)
    found: list[Simulated] = []
    for cores in extent.cores:
        with _simulation(cores) as running:
            for at_once in extent.at_once:
                _say(f"{cores} simulated cores, {at_once} batches at once")
                found.append(_through(running, cores, at_once, extent))
    here = len(os.sched_getaffinity(0))
    return Figures(extent.batch, _listen(extent, allow_degraded), found, seen, seen_cores, here)


def _simulation(cores: int) -> AbstractContextManager[Running]:
    settings = {"PROCTOR_SLOTS": str(cores), "PROCTOR_WORKERS": str(_workers(cores))}
    return temporary_service(settings=settings, command=SERVE)


def _workers(cores: int) -> int:
    return max(1, default_workers(cores))


def _listen(extent: Extent, allow_degraded: bool) -> list[Listening]:
    """Batches with real sandboxes, in turn: a machine's speed changes from minute to minute."""
    found: dict[int, list[tuple[float, float]]] = {workers: [] for workers in extent.workers}
    for _ in range(extent.repeats):
        for workers in extent.workers:
            _say(f"real sandboxes, {workers} judge processes")
            settings = {"PROCTOR_WORKERS": str(workers)}
            with temporary_service(allow_degraded=allow_degraded, settings=settings) as running:
                found[workers].append(_batch(running, extent.batch))
    return [
        Listening(workers, [cpu for cpu, _ in all_], [rate for _, rate in all_])
        for workers, all_ in found.items()
    ]


def _batch(running: Running, size: int) -> tuple[float, float]:
    """CPU of the listening process for each reward, in ms, and rewards a second."""
    connection = Connection(running)
    connection.answer(request_body(sound(max(20, size // 20))))  # warms what is cold
    body = request_body(sound(size))
    begun, before = time.perf_counter(), cpu_seconds(running.pid)
    answer = connection.answer(body)
    seconds, spent = time.perf_counter() - begun, cpu_seconds(running.pid) - before
    connection.close()
    check(results_of(answer))
    return 1000 * spent / size, size / seconds


def _through(running: Running, cores: int, at_once: int, extent: Extent) -> Simulated:
    """Rounds of batches, so many at once.

    Bodies are made before a round and answers are read afterwards: the client shares the cores.
    """
    connections = [Connection(running) for _ in range(at_once)]
    connections[0].answer(request_body(sound(extent.batch)))  # warms what is cold
    rates, cpu_ms, busy = [], [], []
    for _ in range(extent.repeats):
        count = max(1, extent.batches // at_once)
        bodies = [[request_body(sound(extent.batch)) for _ in range(count)] for _ in range(at_once)]
        begun, before = time.perf_counter(), cpu_seconds(running.pid)
        with ThreadPoolExecutor(at_once) as pool:
            answers = list(pool.map(_send, connections, bodies))
        seconds, spent = time.perf_counter() - begun, cpu_seconds(running.pid) - before
        for answer in (each for answered in answers for each in answered):
            check(results_of(answer))
        rewards = extent.batch * count * at_once
        rates.append(rewards / seconds)
        cpu_ms.append(1000 * spent / rewards)
        busy.append(spent / seconds)
    for connection in connections:
        connection.close()
    return Simulated(cores, _workers(cores), at_once, rates, cpu_ms, busy)


def _send(connection: Connection, bodies: Sequence[bytes]) -> list[bytes]:
    return [connection.answer(body) for body in bodies]


def _see(running: Running, extent: Extent) -> list[Seen]:
    """The metrics during a batch, as a scrape shows them."""
    sending, looking = Connection(running), Connection(running)
    body = request_body(sound(extent.batch))
    answered = threading.Event()
    answers: list[bytes] = []

    def send() -> None:
        answers.append(sending.answer(body))
        answered.set()

    found: list[Seen] = []
    begun = time.perf_counter()
    sender = threading.Thread(target=send)
    sender.start()
    while not (found and answered.wait(extent.seen_every_seconds)):
        gauges = {name: int(float(value)) for name, value in _GAUGE.findall(looking.metrics())}
        seconds = time.perf_counter() - begun
        counts = (gauges[name] for name in ("queue_depth", "queue_portable", "slots_busy"))
        found.append(Seen(seconds, *counts))
    sender.join()
    sending.close()
    looking.close()
    check(results_of(answers[0]))
    return found[:: max(1, -(-len(found) // MOST_SEEN))]


def markdown(found: Figures) -> Iterator[str]:
    """The tables, a line each."""
    yield f"CPU of the listening process alone for each reward, one batch of {found.batch:,} different"
    yield f"submissions with three asserts, real sandboxes; the aim is {MOST_CPU_MS} ms with judge processes:"
    yield from (
        "",
        "| judge processes | CPU, median | each batch | rewards/s |",
        "|---|---|---|---|",
    )
    for row in found.listening:
        each = ", ".join(f"{cpu:.3f}" for cpu in row.cpu_ms)
        median, rate = statistics.median(row.cpu_ms), statistics.median(row.rewards_per_second)
        yield f"| {row.workers} | {median:.3f} ms | {each} | {rate:.0f} |"
    yield from (
        "",
        f"Simulated sandboxes of {1000 * simulated.SECONDS:g} ms, the median of each row:",
        "",
    )
    yield (
        "| simulated cores | judge processes | batches at once | rewards/s | ideal | share "
        "| CPU for each | listening process busy |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for each_row in found.simulated:
        cpu, busy = statistics.median(each_row.cpu_ms), statistics.median(each_row.busy)
        yield (
            f"| {each_row.cores} | {each_row.workers} | {each_row.at_once} | {each_row.rate:.0f} "
            f"| {each_row.ideal:.0f} | {100 * each_row.rate / each_row.ideal:.0f} % "
            f"| {cpu:.3f} ms | {100 * busy:.0f} % |"
        )
    yield from ("", _bend(found.best()), "")
    yield f"What autoscaling sees during a batch of {found.batch:,} on {found.seen_cores} simulated cores:"
    yield from (
        "",
        "| s | `proctor_queue_depth` | `proctor_queue_portable` | `proctor_slots_busy` | replicas wanted |",
        "|---|---|---|---|---|",
    )
    for seen in found.seen:
        counts = f"{seen.depth:,} | {seen.portable:,} | {seen.busy}"
        yield f"| {seen.seconds:.2f} | {counts} | {seen.replicas} |"
    yield ""
    yield from _sizes(found)


def _sizes(found: Figures) -> Iterator[str]:
    """Rewards a second of pods, by the model."""
    yield (
        f"Rewards/s of a pod, by a model: min(cores / (CPU time of the tests + "
        f"{1000 * found.overhead_seconds:.1f} ms), limit); the limit of the listening process is "
        f"{found.limit(0):.0f} without judge processes, {found.limit(1):.0f} with them:"
    )
    heads = " | ".join(f"tests of {1000 * seconds:.0f} ms" for seconds in TEST_SECONDS)
    yield from (
        "",
        f"| cores | judge processes | {heads} |",
        "|---" * (2 + len(TEST_SECONDS)) + "|",
    )
    for cores in SIZES:
        rates = " | ".join(f"{found.model(cores, seconds):.0f}" for seconds in TEST_SECONDS)
        yield f"| {cores} | {default_workers(cores)} | {rates} |"


def _bend(best: Sequence[Simulated]) -> str:
    """Where the rate leaves the ideal line, and whether the aim is reached."""
    follows = [each.cores for each in best if each.rate >= FOLLOWS * each.ideal]
    text = (
        f"The rate follows the cores (within {100 * (1 - FOLLOWS):.0f} %) up to {max(follows)} of them"
        if follows
        else f"The rate does not follow the cores from {best[0].cores} on"
    )
    most = max(best, key=lambda each: each.rate)
    text += f"; the highest is {most.rate:.0f} rewards/s, at {most.cores}."
    last = best[-1]
    if last.cores == LEAST_AT_CORES:
        reached = "reached" if last.rate >= LEAST_PER_SECOND else "missed"
        text += f" The aim of {LEAST_PER_SECOND:,} at {LEAST_AT_CORES} is {reached}."
    return text


def versions() -> str:
    """The packages for the listening process's bytes."""
    found = []
    for name in ("uvicorn", "uvloop", "httptools", "fastapi", "pydantic"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found) + "."


def draw(found: Figures, where: Path) -> None:
    """All plots."""
    best = [(each.cores, each.rate, each.ideal) for each in found.best()]
    plots.simulated(best, where / "simulated.png")
    rows = [(row.workers, statistics.median(row.cpu_ms)) for row in found.listening]
    plots.listening(rows, MOST_CPU_MS, where / "listening.png")


def _say(text: str) -> None:
    print(f"load {os.getloadavg()[0]:.1f}: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Measures, prints and draws."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("bench/plots"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--allow-degraded", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    heading = (
        f"## {datetime.now(UTC):%Y-%m-%d}, one listening process\n\n{machine()}\n{versions()}\n"
    )
    extent = QUICK if arguments.quick else WHOLE
    found = measure(extent, allow_degraded=arguments.allow_degraded)
    print(heading)
    print("\n".join(markdown(found)))
    draw(found, arguments.out)
    (arguments.out / "scale.json").write_text(json.dumps(asdict(found)))
    _say(f"plots and all figures: {arguments.out}")


if __name__ == "__main__":
    main()
