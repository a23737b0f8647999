"""`proctor demo`: judge a few completions live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from proctor_client import wire
from proctor_service.cli.console import aside, plain, screen
from proctor_service.cli.failures import TROUBLE, UNSOUND, friendly
from proctor_service.cli.target import client_errors, connected, named_service, own


@dataclass(frozen=True, slots=True)
class Toy:
    """Completion with its tests and its expected verdict."""

    name: str
    completion: str
    tests: list[str]
    verdict: wire.Verdict = "passed"
    limits: Mapping[str, Any] = field(default_factory=dict)

    def submission(self) -> dict[str, Any]:
        """Return the submission for the request."""
        grader = {"kind": "asserts", "tests": self.tests}
        sent: dict[str, Any] = {"id": self.name, "completion": self.completion, "grader": grader}
        return sent | ({"limits": dict(self.limits)} if self.limits else {})


def toys() -> Iterator[Toy]:
    """Yield the completions of the demo."""
    add = ["assert add(2, 3) == 5", "assert add(-1, 1) == 0"]
    yield Toy("addition", "<answer>\ndef add(a, b):\n    return a + b\n</answer>", add)
    yield Toy(
        "factorial",
        "Here it is:\n```python\ndef fact(n):\n    return 1 if n < 2 else n * fact(n - 1)\n```",
        ["assert fact(0) == 1", "assert fact(5) == 120"],
    )
    yield Toy(
        "reversed words",
        "def words(s):\n    return ' '.join(reversed(s.split()))\n",
        ["assert words('a b c') == 'c b a'", "assert words('') == ''"],
    )
    yield Toy("wrong sum", "def add(a, b):\n    return a - b\n", add, "failed")
    yield Toy(
        "syntax error", "```python\ndef add(a, b)\n    return a + b\n```", add, "syntax_error"
    )
    yield Toy(
        "runtime error", "def add(a, b):\n    return a / 0\n\nadd(1, 2)\n", add, "runtime_error"
    )
    yield Toy(
        "endless loop",
        "def add(a, b):\n    while True:\n        pass\n",
        add,
        "timeout",
        {"cpu_seconds": 1},
    )
    yield Toy("leaves early", "import os\n\ndef add(a, b):\n    os._exit(0)\n", add, "early_exit")
    yield Toy("no code at all", "I would add the two numbers.", add, "no_code")


def demo() -> None:
    """Judge a handful of completions, right and wrong, and show their rewards."""
    with friendly(), client_errors():
        examples = list(toys())
        out, console = screen(), aside()
        service = connected(console) if named_service() else own(console)
        with service as client:
            results: dict[int, wire.Result] = {}
            with client.reward_stream([toy.submission() for toy in examples], job="demo") as stream:
                for result in stream:
                    results[result.index] = result
                    _show_one(out, examples[result.index], result)
            _show_all(out, examples, results, stream.summary)
        _end(out, examples, results)


def _show_one(out: Console, toy: Toy, result: wire.Result) -> None:
    passed = result.verdict == "passed"
    line = Text("✓ " if passed else "✗ ", style="green" if passed else "red")
    line.append(f"{toy.name:16}", style="default")
    line.append(f"{_verdict(result):14}", style="default")
    line.append(f"{result.usage.wall_seconds:6.3f} s  {plain(_why(result), 60)}", style="dim")
    out.print(line, overflow="ellipsis", no_wrap=True)


def _show_all(
    out: Console, examples: list[Toy], results: Mapping[int, wire.Result], summary: wire.Summary
) -> None:
    columns = "completion", "verdict", Column("reward", justify="right"), "tests"
    title = "\nIn the order of the request"
    table = Table(*columns, box=None, pad_edge=False, title=title, title_justify="left")
    for index, toy in enumerate(examples):
        result = results[index]
        reward = "-" if result.reward is None else f"{result.reward:.1f}"
        tests = f"{result.tests.passed} of {result.tests.total}" if result.tests.total else ""
        table.add_row(toy.name, _verdict(result), reward, tests)
    out.print(table)
    total = sum(result.reward or 0.0 for result in results.values())
    rate = 100 * summary.passed / summary.judged if summary.judged else 0.0
    out.print(
        f"\ntotal reward {total:.1f}, pass rate {rate:.0f} % ({summary.passed} of {summary.judged})"
    )


def _end(out: Console, examples: list[Toy], results: Mapping[int, wire.Result]) -> None:
    """Exit with a status other than 0 if a completion got an unexpected verdict."""
    if any(result.error for result in results.values()):
        raise typer.Exit(TROUBLE)
    for index, toy in enumerate(examples):
        if results[index].verdict != toy.verdict:
            out.print(f"{toy.name}: {results[index].verdict}, not {toy.verdict}", style="red")
            raise typer.Exit(UNSOUND)


def _verdict(result: wire.Result) -> str:
    return f"error: {result.error.reason}" if result.error else result.verdict or ""


def _why(result: wire.Result) -> str:
    return result.error.message if result.error else result.message
