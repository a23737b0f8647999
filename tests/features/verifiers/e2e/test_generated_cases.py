"""Cases of a generator and a reference: made once, the same for all submissions, and refused if they fail."""

from __future__ import annotations

import json
from typing import Any

from harness import Service
from judging import ask, judge

NUMBERS = (
    "import random, sys\nr = random.Random(' '.join(sys.argv[1:]))\n"
    "print(r.randint(2, 9), r.randint(1, 9))"
)
SUM = "a, b = map(int, input().split())\nprint(a + b)"
ECHO = "import sys\nsys.stdout.write(sys.stdin.read())"
ACCEPTS_SUM = {
    "source": "import sys\na, b = map(int, open(sys.argv[1]).read().split())\n"
    "sys.exit(open(sys.argv[2]).read().split() != [str(a + b)])"
}


def generated(
    generator: Any = NUMBERS, seeds: Any = (1, 2, 3), reference: Any = SUM, **more: Any
) -> dict[str, Any]:
    """A grader of generated cases; a text is the source of a program."""
    programs = {"generator": generator, "reference": reference}
    cases = {name: {"source": x} if isinstance(x, str) else x for name, x in programs.items() if x}
    return {"kind": "stdio", "cases": {**cases, "seeds": list(seeds)}, **more}


def test_submissions_are_judged_by_generated_cases(service: Service) -> None:
    seeds = (1, "2", "a b", *range(10, 17))
    rows = [
        (SUM, generated(seeds=seeds), 1.0),
        ("a, b = map(int, input().split())\nprint(a * b)", generated(seeds=seeds), 0.0),
        (SUM, generated(reference=None, checker=ACCEPTS_SUM), 1.0),
        ("print(0)", generated(reference=None, checker=ACCEPTS_SUM), 0.0),
        (SUM, generated(checker=ACCEPTS_SUM), 1.0),
        (f"{SUM}\nprint()", generated(compare="exact"), 0.0),
        ("print(input())", generated("print(1)", (1,), "print(1)"), 1.0),
        ("print(3)", generated("import sys\nprint(*sys.argv)", ["a  b\t c", ""], "print(3)"), 1.0),
    ]
    items = [{"completion": program, "grader": grader} for program, grader, _ in rows]
    for (program, _, reward), result in zip(rows, judge(service, *items), strict=True):
        assert result["reward"] == reward, (program, result)
        assert result["integrity"] == "separated"


def test_the_generator_gets_its_seed_split_at_spaces(service: Service) -> None:
    seeds: list[int | str] = [7, -3, "10 big", "  a   b ", "", "x" * 1000]
    generator = "import json, sys\nprint(json.dumps(sys.argv[1:]))"
    grader = generated(generator, seeds, ECHO, compare="exact")
    [result] = judge(service, {"completion": ECHO, "grader": grader})
    assert result["reward"] == 1
    for place, seed in enumerate(seeds):
        wanted = f"import sys\nsys.exit(input() != {json.dumps(str(seed).split())!r})"
        grader = generated(generator, seeds[place : place + 1], "print()")
        assert judge(service, {"completion": wanted, "grader": grader})[0]["reward"] == 1, seed


def test_points_of_generated_cases(service: Service) -> None:
    subtasks = [{"points": 1, "cases": [0, 1]}, {"points": 3, "cases": [2]}]
    grader = generated("import sys\nprint(sys.argv[1])", (1, 2, 3), ECHO, subtasks=subtasks)
    program = "n = int(input())\nprint(n if n < 3 else 0)"
    [result] = judge(service, {"completion": program, "grader": grader}, scoring="points")
    assert (result["reward"], result["tests"]["passed"], result["tests"]["total"]) == (0.25, 2, 3)
    [no_code] = judge(
        service,
        {"completion": "no code", "grader": grader, "extract": "fence"},
        scoring="points",
    )
    assert (no_code["verdict"], no_code["tests"]["total"]) == ("no_code", 3)


def test_cases_are_made_once_for_a_task(service: Service) -> None:
    """All submissions see the same cases of a generator that never prints the same, also later on."""
    generator = "import os\nprint(os.urandom(8).hex())"
    grader = generated(generator, range(5), ECHO)
    shown = "import sys\ntext = sys.stdin.read()\nprint(text)\nprint(text, file=sys.stderr)"
    seen = set()
    for _ in range(3):
        results = judge(service, *[{"completion": shown, "grader": grader}] * 8, scoring="fraction")
        seen |= {each["stdout"] for each in results}
    assert len(seen) == 1
    other = generated(generator, range(5), ECHO, reveal=True)
    assert judge(service, {"completion": shown, "grader": other})[0]["stdout"] not in seen


