"""Plots of `bench/figures.py` and `bench/scale.py`: small PNG files, made without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measuring import Load

OURS, FLOOR, PLAIN = "#1f4e79", "#c00000", "#7f7f7f"
SHADES = ("#1f4e79", "#2e9e8f", "#e0a030", "#8a4f9e")
DPI = 90


def _figure(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _sizes(axes: Axes, loads: Sequence[Load]) -> None:
    sizes = sorted({load.size for load in loads})
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("submissions in a batch")


def throughput(loads: Sequence[Load], floor: float, plain: float, path: Path) -> None:
    """Rewards a second by size of batch, a line for each number at once."""
    figure, axes = _figure("Rewards a second")
    for shade, at_once in zip(SHADES, sorted({load.at_once for load in loads}), strict=False):
        mine = [load for load in loads if load.at_once == at_once]
        axes.plot(
            [load.size for load in mine],
            [load.rewards_per_second for load in mine],
            marker="o", color=shade, label=f"{at_once} at once",
        )  # fmt: skip
    axes.axhline(floor, color=FLOOR, linestyle="--", label="the floor")
    axes.axhline(plain, color=PLAIN, linestyle=":", label="python -c, no isolation")
    axes.set_ylim(bottom=0)
    _sizes(axes, loads)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=DPI)


def latency(loads: Sequence[Load], path: Path) -> None:
    """Milliseconds of a batch by its size: 50 %, and 99 %."""
    figure, axes = _figure("Latency of a batch: median, and up to the 99th of 100")
    for shade, at_once in zip(SHADES, sorted({load.at_once for load in loads}), strict=False):
        mine = [load for load in loads if load.at_once == at_once]
        middle = [1000 * load.quantile(0.5) for load in mine]
        last = [1000 * load.quantile(0.99) for load in mine]
        sizes = [load.size for load in mine]
        axes.plot(sizes, middle, marker="o", color=shade, label=f"{at_once} at once")
        axes.fill_between(sizes, middle, last, color=shade, alpha=0.2, linewidth=0)
    axes.set_yscale("log")
    _sizes(axes, loads)
    axes.set_ylabel("ms")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=DPI)


def phases(single: Mapping[str, float], path: Path) -> None:
    """Where the milliseconds of a single reward go."""
    figure, axes = _figure("A single reward by phase, in ms")
    left = 0.0
    names = ("wire", "service", "queue", "judge", "sandbox")
    colours = (PLAIN, *SHADES)
    for name, colour in zip(names, colours, strict=True):
        axes.barh([""], [single[name]], left=left, color=colour, label=name)
        left += single[name]
    axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    figure.set_size_inches(7, 2)
    figure.savefig(path, dpi=DPI)


def timeouts(rows: Sequence[tuple[int, int, int]], path: Path) -> None:
    """The share of sound programs called too slow: (at once, ours, without)."""
    figure, axes = _figure("Sound programs that are called too slow")
    at_once = [row[0] for row in rows]
    for index, colour, label in ((2, PLAIN, "subprocess with a timeout"), (1, OURS, "Proctor")):
        shares = [100 * row[index] / row[0] for row in rows]
        axes.plot(at_once, shares, marker="o", color=colour, label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(at_once, [str(each) for each in at_once])
    axes.set_ylim(-2, 102)
    axes.set_xlabel("programs at once")
    axes.set_ylabel("%")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=DPI)


def scaling(rows: Sequence[tuple[int, float, float]], path: Path) -> None:
    """Rewards a second by the number of cores: (cores, ours, floor)."""
    figure, axes = _figure("From one core to all")
    cores = [row[0] for row in rows]
    axes.plot(cores, [row[2] for row in rows], "--", marker="o", color=FLOOR, label="the floor")
    axes.plot(cores, [row[1] for row in rows], marker="o", color=OURS, label="Proctor")
    axes.set_xticks(cores)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("cores, for the service and its client")
    axes.set_ylabel("rewards a second")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=DPI)


def simulated(rows: Sequence[tuple[int, float, float]], path: Path) -> None:
    """Rewards a second through a listening process by simulated cores: (cores, ours, ideal)."""
    figure, axes = _figure("One listening process before simulated sandboxes of 3.5 ms")
    cores = [row[0] for row in rows]
    ideal = [row[2] for row in rows]
    axes.plot(cores, ideal, "--", marker="o", color=FLOOR, label="cores that never wait")
    axes.plot(cores, [row[1] for row in rows], marker="o", color=OURS, label="Proctor")
    axes.set_xticks(cores)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("simulated cores")
    axes.set_ylabel("rewards a second")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=DPI)


def listening(rows: Sequence[tuple[int, float]], bound_ms: float, path: Path) -> None:
    """CPU milliseconds of the listening process for each reward: (judge processes, ms)."""
    figure, axes = _figure("CPU of the listening process for each reward, in ms")
    names = [str(workers) if workers else "none" for workers, _ in rows]
    bars = axes.bar(names, [each for _, each in rows], color=OURS, width=0.5)
    axes.bar_label(bars, fmt="%.2f")
    axes.axhline(bound_ms, color=FLOOR, linestyle="--", label=f"the aim: {bound_ms:.2f} ms")
    axes.set_xlabel("judge processes")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=DPI)
