"""The end of the service while a thread still works on a request that was given up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from service_process import ROOT, ServiceProcess
from waits import WAIT_SECONDS

_ENDLESS = """
import time
import proctor_service.judge.judge as judge

def analyse(*arguments, **options):
    time.sleep(3600)

judge.analyse = analyse
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stop_signal_ends_the_service_while_an_analysis_goes_on(
    workers: int, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_ENDLESS)
    folders = (tmp_path, ROOT / "client", ROOT / "service")
    settings = {
        "PYTHONPATH": ":".join(map(str, folders)),
        "PROCTOR_WORKERS": str(workers),
        "PROCTOR_GRACE_SECONDS": "4",
        "PROCTOR_ALLOW_DEGRADED": "true",
    }
    body = {
        "submissions": [{"completion": "def f(): return 1"}],
        "grader": {"kind": "asserts", "tests": ["assert f() == 1"]},
        "extract": "none",
        "deadline_seconds": 2,
    }
    with ServiceProcess(**settings) as service:
        answer = httpx.post(f"{service.url}/reward", json=body, timeout=WAIT_SECONDS)
        assert answer.json()["results"][0]["error"]["reason"] == "deadline"
        service.stop()  # raises if it does not end
        assert "closed" in service.logged


def test_the_status_and_the_last_words_of_a_process_stay() -> None:
    program = (
        "import threading, time\n"
        "from proctor_service.serving.process_end import end_process\n"
        "threading.Thread(target=time.sleep, args=(3600,)).start()\n"
        "print('the last word')\n"
        "end_process(2)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    assert (ended.returncode, ended.stdout) == (2, "the last word\n")
