"""Cost of a sandbox of a container image: start, `true` and stop, beside a plain sandbox.

IMAGE is a reference as in docs/environments.md. Prints a table for bench/README.md: milliseconds, and
the memory of a hundred sandboxes of the image at once. Run on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from figures import machine

from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.sandbox.environments import default_python
from proctor_service.sandbox.interface import Command, Limits, Sandboxes
from proctor_service.sandbox.local import LocalBackend
from proctor_service.sandbox.local.launch import make_plan
from proctor_service.settings import Settings
from proctor_service.settings.environments import Environment

LIMITS = Limits(10.0, 10.0, 512, 64, 64, 64)
TRUE = Command(argv=("true",))
AT_ONCE = 100


def available_mb() -> float:
    """Memory available to programs."""
    text = Path("/proc/meminfo").read_text()
    line = next(line for line in text.splitlines() if line.startswith("MemAvailable"))
    return int(line.split()[1]) / 1024


async def once(backend: Sandboxes, environment: str) -> float:
    """Seconds of a sandbox with `true`."""
    begun = time.perf_counter()
    async with backend.open(LIMITS, environment) as sandbox:
        ended = await sandbox.exec(TRUE)
        assert ended.exit_code == 0, ended
    return time.perf_counter() - begun


async def at_once(backend: Sandboxes, environment: str, count: int) -> tuple[float, float]:
    """Seconds until so many sandboxes run, and their megabytes."""
    before, begun = available_mb(), time.perf_counter()
    async with AsyncExitStack() as stack:
        opened = await asyncio.gather(
            *(stack.enter_async_context(backend.open(LIMITS, environment)) for _ in range(count))
        )
        await asyncio.gather(*(sandbox.exec(TRUE) for sandbox in opened))
        return time.perf_counter() - begun, before - available_mb()


async def measure(image: str, rounds: int, folder: Path) -> None:
    """Measure both in turn and print the table."""
    settings = Settings(slots=2, max_sandboxes=AT_ONCE + 8)
    definition = Environment(image=image)
    built = await asyncio.to_thread(
        EnvironmentStore(folder).build, "image", definition, default_python(settings)
    )
    plan = await asyncio.to_thread(make_plan, settings, environments={"image": built})
    backend = LocalBackend(plan)
    await backend.start()
    try:
        environments = {"without": "default", "image": "image"}
        for environment in environments.values():
            await once(backend, environment)
        seconds: dict[str, list[float]] = {name: [] for name in environments}
        for _ in range(rounds):
            for name, environment in environments.items():
                seconds[name].append(await once(backend, environment))
        print("| start, `true`, stop | p50 ms | p95 ms |")
        print("|---|---|---|")
        for name, found in seconds.items():
            ordered = sorted(found)
            p95 = ordered[int(len(ordered) * 0.95)] * 1e3
            print(f"| {name} | {statistics.median(found) * 1e3:.1f} | {p95:.1f} |")
        # The first finds no room of another's.
        for name, environment in reversed(environments.items()):
            took, megabytes = await at_once(backend, environment, AT_ONCE)
            print(
                f"{AT_ONCE} at once, {name}: {took:.1f} s, {megabytes:.0f} MB, {megabytes / AT_ONCE:.1f} each"
            )
    finally:
        await backend.close()


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("image")
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(arguments.image, arguments.rounds, Path(folder)))


if __name__ == "__main__":
    main()
