"""A server of environments in a process of its own, as its command starts it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from adapter_calls import Case
from waits import WAIT_SECONDS

from proctor_client import Client

_TURNS = int(WAIT_SECONDS / 0.1)


@contextmanager
def environment_server(module: str, service: str, rows: Path, *options: str) -> Iterator[str]:
    """The address of `python -m proctor_trainers.MODULE`, which runs while the block does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", f"proctor_trainers.{module}", "--dataset", str(rows)]
    with subprocess.Popen([*command, "--url", service, "--port", str(port), *options]) as child:
        try:
            for _ in range(_TURNS):
                assert child.poll() is None, "the server ended"
                try:
                    if httpx.get(f"{url}/health", timeout=WAIT_SECONDS).status_code == 200:
                        break
                except httpx.TransportError:
                    threading.Event().wait(0.1)
            yield url
        finally:
            child.terminate()


def write_rows(path: Path, told: Sequence[Case]) -> Path:
    """The problems as a data set of such a server."""
    lines = [json.dumps({"prompt": each.prompt, "ground_truth": each.tests}) for each in told]
    path.write_text("\n".join(lines))
    return path


def solution(case: Case) -> dict[str, Any]:
    """Arguments of `submit_solution`."""
    return {"code": case.completion.partition("```python\n")[2].partition("```")[0]}


def wait_for_a_sandbox(url: str, tag: str) -> None:
    """Return when the service has a sandbox with this tag."""
    _wait_for(url, tag, lambda count: count > 0)


def wait_for_no_sandbox(url: str, tag: str) -> None:
    """Return when the service has no sandbox with this tag."""
    _wait_for(url, tag, lambda count: count == 0)


def _wait_for(url: str, tag: str, is_right: Callable[[int], bool]) -> None:
    with Client(url) as client:
        for _ in range(_TURNS):
            if is_right(client.count_active(tags=[tag]).total):
                return
            threading.Event().wait(0.1)
    raise AssertionError("the number of sandboxes stays wrong")
