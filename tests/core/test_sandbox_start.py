"""What a fork server prepares for its sandboxes: a rehearsed job, and a memory without gaps."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

REHEARSE = """
from proctor_service.guest import main
print(main.rehearse().decode())
"""
FILL = """
import json
from proctor_service.sandbox.local import gaps
fillers = gaps.fill()
new = {size: [gaps._filler(size) for _ in range(4)] for size in (48, 128, 512)}
print(json.dumps({size: [id(each) for each in new[size]] for size in new}))
"""


def in_new_process(code: str, directory: Path) -> str:
    path = ":".join(each for each in sys.path if each)
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_rehearsed_job_takes_the_usual_path(tmp_path: Path) -> None:
    lines = in_new_process(REHEARSE, tmp_path).split("\n")
    kinds = [json.loads(line)[0] for line in lines if line and not line.startswith("!")]
    assert kinds == ["loaded", "value", "value", "value", "raised", "done"]


def test_new_objects_lie_side_by_side_once_the_gaps_are_filled(tmp_path: Path) -> None:
    for size, places in json.loads(in_new_process(FILL, tmp_path)).items():
        # The interpreter makes a few objects of its own between them, and a pool of its allocator may
        # be full after any of them: there is one gap at most.
        ordered = sorted(places)
        distances = [after - before for before, after in pairwise(ordered)]
        gaps = [each for each in distances if each >= 2 * len(places) * int(size)]
        assert len(gaps) <= 1, (size, places)