QUICK = {"cpu_seconds": 0.5, "wall_seconds": 0.5, "memory_mb": 64}
FAILING: list[tuple[str, str]] = [
    ("import sys\nsys.exit(3)", "exit code 3"),
    ("print(1, flush=True)\n1 / 0", "exit code 1: Traceback"),
    ("def f(:", "SyntaxError: "),
    ("while True: pass", "cpu_limit"),
    ("import time\ntime.sleep(100)", "wall_limit"),
    ("import os\nos.kill(os.getpid(), 9)", "signal 9"),
    ("x = [b'x' * (1 << 20) for _ in iter(int, 1)]", "memory_limit"),
    ("while True: print('x' * 100000)", "output_limit"),
    ("print('x' * (9 << 20))", "prints more than 8 MB"),
    ("pass", "prints nothing"),
    ("import os\nos.write(1, b'\\xff')", "prints no UTF-8"),
]


def test_a_program_that_fails_is_a_broken_task(service: Service) -> None:
    """For each submission, with the seed."""
    graders = []
    for source, text in FAILING:
        failing = {"source": source, "limits": QUICK}
        graders.append((generated(failing, [5]), f"cases.generator: seed 5: {text}"))
        graders.append((generated(NUMBERS, ["a"], failing), f"cases.reference: seed 'a': {text}"))
    broken = {"source": "int main( {", "language": "c"}
    graders.append((generated(broken), "cases.generator does not compile: "))
    graders.append((generated(NUMBERS, [1], broken), "cases.reference does not compile: "))
    large = generated("import sys\nprint(sys.argv[1] * (4 << 20))", range(1, 10), ECHO)
    graders.append((large, "cases: they are larger than 64 MB together"))
    last = generated("import sys\nprint(1 // (3 - int(sys.argv[1])))", (1, 2, 3, 4), "print(1)")
    graders.append((last, "cases.generator: seed 3: exit code 1: "))
    items = [
        {"completion": completion, "grader": grader}
        for grader, _ in graders
        for completion in ("print(1)", "def f(:")
    ]
    messages = [message for _, message in graders for _ in range(2)]
    for message, result in zip(messages, ask(service, *items, deadline_seconds=300), strict=True):
        assert result["error"]["reason"] == "invalid_task", (message, result)
        assert result["error"]["message"].startswith(message), (message, result["error"])


REFUSED: list[tuple[dict[str, Any], str]] = [
    (generated(reference=None), "each case needs its stdout, or generated cases a reference"),
    (generated(reference=None, checker="one_of"), "each case needs its stdout, or generated cases"),
    (generated(seeds=[]), "cases.seeds: "),
    (generated(seeds=[1.5]), "cases.seeds.0: "),
    (generated(seeds=["\0"]), "cases.seeds.0: "),
    (generated(seeds=["\ud800"]), "cases.seeds.0: "),
    (generated(seeds=["x" * 100_001]), "cases.seeds.0: "),
    (generated(seeds=range(5000)), "cases.seeds: "),
    (generated({"source": "0", "language": "klingon"}), "cases.generator.language: "),
    (generated({"source": "0", "files": {"/a": ""}}), "cases.generator.files: "),
    (generated(reference={"source": "0", "limits": {"disk_mb": 10**9}}), "cases.reference.limits"),
    (generated(reference={"source": ""}), "cases.reference.source: "),
    (generated(subtasks=[{"points": 1, "cases": [3]}]), "subtask 0 names a case"),
    ({"kind": "stdio", "cases": 5}, "cases: "),
    ({"kind": "stdio", "cases": {}}, "cases.generator: "),
]


def test_what_makes_no_cases_is_refused(service: Service) -> None:
    with service.client() as client:
        for grader, text in REFUSED:
            body = {"submissions": [{"completion": "0"}], "grader": grader}
            answer = client.post("/reward", content=json.dumps(body))
            assert answer.status_code == 422, (text, answer.text)
            assert text in answer.json()["error"]["message"], answer.text
