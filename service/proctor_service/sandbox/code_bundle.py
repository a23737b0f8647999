"""Source code for sandboxes, by module name inside a sandbox; and their environment."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from proctor_service.settings.languages import RUNTIME_CORES

SERVICE = Path(__file__).parents[1]
ROOT = "proctor"
"""The package of all these modules inside a sandbox. Its folders are the service's."""
THREADS = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    **dict.fromkeys(
        (
            "CARGO_BUILD_JOBS", "DOTNET_PROCESSOR_COUNT", "GOMAXPROCS", "POLARS_MAX_THREADS",
            "PYTHON_CPU_COUNT", "RAYON_NUM_THREADS", "TOKIO_WORKER_THREADS",
        ),
        str(RUNTIME_CORES),
    ),
}  # fmt: skip
"""Variables for the number of threads, which else would be the number of the machine's cores.

A preloaded library must start without threads, as a fork has none of them.
"""
HASH_SEED = "PYTHONHASHSEED"
HASH_SEEDS = (1, 2, 3, 4)
"""Seeds of Python's str hashes, and so of the order of sets: a task has the same seed on each replica.

Python fixes the seed at its start, so each seed takes a warm interpreter, and slots, of its own.
"""
GUEST = ("guest/**/*.py", "codec/*.py")


def sources(patterns: Iterable[str], service: Path = SERVICE) -> dict[str, str]:
    """Return the source of each module, and an empty source for each package.

    `patterns`: of paths below the service's own folder.
    """
    found = files(patterns, service=service)
    return {name: "" if path is None else path.read_text() for name, path in found.items()}


def files(patterns: Iterable[str], service: Path = SERVICE) -> dict[str, Path | None]:
    """Return the file of each module, and None for each package, which is empty."""
    found: dict[str, Path | None] = {}
    for pattern in patterns:
        for path in sorted(service.glob(pattern)):
            parts = (ROOT, *path.relative_to(service).with_suffix("").parts)
            found.update((".".join(parts[:depth]), None) for depth in range(1, len(parts)))
            if path.stem != "__init__":
                found[".".join(parts)] = path
    return found


def environment(path: str) -> dict[str, str]:
    """Return the environment variables of a sandbox, independent of the service's own.

    The hash seed is fixed, so the order of a set, and therefore a verdict, is the same every time. A
    submission's sandbox has the seed of its task in its place.
    """
    return {
        "PATH": path,
        "HOME": "/box/home",
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        HASH_SEED: str(HASH_SEEDS[0]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TZ": "UTC",
        **THREADS,
    }
