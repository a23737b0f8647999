"""Runs cells one after the other in one interpreter, as a notebook does, and reports on each.

It is sent as the text of a program. stdin is a JSON object {"cells", "cell_seconds"}; on stdout comes
a line of JSON for each cell as it ends: {"stdout", "stderr", "display", "value", "error"}. What a cell
prints goes to files of its own, also from its child processes. The cells share this process and may
forge any of it: it is worth no more than what any program prints.
"""

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

_MOST_CHARACTERS = 1 << 18  # of one text
_MOST_REPORTED_CHARACTERS = 2 << 20  # of all, and one text more
_NOTHING_SECONDS = 0.01


class _Texts:
    """Cuts texts, so that all reports together stay within what is kept of stdout."""

    def __init__(self) -> None:
        self.left = _MOST_REPORTED_CHARACTERS

    def cut(self, text: str) -> str:
        kept = text[: max(0, min(_MOST_CHARACTERS, self.left))]
        self.left -= len(json.dumps(kept))
        return kept


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
        """What `display` does in a notebook."""
        for value in values:
            self.display.append({"text/plain": self.texts.cut(repr(value))})

    def run(self, number: int, source: str) -> dict[str, Any]:
        """Runs one cell; its report, without what it printed."""
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
        """The value of the cell's last expression; None where it has none."""
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
        self.waited_seconds += more  # waiting for a core does not count
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
    """How long this thread has waited for a core since it began, where the kernel tells."""
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
