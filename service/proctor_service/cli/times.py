"""Plot of the run times of references. Only this module imports matplotlib, and only on demand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proctor_service.cli.console import Trouble

INK, BAND, LIMIT = "#1f4e79", "#9dc3e6", "#c00000"


def check_plotting() -> None:
    """Raise Trouble, with the name of the extra, if matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise Trouble(
            "a plot needs matplotlib: python -m pip install 'proctor-service[bench]'"
        ) from None


def plot_times(
    runs: Sequence[Sequence[float]], slow_seconds: float, title: str, path: Path
) -> None:
    """Plot the run times of each problem in seconds, fastest problem first.

    Each problem has a line for the range of its runs, and a point for the fastest run.
    """
    from matplotlib.figure import Figure

    ranked = sorted((each for each in runs if each), key=min)
    fastest = [max(min(each), 1e-4) for each in ranked]
    slowest = [max(max(each), 1e-4) for each in ranked]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    places = range(1, len(ranked) + 1)
    axes.vlines(places, fastest, slowest, color=BAND, linewidth=1.5, label="all runs")
    axes.plot(places, fastest, ".", color=INK, markersize=4, label="fastest run")
    axes.axhline(slow_seconds, color=LIMIT, linewidth=1, linestyle="--", label="slow")
    axes.set_yscale("log")
    axes.set_xlabel("problems, by time")
    axes.set_ylabel("seconds")
    axes.set_title(title)
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    try:
        figure.savefig(path, format="png", dpi=130)
    except OSError as error:
        raise Trouble(f"{path}: {error.strerror}") from None
