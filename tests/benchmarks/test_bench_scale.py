"""`bench/scale.py` measures all that it says, and draws it; how fast the machine is says nobody here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLOTS = {"simulated.png", "listening.png"}
MOST_PLOT_BYTES = 100_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a quick run prints, and where it draws."""
    out = tmp_path_factory.mktemp("plots")
    command = [sys.executable, "bench/scale.py", "--quick", "--allow-degraded"]
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, out


def test_the_tables_can_be_pasted_and_have_every_row(run: tuple[str, Path]) -> None:
    text, _ = run
    machine = (
        r"## \d{4}-\d\d-\d\d, one listening process\n\n\d+ cores .*Linux .*Python .*Proctor .*\n"
    )
    assert re.match(machine + r"uvicorn .*, uvloop .*, httptools .*\n", text)
    for row in (
        r"\| judge processes \| CPU, median \| each batch \| rewards/s \|",
        r"\| 0 \| [\d.]+ ms \| [\d.]+ \| \d+ \|",
        r"\| 1 \| [\d.]+ ms \| [\d.]+ \| \d+ \|",
        r"\| 8 \| 2 \| 1 \| \d+ \| 2286 \| \d+ % \| [\d.]+ ms \| \d+ % \|",
        r"\| 8 \| 2 \| 2 \| \d+ \| 2286 \| \d+ % \| [\d.]+ ms \| \d+ % \|",
        r"\| 16 \| 3 \| 2 \| \d+ \| 4571 \| \d+ % \| [\d.]+ ms \| \d+ % \|",
        r"The rate .*; the highest is \d+ rewards/s, at \d+\.",
        r"\| s \| `proctor_queue_depth` \| `proctor_queue_portable` \| .* \| replicas wanted \|",
        r"\| [\d.]+ \| \d+ \| \d+ \| \d+ \| \d+ \|",
        r"Rewards/s of a pod, by a model: min\(cores / \(CPU time of the tests \+ [\d.]+ ms\), limit\).*:",
        r"\| cores \| judge processes \| tests of 3 ms \| tests of 30 ms \| tests of 300 ms \|",
        r"\| 2 \| 0 \| \d+ \| \d+ \| \d+ \|",
        r"\| 64 \| 11 \| \d+ \| \d+ \| \d+ \|",
    ):
        assert re.search(f"^{row}$", text, re.MULTILINE), (row, text)


def test_every_figure_is_there_as_json(run: tuple[str, Path]) -> None:
    _, out = run
    figures = json.loads((out / "scale.json").read_text())
    assert [each["workers"] for each in figures["listening"]] == [0, 1]
    assert [(each["cores"], each["at_once"]) for each in figures["simulated"]] == [
        (8, 1), (8, 2), (16, 1), (16, 2)
    ]  # fmt: skip
    assert all(each["cpu_ms"][0] > 0 for each in figures["listening"] + figures["simulated"])
    assert figures["seen"]


def test_the_plots_are_small_pictures(run: tuple[str, Path]) -> None:
    _, out = run
    found = {path.name: path.read_bytes() for path in out.glob("*.png")}
    assert set(found) == PLOTS
    for data in found.values():
        assert data.startswith(b"\x89PNG")
        assert len(data) < MOST_PLOT_BYTES
