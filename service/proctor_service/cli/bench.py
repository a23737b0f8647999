"""`proctor bench`: rewards per second, and latency of batches."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from proctor_client import Client
from proctor_service.cli.console import aside, screen
from proctor_service.cli.failures import Trouble, friendly
from proctor_service.cli.target import client_errors, connected
from proctor_service.version import version

SIZES = (1, 10, 100, 1000)
FLOOR_SECONDS = 2
_FLOOR = re.compile(r"floor: (\d+) evaluations/s")  # "floor: 120 evaluations/s"
PROGRAM = """\
def is_prime(n):
    if n < 2: return False
    i = 2
    while i * i <= n:
        if n % i == 0: return False
        i += 1
    return True
"""
TESTS = [
    "assert is_prime(7) == True",
    "assert is_prime(12) == False",
    "assert is_prime(101) == True",
]


@dataclass(frozen=True, slots=True)
class Turn:
    """Measurements for a batch size, in seconds; `floor`: evaluations per second, if measured."""

    size: int
    latencies: list[float]
    floor: float | None

    @property
    def rewards_per_second(self) -> float:
        """Number of rewards divided by total time."""
        return self.size * len(self.latencies) / sum(self.latencies)

    def quantile(self, share: float) -> float:
        """Return the latency within which the fraction `share` of the batches finished."""
        ranked = sorted(self.latencies)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def benches(parts: Mapping[str, Callable[..., None]]) -> typer.Typer:
    """Return the command `bench`; each part is a further command below it."""
    app = typer.Typer(invoke_without_command=True)
    app.callback()(bench)
    for name, command in parts.items():
        app.command(name)(command)
    return app


def bench(
    context: typer.Context,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Time for each size; three batches at least.")
    ] = 5.0,
    floor: Annotated[
        Path | None,
        typer.Option(help="A script that measures the machine's floor; run before each turn."),
    ] = None,
    sizes: Annotated[
        list[int] | None, typer.Option("--size", min=1, max=4096, help="A size of batch; repeat.")
    ] = None,
) -> None:
    """Measure rewards per second and the latency of batches of 1, 10, 100 and 1,000."""
    if context.invoked_subcommand is not None:
        return
    with friendly(), client_errors():
        out, console = screen(), aside()
        with connected(console) as client:
            out.print(_machine(), markup=False)
            numbers = count()
            _judge(client, 10, numbers)  # warm-up batch
            turns = []
            for size in sizes or SIZES:
                with console.status(f"batches of {size}"):
                    measured = _measure_floor(floor) if floor else None
                    turns.append(
                        Turn(size, list(_latencies(client, size, seconds, numbers)), measured)
                    )
            out.print(_table(turns, with_floor=floor is not None))


def _latencies(
    client: Client, size: int, seconds: float, numbers: Iterator[int]
) -> Iterator[float]:
    end = time.monotonic() + seconds
    done = 0
    while done < 3 or time.monotonic() < end:
        yield _judge(client, size, numbers)
        done += 1


def _judge(client: Client, size: int, numbers: Iterator[int]) -> float:
    """Return the seconds for a batch; every completion is unique, and the cache is off."""
    completions = [f"{PROGRAM}# {next(numbers)}\n" for _ in range(size)]
    started = time.perf_counter()
    answer = client.reward(
        completions,
        grader={"kind": "asserts", "tests": TESTS},
        extract="none",
        cache=False,
        job="bench",
    )
    taken = time.perf_counter() - started
    for result in answer.results:
        if result.verdict != "passed":
            why = result.error.message if result.error else f"{result.verdict} {result.message}"
            raise Trouble(f"a sound program was not passed: {why}")
    return taken


def _measure_floor(script: Path) -> float:
    """Return the evaluations per second from the script, which needs root or a user namespace."""
    command = [sys.executable, "-I", "-S", str(script), str(FLOOR_SECONDS)]
    problem = ""
    for prefix in ([], ["unshare", "-Ur"]):
        try:
            run = subprocess.run([*prefix, *command], capture_output=True, text=True, check=False)
        except OSError as error:
            problem = str(error)
            continue
        found = _FLOOR.search(run.stdout)
        if run.returncode == 0 and found:
            return float(found.group(1))
        problem = run.stderr.strip().rpartition("\n")[2] or "it says no floor"
    raise Trouble(f"{script}: {problem}")


def _table(turns: list[Turn], *, with_floor: bool) -> Table:
    names = ["batch", "batches", "rewards/s", "p50 ms", "p99 ms"]
    names += ["floor/s", "of the floor"] if with_floor else []
    table = Table(*(Column(name, justify="right") for name in names), box=None, pad_edge=False)
    for turn in turns:
        row = [f"{turn.size:,}", str(len(turn.latencies)), f"{turn.rewards_per_second:.0f}"]
        row += [f"{1000 * turn.quantile(share):.1f}" for share in (0.5, 0.99)]
        if turn.floor is not None:
            row += [f"{turn.floor:.0f}", f"{100 * turn.rewards_per_second / turn.floor:.0f} %"]
        table.add_row(*row)
    return table


def _machine() -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    cores = len(os.sched_getaffinity(0))
    return (
        f"{now}, {cores} cores, {_processor()}\n"
        f"Linux {platform.release()}, Python {platform.python_version()}, Proctor {version()}"
    )


def _processor() -> str:
    try:
        information = Path("/proc/cpuinfo").read_text()
    except OSError:
        information = ""
    found = re.search(r"^model name\s*:\s*(.+)$", information, re.MULTILINE)  # "model name : EPYC"
    return found.group(1) if found else platform.machine()
