"""The time of the analysis of `asserts` tests, by their number and by their shape.

    python bench/analysis.py [--characters 1000000]

Each text is analysed in a process of its own, as the service analyses long texts. The CPU time is
the process's; the level of an ended analysis is "ended". Works without a sandbox.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

from proctor_client.wire import AssertsGrader
from proctor_service.errors import InvalidTask
from proctor_service.judge.analysis.process import ENDED, analyse_apart

COUNTS = (1_000, 4_000, 5_000, 20_000)
SHAPES: dict[str, Callable[[int], str]] = {
    "asserts": lambda n: rows("assert f({i}) == {i}", n // 26),
    "asserts with lists": lambda n: rows("assert f([{i}, 2, 3, 'a']) == [1, 2, {i}]", n // 45),
    "tolerances": lambda n: rows("assert abs(f({i}) - {i}.5) < 1e-6", n // 37),
    "calls of a helper": lambda n: (
        "def close(a, b): return abs(a - b) < 1e-6\n" + rows("assert close(f({i}), {i}.5)", n // 32)
    ),
    "one `check`": lambda n: (
        "def check(candidate):\n" + rows("    assert candidate({i}) == {i}", n // 38)
    ),
    "one long list": lambda n: "assert f([" + rows("{i},", n // 8) + "]) == 1",
    "one list of digits": lambda n: "assert f([" + "1," * (n // 2 - 20) + "]) == 1",
    "one long text": lambda n: "assert f('" + "x" * (n - 30) + "') == 1",
    "one long `or`": lambda n: "assert f(0)" + " or f(1) == 1" * (n // 13 - 1),
    "nested brackets": lambda n: rows("assert f(" + "[" * 150 + "]" * 150 + ") == 1", n // 316),
    "names": lambda n: rows("x{i} = f({i})\nassert x{i} == 1", n // 36),
    "functions": lambda n: rows("def g{i}(x): return x", n // 25),
    "test classes": lambda n: rows("class T{i}:\n  def test(self): assert f({i}) == 1", n // 52),
    "comprehensions": lambda n: rows("assert [f(x) for x in [{i}]] == [1]", n // 40),
    "f-strings": lambda n: rows("assert f(f'{{{i}}}') == 1", n // 26),
    "one f-string": lambda n: "assert f(f'" + "{x}" * (n // 3 - 10) + "') == 1",
    "huge integers": lambda n: rows("assert f(" + "9" * 4_000 + ") == 1", n // 4_020),
    "products": lambda n: rows("assert f('ab' * 50000) == {i}", n // 33),
    "star expressions": lambda n: "assert f(" + "*[1, 2], " * (n // 9 - 3) + ")",
}


def rows(row: str, count: int) -> str:
    """A text of so many rows, with their numbers."""
    return "".join(row.format(i=i) + "\n" for i in range(count))


def analysed(text: str) -> tuple[float, float, str]:
    """CPU seconds and wall seconds of an analysis, and its level."""
    grader = AssertsGrader(kind="asserts", tests=[text])
    level = "ended"
    begun, used = time.perf_counter(), _children()
    try:
        found = analyse_apart(grader)
        level = level if found.reason == ENDED else str(found.level)
    except InvalidTask:
        level = "invalid"
    return _children() - used, time.perf_counter() - begun, level


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--characters", type=int, default=1_000_000)
    characters = parser.parse_args().characters
    print("| asserts | CPU s | wall s | µs for each | level |\n|---|---|---|---|---|")
    for count in COUNTS:
        cpu, wall, level = analysed(rows("assert f({i}) == {i}", count))
        print(f"| {count} | {cpu:.2f} | {wall:.2f} | {wall / count * 1e6:.0f} | {level} |")
    print("\n| shape | characters | CPU s | wall s | level |\n|---|---|---|---|---|")
    for name, make in SHAPES.items():
        text = make(characters)
        cpu, wall, level = analysed(text)
        print(f"| {name} | {len(text)} | {cpu:.2f} | {wall:.2f} | {level} |")


if __name__ == "__main__":
    main()
