"""Limits of one test and of all tests together, in every grader."""

from __future__ import annotations

from typing import Any

from harness import Service
from judging import ask, calls

SPIN = """
import time
def spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""
F = f"{SPIN}\ndef f(n):\n    spin(0.3 if n >= 0 else 99)\n    return n\n"
"""A function that takes 0.3 s for a number, and for a negative one as good as for ever."""
HELD = "\nclass Held:\n    pass\nheld = Held()\n"
LIMIT = {"cpu_seconds": 0.7}
NUMBERS = (1, 2, 3, 4)
ENDLESS = (1, 2, -1, 4)


def by_calls(numbers: tuple[int, ...]) -> dict[str, Any]:
    return calls(*[([number], number) for number in numbers])


def by_asserts(form: str, numbers: tuple[int, ...], **more: Any) -> dict[str, Any]:
    return {"kind": "asserts", "tests": [form.format(n=n) for n in numbers], **more}


def by_pytest(numbers: tuple[int, ...]) -> dict[str, Any]:
    text = "from solution import f\n" + "".join(
        f"def test_{at}():\n    assert f({n}) == {n}\n" for at, n in enumerate(numbers)
    )
    return {"kind": "pytest", "files": {"test_f.py": text}}


def graders(numbers: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """A grader of each kind and level, with a test for each number."""
    listed = by_pytest(numbers)
    return {
        "calls": by_calls(numbers),
        "plan": by_asserts("assert f({n}) == {n}", numbers),
        "test sandbox": by_asserts("assert [f(n) for n in [{n}]][0] == {n}", numbers),
        "in process": by_asserts("assert f({n}) == {n}", numbers, integrity="in_process"),
        "pytest": listed,
        "runner": {"kind": "command", "argv": [], "runner": "pytest", "files": listed["files"]},
    }


def found(service: Service, items: dict[str, dict[str, Any]], **fields: Any) -> dict[str, Any]:
    results = ask(service, *items.values(), negative_control="off", **fields)
    return dict(zip(items, results, strict=True))


def test_each_test_has_its_own_limit_in_every_grader(service: Service) -> None:
    items = {
        (kind, limit is not None, numbers): {
            "completion": F,
            "grader": grader,
            "limits": {**LIMIT, **({} if limit is None else {"total_cpu_seconds": limit})},
        }
        for numbers, limit in ((NUMBERS, None), (ENDLESS, None), (NUMBERS, 0.8))
        for kind, grader in graders(numbers).items()
    }
    results = found(service, items)
    assert {key: result["verdict"] for key, result in results.items()} == {
        (kind, has_total, numbers): "timeout" if has_total or numbers == ENDLESS else "passed"
        for kind, has_total, numbers in items
    }
    for (kind, has_total, _), result in results.items():
        cpu_seconds = result["usage"]["cpu_seconds"]
        assert not has_total or 0.8 <= cpu_seconds < 1.6, (kind, cpu_seconds)
