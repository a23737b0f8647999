"""Cost of an environment for a reward: three environments in a batch, and singles in turn.

    python bench/environments.py [--quick] [--rounds N] [--folder DIR] [--allow-degraded]

Builds a plain environment of Python 3.11, one with numpy, pandas, scipy and matplotlib on 3.12, and
one with sympy on 3.13, in a temporary folder or in `--folder`. Needs the network. `--quick`
measures the default environment beside an environment of the default interpreter. Prints tables for
bench/README.md. Run on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from figures import machine
from measuring import Connection, check

from proctor_service.cli.temporary import Running, temporary_service

DEFINED = """
[environments.plain]
python = "3.11"

[environments.science]
python = "3.12"
requirements = ["numpy", "pandas", "scipy", "matplotlib"]
preload = ["numpy", "pandas", "scipy.linalg", "matplotlib"]

[environments.algebra]
python = "3.13"
requirements = ["sympy"]
preload = ["sympy"]
"""
DEFINED_QUICK = "[environments.plain]\n"
SOURCES = {
    "default": "def f(x):\n    return x * x  # {}",
    "plain": "def f(x):\n    return x * x  # {}",
    "science": (
        "import numpy, pandas, scipy.linalg, matplotlib\n"
        "def f(x):\n    return int(numpy.square(x) + pandas.Series([0]).sum())  # {}"
    ),
    "science, numpy alone": "import numpy\ndef f(x):\n    return int(numpy.square(x))  # {}",
    "science, no import": "def f(x):\n    return x * x  # {}",
    "algebra": "import sympy\ndef f(x):\n    return int(sympy.Integer(x) ** 2)  # {}",
}
GRADER = {"kind": "asserts", "tests": ["assert f(2) == 4", "assert f(3) == 9"]}
IN_TURN = 20


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    batch: int
    rounds: int
    names: tuple[str, ...]


FULL = Extent(300, 5, tuple(SOURCES))
QUICK = Extent(6, 1, ("default", "plain"))


def submissions(names: Sequence[str], count: int, begin: int = 0) -> list[dict[str, str]]:
    """Return right programs, all different, in these environments by turns."""
    return [
        {
            "completion": SOURCES[name].format(number),
            "environment": name.partition(",")[0],
        }
        for number in range(begin, begin + count)
        for name in (names[number % len(names)],)
    ]


def judged(connection: Connection, items: Sequence[Mapping[str, str]]) -> float:
    """Return the seconds of a request. Raises WrongReward if a reward is below 1.0."""
    seconds, results = connection.judge([], submissions=list(items), grader=GRADER)
    check(results)
    for item, result in zip(items, results, strict=True):
        if result["environment"] != item["environment"]:
            raise RuntimeError(f"judged in {result['environment']}, not {item['environment']}")
    return seconds


def measure(extent: Extent, running: Running) -> None:
    """Print the tables."""
    connection = Connection(running)
    mixed = [name for name in extent.names if "," not in name and name != "default"]
    first = {name: judged(connection, submissions([name], 1)) for name in mixed}
    seconds = [
        judged(connection, submissions(mixed, extent.batch, 10_000 * number))
        for number in range(1, extent.rounds + 1)
    ]
    print(
        f"\n{extent.batch} submissions by turns in {', '.join(mixed)}: all right, each in its own; "
    )
    print(f"{', '.join(f'{each:.1f}' for each in seconds)} s.")
    times: dict[str, list[float]] = {name: [] for name in extent.names}
    for number in range(extent.rounds):
        for name in extent.names:
            for each in submissions([name], IN_TURN, 1_000_000 + number * IN_TURN):
                times[name].append(1000 * judged(connection, [each]))
    connection.close()
    floor = statistics.median(times["default"])
    print(
        "\n| a single reward in | first use, ms | p50, ms | times the default |\n|---|---|---|---|"
    )
    for name, found in times.items():
        begun = f"{1000 * first[name]:.0f}" if name in first else ""
        p50 = statistics.median(found)
        print(f"| {name} | {begun} | {p50:.2f} | {p50 / floor:.2f} |")


def main() -> None:
    """Build, measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    parser.add_argument("--allow-degraded", action="store_true")
    parser.add_argument("--rounds", type=int, help="default: 5")
    parser.add_argument("--folder", type=Path, help="where environments are built, and stay")
    given = parser.parse_args()
    extent = QUICK if given.quick else FULL
    if given.rounds is not None:
        extent = Extent(extent.batch, given.rounds, extent.names)
    print(machine(), flush=True)
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=sys.prefix)))
        file = temporary / "environments.toml"
        file.write_text(DEFINED_QUICK if given.quick else DEFINED)
        settings = {
            "PROCTOR_ENVIRONMENTS": str(file),
            "PROCTOR_ENVIRONMENTS_FOLDER": str(given.folder or temporary / "built"),
        }
        build = [sys.executable, "-m", "proctor_service", "env", "build"]
        subprocess.run(build, env={**os.environ, **settings}, stdout=subprocess.DEVNULL, check=True)
        service = temporary_service(allow_degraded=given.allow_degraded, settings=settings)
        measure(extent, stack.enter_context(service))


if __name__ == "__main__":
    main()
