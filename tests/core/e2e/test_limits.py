"""Limits of one test and of all tests together, in every grader."""

from __future__ import annotations

from typing import Any

from harness import Service
from judging import ask, calls, stdio

F = """
import time
def f(n):
    end = time.process_time() + (0.2 if n >= 0 else 99)
    while time.process_time() < end:
        pass
    return n
"""
"""A function that takes 0.2 s for a number, and for a negative one as good as for ever."""
LIMIT = {"cpu_seconds": 0.5}
NUMBERS = (1, 2, 3)
ENDLESS = (1, -1, 3)


def by_calls(numbers: tuple[float, ...]) -> dict[str, Any]:
    return calls(*[([number], number) for number in numbers])


def by_asserts(form: str, numbers: tuple[float, ...], **more: Any) -> dict[str, Any]:
    return {"kind": "asserts", "tests": [form.format(n=n) for n in numbers], **more}


def by_pytest(numbers: tuple[float, ...]) -> dict[str, Any]:
    text = "from solution import f\n" + "".join(
        f"def test_{at}():\n    assert f({n}) == {n}\n" for at, n in enumerate(numbers)
    )
    return {"kind": "pytest", "files": {"test_f.py": text}}


def graders(numbers: tuple[float, ...]) -> dict[str, dict[str, Any]]:
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


def results_of(service: Service, rows: dict[Any, dict[str, Any]], **fields: Any) -> dict[Any, Any]:
    """Judge the rows in one request; the result of each by its key."""
    results = ask(service, *rows.values(), negative_control="off", **fields)
    return dict(zip(rows, results, strict=True))


def test_each_test_has_its_own_limit_in_every_grader(service: Service) -> None:
    more: dict[str, tuple[tuple[float, ...], dict[str, Any]]] = {
        "each within": (NUMBERS, {"limits": LIMIT}),
        "too long together": (NUMBERS, {"limits": {**LIMIT, "total_cpu_seconds": 0.5}}),
        "one endless": (ENDLESS, {"limits": LIMIT}),
        "fraction": (ENDLESS, {"limits": LIMIT, "scoring": "fraction"}),
    }
    rows = {
        (case, kind): {"completion": F, "grader": grader, **fields}
        for case, (numbers, fields) in more.items()
        for kind, grader in graders(numbers).items()
    }
    results = results_of(service, rows)
    seen = {
        key: (each["verdict"], each["tests"]["passed"], each["reward"])
        for key, each in results.items()
    }
    for kind in graders(NUMBERS):
        assert seen["each within", kind] == ("passed", 3, 1.0), kind
        verdict, passed, reward = seen["too long together", kind]
        assert (verdict, passed < 3, reward) == ("timeout", True, 0.0), kind
        # Nothing runs after the endless test, for which a fresh sandbox would be needed.
        assert seen["one endless", kind] == ("timeout", 1, 0.0), kind
        judges_rest = kind not in ("pytest", "runner")
        expected = ("timeout", 2, 2 / 3) if judges_rest else ("timeout", 1, 1 / 3)
        assert seen["fraction", kind] == expected, kind
    levels = [results["fraction", kind]["level"] for kind in ("plan", "test sandbox", "in process")]
    assert levels == ["calls", "values", "shared"]
    failures = [results["fraction", kind]["tests"]["failures"] for kind in ("calls", "in process")]
    assert [[each["index"] for each in listed] for listed in failures] == [[1], [1]]


def test_the_load_of_a_program_is_a_test_of_its_own(service: Service) -> None:
    loads_long = f"{F}\nf(1)\nf(2)"
    rows = {
        (kind, source): {"completion": source, "grader": grader, "limits": {"cpu_seconds": 0.55}}
        for kind, grader in graders((1, 2)).items()
        for source in (loads_long, f"{F}\nf(-1)")
    }
    results = results_of(service, rows, scoring="fraction")
    assert {key: (each["verdict"], each["tests"]["passed"]) for key, each in results.items()} == {
        (kind, source): ("passed", 2) if source == loads_long else ("timeout", 0)
        for kind, source in rows
    }
    for (_, source), each in results.items():  # an endless load is not tried for each test
        assert source == loads_long or each["usage"]["cpu_seconds"] < 1.1, each


NAP = "import time\ndef f(n):\n    time.sleep(n)\n    return n"


def test_idle_time_is_bounded_for_each_test_and_for_all(service: Service) -> None:
    rows = {
        (kind, numbers, total): {
            "completion": NAP,
            "grader": graders(numbers)[kind],
            "limits": {"wall_seconds": 0.8, "total_wall_seconds": total},
        }
        for kind in ("calls", "test sandbox", "in process", "pytest")
        for numbers, total in (((0.4,) * 3, None), ((0.4,) * 3, 0.9), ((0.1, 99, 0.1), None))
    }
    results = results_of(service, rows)
    assert {key: each["verdict"] for key, each in results.items()} == {
        (kind, numbers, total): "timeout" if total or 99 in numbers else "passed"
        for kind, numbers, total in rows
    }


def test_the_cases_of_stdio_have_no_total_unless_it_is_asked_for(service: Service) -> None:
    busy = f"{F}\nprint(f(int(input())))"
    cases = stdio(*[(str(n), str(n)) for n in (1, 2, 3)])
    endless = stdio(*[(str(n), str(n)) for n in (1, -1, 3)])
    rows: dict[str, dict[str, Any]] = {
        "no total": {"grader": cases, "limits": LIMIT},
        "total": {"grader": cases, "limits": {**LIMIT, "total_cpu_seconds": 0.5}},
        "all": {"grader": endless, "limits": LIMIT},
        "fraction": {"grader": endless, "limits": LIMIT, "scoring": "fraction"},
    }
    rows = {key: {"completion": busy, **row} for key, row in rows.items()}
    results = results_of(service, rows)
    assert {key: (each["verdict"], each["tests"]["passed"]) for key, each in results.items()} == {
        "no total": ("passed", 3),
        "total": ("timeout", 2),
        "all": ("timeout", 1),
        "fraction": ("timeout", 2),
    }


def test_limits_that_a_program_used_up_are_a_timeout_also_by_a_deadline(service: Service) -> None:
    cases = stdio(*[("", "1")] * 60)
    item = {"completion": "while True: pass", "grader": cases, "limits": {"cpu_seconds": 0.3}}
    (result,) = ask(service, item, deadline_seconds=15)
    assert (result["verdict"], result["reward"]) == ("timeout", 0.0), result


FORGING = """
import os, stat, time
for channel in range(3, 1024):
    try:
        if stat.S_ISSOCK(os.fstat(channel).st_mode):
            break
    except OSError:
        pass
end = time.process_time()
while True:
    os.write(channel, b'["value",0,1]\\n')
    end += 0.05
    while time.process_time() < end:
        pass
"""


def test_a_program_that_forges_reports_has_the_time_of_all_tests_at_most(service: Service) -> None:
    limits = {"cpu_seconds": 0.5, "total_cpu_seconds": 1.0}
    rows = {
        kind: {"completion": FORGING, "grader": grader, "limits": limits}
        for kind, grader in graders(NUMBERS).items()
    }
    for kind, result in results_of(service, rows).items():
        verdict = (
            "failed" if kind == "test sandbox" else "timeout"
        )  # ended at its first forged line
        assert (result["verdict"], result["reward"]) == (verdict, 0.0), (kind, result)
        assert result["usage"]["cpu_seconds"] < 2.0, (kind, result)
