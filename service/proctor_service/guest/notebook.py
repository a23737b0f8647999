"""Notebook runner: execute cells in sequence in a single interpreter and report each.

The service sends this file as the text of a program. stdin is a JSON object {"cells", "cell_seconds"}.
After each cell, stdout gets a line of JSON: {"stdout", "stderr", "display", "value", "error"}. Output of
a cell and of its child processes goes to files of the cell. The cells share this process and can forge
any report, so a report is as untrusted as other program output.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import signal
import sys
import tempfile
import traceback
import types
from typing import Any

_MOST_CHARACTERS = 1 << 18  # limit for each text
_MOST_REPORTED_CHARACTERS = 2 << 20  # limit for all texts; the last may exceed the limit
_NOTHING_SECONDS = 0.01


class _Texts:
    """Limiter of texts: all reports together fit into the stored part of stdout."""

    def __init__(self) -> None:
        self.left = _MOST_REPORTED_CHARACTERS

    def cut(self, text: str) -> str:
        shown = text[: max(0, min(_MOST_CHARACTERS, self.left))]
        self.left -= len(json.dumps(shown))
        return shown


class _Kernel:
    def __init__(self, cell_seconds: float) -> None:
        self.cell_seconds = cell_seconds
        self.waited_seconds = 0.0
        self.texts = _Texts()
        self.display: list[dict[str, str]] = []
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        self.namespace = main.__dict__
        self.namespace["__builtins__"] = sys.modules["builtins"]
        self.namespace["display"] = self.show

    def show(self, *values: Any) -> None:
        """Implement the `display` function of notebooks."""
        for value in values:
            self.display.append({"text/plain": self.texts.cut(repr(value))})

    def run(self, number: int, source: str) -> dict[str, Any]:
        """Run a cell and return its report, without stdout and stderr."""
        self.display = []
        report: dict[str, Any] = {"value": None, "error": []}
        process = os.getpid()
        try:
            self._start_clock()
            value = self._execute(f"<cell {number}>", source)
            if value is not None:
                self.show(value)
                report["value"] = self.display[-1]["text/plain"]
        except BaseException as error:
            report["error"] = [self._explain(error)]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if os.getpid() != process:
            _flush()
            os._exit(1 if report["error"] else 0)  # a child that the cell forked
        report["display"] = self.display
        return report

    def _execute(self, name: str, source: str) -> Any:
        """Return the value of the cell's last expression, or None if the cell ends otherwise."""
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        tree = ast.parse(source, name)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, name, "exec", dont_inherit=True), self.namespace)
        if not isinstance(last, ast.Expr):
            return None
        expression = ast.Expression(last.value)
        value = eval(compile(expression, name, "eval", dont_inherit=True), self.namespace)
        return None if source.rstrip().endswith(";") else value

    def _start_clock(self) -> None:
        if self.cell_seconds > 0:
            self.waited_seconds = _waited_seconds()
            signal.signal(signal.SIGALRM, self._on_alarm)
            signal.setitimer(signal.ITIMER_REAL, self.cell_seconds)

    def _on_alarm(self, number: int, frame: Any) -> None:
        more = _waited_seconds() - self.waited_seconds
        if more < _NOTHING_SECONDS:
            raise TimeoutError(f"the cell ran for more than {self.cell_seconds:g} s")
        self.waited_seconds += more  # time spent waiting for a core does not count
        signal.setitimer(signal.ITIMER_REAL, more)

    def _explain(self, error: BaseException) -> dict[str, Any]:
        frames = error.__traceback__
        while frames is not None and not frames.tb_frame.f_code.co_filename.startswith("<cell "):
            frames = frames.tb_next
        try:
            text, lines = str(error), traceback.format_exception(type(error), error, frames)
        except BaseException:
            text, lines = "", []
        return {
            "ename": type(error).__name__,
            "evalue": self.texts.cut(text),
            "traceback": [self.texts.cut(line) for line in lines],
        }


def _waited_seconds() -> float:
    """Return this thread's total wait for a core in seconds; 0.0 if unknown."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            continue


def _main() -> None:
    job = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    kernel = _Kernel(job["cell_seconds"])
    with open(os.dup(1), "w", encoding="ascii") as out:
        for number, source in enumerate(job["cells"]):
            with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
                os.dup2(stdout.fileno(), 1)
                os.dup2(stderr.fileno(), 2)
                report = kernel.run(number, source)
                _flush()
                for name, file in (("stdout", stdout), ("stderr", stderr)):
                    file.seek(0)
                    data = file.read(4 * _MOST_CHARACTERS)
                    report[name] = kernel.texts.cut(data.decode("utf-8", "backslashreplace"))
            out.write(json.dumps(report) + "\n")
            out.flush()


_main()
