"""How fast Proctor is on this machine, beside the floor and beside `python -c`, in one run.

    python bench/figures.py [--out DIR] [--quick] [--allow-degraded]

Starts services of its own, one after the other. Prints a table for bench/README.md, and writes
plots and all figures as JSON into DIR. Run on an otherwise idle machine; `--quick` takes less than
a minute and is only a trial.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import measuring
import plots

from proctor_service.cli.temporary import temporary_service
from proctor_service.version import version as service_version


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    sizes: Sequence[int]
    at_once: Sequence[int]
    most_in_flight: int
    seconds: float
    floor_seconds: float
    phase_rounds: int
    busy_seconds: float
    busy_per_core: Sequence[int]
    live: int


WHOLE = Extent((1, 10, 100, 1000), (1, 4, 16), 4000, 4.0, 2.0, 400, 0.5, (1, 2, 4, 8, 16, 32), 100)
QUICK = Extent((1, 20), (1, 2), 40, 0.3, 0.3, 20, 0.05, (1, 4), 5)


@dataclass
class Figures:
    """The measurements."""

    cores: int
    plain: float = 0.0
    loads: list[measuring.Load] = field(default_factory=list)
    floors: list[tuple[float, float]] = field(default_factory=list)
    phases: dict[str, dict[str, float]] = field(default_factory=dict)
    timeouts: list[tuple[int, int, int]] = field(default_factory=list)
    scaling: list[tuple[int, float, float]] = field(default_factory=list)
    memory_mb: tuple[float, float] = (0.0, 0.0)
    live: int = 0

    @property
    def floor(self) -> float:
        """The median of all measurements."""
        return statistics.median(rate for rate, _ in self.floors)


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Restrict this thread and its children to so many cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(extent: Extent, *, allow_degraded: bool) -> Figures:
    """All parts, with a line on stderr for each."""
    cores = len(os.sched_getaffinity(0))
    found = Figures(cores, live=extent.live)
    _say("python -c")
    found.plain = measuring.plain_subprocess(extent.seconds, cores)
    with temporary_service(allow_degraded=allow_degraded) as running:
        measuring.load(running, 10, 1, 0.0)  # the first ones warm what is cold
        for size in extent.sizes:
            for at_once in extent.at_once:
                if size * at_once > extent.most_in_flight:
                    continue
                _say(f"batches of {size}, {at_once} at once")
                found.floors.append(measuring.floor(extent.floor_seconds, cores))
                found.loads.append(measuring.load(running, size, at_once, extent.seconds))
        _say("phases")
        found.phases["alone"] = measuring.phases(running, 1, extent.phase_rounds)
        found.phases["among 100"] = measuring.phases(
            running, 100, max(1, extent.phase_rounds // 40)
        )
        for count in extent.busy_per_core:
            _say(f"{count * cores} busy programs at once")
            ours = measuring.false_timeouts(running, count * cores, extent.busy_seconds)
            theirs = measuring.false_timeouts_without(count * cores, extent.busy_seconds)
            found.timeouts.append((count * cores, ours, theirs))
    with temporary_service(allow_degraded=allow_degraded) as running:
        _say(f"{extent.live} live sandboxes")
        measuring.load(running, 10, 1, 0.0)
        found.memory_mb = measuring.memory_each_mb(running, extent.live)
    found.scaling = [_on(count, extent, allow_degraded) for count in _steps(cores)]
    return found


def _on(count: int, extent: Extent, allow_degraded: bool) -> tuple[int, float, float]:
    _say(f"{count} of the cores")
    size = max(extent.sizes)
    with on_cores(count), temporary_service(allow_degraded=allow_degraded) as running:
        measuring.load(running, 10, 1, 0.0)
        rate, _ = measuring.floor(extent.floor_seconds, count)
        return count, measuring.load(running, size, 1, extent.seconds).rewards_per_second, rate


def _steps(cores: int) -> list[int]:
    """1, 2, 4 and so on, and all."""
    steps = [1]
    while 2 * steps[-1] < cores:
        steps.append(2 * steps[-1])
    return steps + [cores] * (cores > 1)


def machine() -> str:
    """The measurements, with place and time."""
    try:
        information = Path("/proc/cpuinfo").read_text()
        memory = Path("/proc/meminfo").read_text()
    except OSError:
        information = memory = ""
    model = re.search(r"^model name\s*:\s*(.+)$", information, re.MULTILINE)
    total = re.search(r"^MemTotal:\s*(\d+) kB", memory, re.MULTILINE)
    cores = len(os.sched_getaffinity(0))
    parts = [
        f"{cores} cores of an {model[1] if model else platform.machine()}",
        f"{int(total[1]) / 1024**2:.0f} GiB" if total else "",
        f"Linux {platform.release()}",
        f"Python {platform.python_version()}",
        "as root" if os.geteuid() == 0 else "as an ordinary user",
        f"load {os.getloadavg()[0]:.1f} before the run",
        f"Proctor {service_version()} with its default settings",
    ]
    return ", ".join(part for part in parts if part) + "."


def markdown(found: Figures) -> Iterator[str]:
    """The tables, a line each."""
    floor, cpu_ms = found.floor, statistics.median(each for _, each in found.floors)
    base, each_mb = found.memory_mb
    single = next(load for load in found.loads if load.size == 1 and load.at_once == 1)
    best = max(found.loads, key=lambda load: load.rewards_per_second)
    yield from ("| | figure |", "|---|---|")
    yield f"| the floor | {floor:.0f} evaluations/s on {found.cores} cores, {cpu_ms:.2f} ms of CPU each |"
    yield f"| `subprocess` with `python -c`, no isolation | {found.plain:.0f} programs/s |"
    yield (
        f"| throughput at best, in batches of {best.size:,}, {best.at_once} at once "
        f"| {best.rewards_per_second:.0f} rewards/s, "
        f"{best.rewards_per_second / floor:.2f} of the floor, "
        f"{best.rewards_per_second / found.plain:.1f} times `python -c` |"
    )
    middle, last = (1000 * single.quantile(share) for share in (0.5, 0.99))
    yield f"| a single reward | p50 {middle:.1f} ms, p99 {last:.1f} ms |"
    yield f"| memory | {base:.0f} MB at rest, {each_mb:.1f} MB for each of {found.live} live sandboxes |"
    yield from ("", "By size of batch, and how many at once:", "")
    yield "| batch | at once | rewards/s | p50 ms | p99 ms | of the floor | of `python -c` |"
    yield "|---|---|---|---|---|---|---|"
    for load, (rate, _) in zip(found.loads, found.floors, strict=True):
        speed = load.rewards_per_second
        yield (
            f"| {load.size:,} | {load.at_once} | {speed:.0f} | {1000 * load.quantile(0.5):.1f} "
            f"| {1000 * load.quantile(0.99):.1f} | {100 * speed / rate:.0f} % "
            f"| {100 * speed / found.plain:.0f} % |"
        )
    yield from (
        "",
        "Where the time of one reward goes, in ms; in a batch it mostly waits its turn:",
        "",
    )
    names = ("wire", "service", *measuring.PHASES)
    yield "| | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for what, spent in found.phases.items():
        parts = [f"{spent[name]:.2f}" if name in spent else "" for name in names]
        yield f"| {what} | " + " | ".join(parts) + " |"
    yield from (
        "",
        "Sound programs that are called too slow, with four times the time that they need:",
        "",
    )
    yield from ("| at once | Proctor | `subprocess` with a timeout |", "|---|---|---|")
    yield from (f"| {count} | {ours} | {theirs} |" for count, ours, theirs in found.timeouts)
    yield from ("", "From one core to all, the client on the same cores:", "")
    yield from ("| cores | rewards/s | floor/s | of the floor |", "|---|---|---|---|")
    for count, ours, rate in found.scaling:
        yield f"| {count} | {ours:.0f} | {rate:.0f} | {100 * ours / rate:.0f} % |"


def draw(found: Figures, where: Path) -> None:
    """All plots."""
    plots.throughput(found.loads, found.floor, found.plain, where / "throughput.png")
    plots.latency(found.loads, where / "latency.png")
    plots.phases(found.phases["alone"], where / "phases.png")
    plots.timeouts(found.timeouts, where / "timeouts.png")
    plots.scaling(found.scaling, where / "scaling.png")


def _raw(found: Figures) -> dict[str, Any]:
    loads = [
        {
            "size": load.size,
            "at_once": load.at_once,
            "rewards_per_second": load.rewards_per_second,
            "floor_per_second": rate,
            "latencies_seconds": [round(each, 5) for each in load.latencies],
        }
        for load, (rate, _) in zip(found.loads, found.floors, strict=True)
    ]
    names = ("cores", "plain", "phases", "timeouts", "scaling", "memory_mb", "live")
    return {name: getattr(found, name) for name in names} | {"loads": loads}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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
    heading = f"## {datetime.now(UTC):%Y-%m-%d}\n\n{machine()}\n"
    extent = QUICK if arguments.quick else WHOLE
    found = measure(extent, allow_degraded=arguments.allow_degraded)
    print(heading)
    print("\n".join(markdown(found)))
    draw(found, arguments.out)
    (arguments.out / "figures.json").write_text(json.dumps(_raw(found)))
    _say(f"plots and all figures: {arguments.out}")


if __name__ == "__main__":
    main()
