"""`make bench` measures all that it says, and draws it; how fast the machine is says nobody here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLOTS = {"throughput.png", "latency.png", "phases.png", "timeouts.png", "scaling.png"}
MOST_PLOT_BYTES = 100_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a quick run prints, and where it draws."""
    out = tmp_path_factory.mktemp("plots")
    command = [sys.executable, "bench/figures.py", "--quick", "--allow-degraded"]
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, out


def test_the_tables_can_be_pasted_and_have_every_row(run: tuple[str, Path]) -> None:
    text, _ = run
    assert re.match(r"## \d{4}-\d\d-\d\d\n\n\d+ cores .*Linux .*Python .*Proctor .*\n", text)
    for row in (
        r"\| the floor \| \d+ evaluations/s on \d+ cores, [\d.]+ ms of CPU each \|",
        r"\| `subprocess` with `python -c`, no isolation \| \d+ programs/s \|",
        r"\| a single reward \| p50 [\d.]+ ms, p99 [\d.]+ ms \|",
        r"\| memory \| \d+ MB at rest, -?[\d.]+ MB for each of 5 live sandboxes \|",
        r"\| 20 \| 2 \| \d+ \| [\d.]+ \| [\d.]+ \| \d+ % \| \d+ % \|",
        r"\| \| wire \| service \| queue \| sandbox \| judge \|",
        r"\| alone( \| [\d.]+){5} \|",
        r"\| among 100 \| [\d.]+ \| ( \| [\d.]+){3} \|",
        r"\| at once \| Proctor \| `subprocess` with a timeout \|",
        r"\| 1 \| \d+ \| \d+ \| \d+ % \|",
    ):
        assert re.search(f"^{row}$", text, re.MULTILINE), (row, text)


def test_no_sound_program_is_called_too_slow(run: tuple[str, Path]) -> None:
    _, out = run
    figures = json.loads((out / "figures.json").read_text())
    assert [ours for _, ours, _ in figures["timeouts"]] == [0, 0]
    assert all(each["rewards_per_second"] > 0 for each in figures["loads"])


def test_the_plots_are_small_pictures(run: tuple[str, Path]) -> None:
    _, out = run
    found = {path.name: path.read_bytes() for path in out.glob("*.png")}
    assert set(found) == PLOTS
    for data in found.values():
        assert data.startswith(b"\x89PNG")
        assert len(data) < MOST_PLOT_BYTES
