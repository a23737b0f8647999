"""The two sides of test code on this machine: a submission's process and its tests', joined by a socket pair.

Run as a program it is the process that forks them, one pair for each line of JSON that it reads; so
the process that runs the tests never forks, whatever threads it has.
"""

from __future__ import annotations

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

from proctor_service.guest.channel import Channel
from proctor_service.guest.rpc import submission_server, test_runner

_SECONDS = 60
_SERVICE = Path(__file__).resolve().parents[2] / "service"


class _Transformer(ast.NodeTransformer):
    """As much of the judge's transformation as these tests need: class calls and comparisons."""

    def __init__(self, classes: set[str]) -> None:
        self._classes = classes

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self._classes:
            made = ast.Call(_tool("make"), [node.func, *node.args], node.keywords)
            return ast.Call(_tool("own"), [made], [])
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) != 1 or not any(isinstance(n, ast.Call) for n in ast.walk(node)):
            return node
        if isinstance(node.ops[0], ast.Is | ast.IsNot):
            # A handle that is written as an object of the tests is another view of the same.
            node.ops = [ast.Eq() if isinstance(node.ops[0], ast.Is) else ast.NotEq()]
            return node
        name = ast.Constant(type(node.ops[0]).__name__)
        parts = [name, ast.Call(_tool("hold"), [], []), node.left, node.comparators[0]]
        return ast.Call(_tool("compare"), parts, [])


def _tool(name: str) -> ast.Attribute:
    return ast.Attribute(ast.Name("__proctor__", ast.Load()), name, ast.Load())


def transformed(source: str, classes: set[str]) -> str:
    """Test code with its class calls and comparisons marked."""
    tree = _Transformer(classes).visit(ast.parse(source))
    return ast.unparse(ast.fix_missing_locations(tree))


def names_in(source: str) -> tuple[set[str], set[str]]:
    """The names, and the classes, that a submission defines at its top level."""
    names, classes = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            classes.add(node.name)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    classes |= {name for name in names if name[0].isupper() and not name.isupper()}
    return names, classes


def job_for(source: str, tests: list[Any], **more: Any) -> dict[str, Any]:
    """The job of the tests' side, as the judge makes one."""
    names, classes = names_in(source)
    listed = []
    for test in tests:
        entry: dict[str, Any] = {"source": test, "run": []} if isinstance(test, str) else dict(test)
        if not entry.pop("plain", False):
            entry["source"] = transformed(entry["source"], classes)
        listed.append(entry)
    job = {"setup": "", "imports": [], "reveal": False, "literal_calls": False, **more}
    return {"names": sorted(names), **job, "tests": listed}


class Pairs:
    """Judges submissions by test code, a pair of processes each."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(_SERVICE), "PYTHONWARNINGS": "ignore"},
        )

    def judge(self, source: str, tests: list[Any], **more: Any) -> list[Any]:
        """The reports of the tests' side."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        job = {"submission": source, **job_for(source, tests, **more)}
        stdin.write(json.dumps(job).encode() + b"\n")
        stdin.flush()
        reports: list[Any] = json.loads(stdout.readline())
        return reports

    def outcomes(self, source: str, tests: list[Any], **more: Any) -> list[str]:
        """What became of each test."""
        return [report[2] for report in self.judge(source, tests, **more) if report[0] == "test"]

    def passes(self, source: str, tests: list[Any], **more: Any) -> None:
        """Assert that all tests pass."""
        reports = self.judge(source, tests, **more)
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
    """The channel of the tests' side, with its reports taken out."""

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
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    module.__dict__["__file__"] = "/solution.py"
    exec(compile(source, "/solution.py", "exec"), module.__dict__)
    submission_server.serve(Channel(descriptor), module.__dict__)


def _fork(work: Any) -> int:
    child = os.fork()
    if child:
        return child
    try:
        signal.alarm(_SECONDS)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, *(() if "VALUES_DEBUG" in os.environ else (2,))):
            os.dup2(nothing, descriptor)
        work()
    finally:
        os._exit(0)


def _judge(job: dict[str, Any]) -> list[Any]:
    source = job.pop("submission")
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()

    def submit() -> None:
        theirs.close()
        os.close(reading)
        os.close(writing)
        _submit(ours.fileno(), source)

    def examine() -> None:
        ours.close()
        test_runner.judge_tests(_Diverting(Channel(theirs.fileno()), writing), job)

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
