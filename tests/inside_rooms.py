"""Two rooms on this machine: a submission's and its tests', each a forked process, joined by a socket pair.

Run as a program it is the process that forks them, one pair for each line of JSON that it reads; so
the process that runs the tests never forks, whatever threads it has.
"""

import ast
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

from proctor_service.inside import room
from proctor_service.inside.channel import Channel

_SECONDS = 60
_SERVICE = Path(__file__).resolve().parents[1] / "service"


def lines_of(name: str) -> list[dict[str, Any]]:
    """The entries of a file of JSON lines."""
    from shared_data import shared_data  # imports pytest, which the rooms must not see

    with shared_data(name).open() as file:
        return [json.loads(line) for line in file]


class Rooms:
    """Judges submissions by test code, a pair of processes each."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(_SERVICE), "PYTHONWARNINGS": "ignore"},
        )

    def judge(self, source: str, tests: list[str], **job: Any) -> list[Any]:
        """The reports of the tests' room."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"source": source, "tests": tests, **job}).encode() + b"\n")
        stdin.flush()
        reports: list[Any] = json.loads(stdout.readline())
        return reports

    def outcomes(self, source: str, tests: list[str], **job: Any) -> list[str]:
        """What became of each test."""
        return [report[2] for report in self.judge(source, tests, **job) if report[0] == "test"]

    def passes(self, source: str, tests: list[str], **job: Any) -> None:
        """Assert that all tests pass."""
        reports = self.judge(source, tests, **job)
        missed = [
            (tests[report[1]], *report[2:])
            for report in reports
            if report[0] == "test" and report[2] != "passed"
        ]
        assert not missed, missed
        assert len(reports) == len(tests) + 1, reports
        assert reports[-1][0] == "done", reports

    def close(self) -> None:
        """End the process that forks."""
        self._process.communicate(timeout=_SECONDS)


class _Diverting:
    """The tests' channel, with its reports taken out."""

    def __init__(self, channel: Channel, reports: int) -> None:
        self._channel = channel
        self._reports = reports

    def send(self, line: bytes) -> None:
        if line.startswith(b"!"):
            os.write(self._reports, line[1:])
        else:
            self._channel.send(line)

    def receive(self) -> bytes | None:
        return self._channel.receive()


def _submit(descriptor: int, source: str) -> None:
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(source, "<submission>", "exec"), main.__dict__)
    room.serve(Channel(descriptor), main.__dict__)


def _imports(source: str) -> list[str]:
    nodes = ast.parse(source).body
    return [ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def _fork(work: Any) -> int:
    child = os.fork()
    if child:
        return child
    try:
        signal.alarm(_SECONDS)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        work()
    finally:
        os._exit(0)


def _judge(job: dict[str, Any]) -> list[Any]:
    source = job.pop("source")
    job["imports"] = _imports(source)
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()

    def submit() -> None:
        theirs.close()
        os.close(reading)
        os.close(writing)
        _submit(ours.fileno(), source)

    def examine() -> None:
        ours.close()
        room.judge_tests(_Diverting(Channel(theirs.fileno()), writing), job)

    children = [_fork(submit), _fork(examine)]
    for end in (ours, theirs):
        end.close()
    os.close(writing)
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        while selector.select(_SECONDS) and (piece := os.read(reading, 1 << 16)):
            data += piece
    os.close(reading)
    for child in children:
        os.waitpid(child, 0)
    return [json.loads(line) for line in data.splitlines()]


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    for request in sys.stdin:
        print(json.dumps(_judge(json.loads(request))), file=answers, flush=True)
