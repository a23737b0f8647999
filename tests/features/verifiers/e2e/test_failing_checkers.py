"""Checkers that crash, hang or talk too much, and outputs of odd forms.

What fails on the output of a submission alone has not accepted it; what fails on the task's own answer is a
broken task.
"""

from __future__ import annotations

import hashlib
from typing import Any

from harness import Service
from judging import ask, judge

SIDES = (
    "import os, signal, sys, time\nwith open(sys.argv[{}], 'rb') as file: output = file.read()\n"
)
STDIN = "import os, signal, sys, time\noutput = sys.stdin.buffer.read()\n"
FAILS: list[tuple[str, str]] = [
    ("testlib", "1 / 0"),
    ("testlib", "assert False"),
    ("testlib", "sys.exit(3)"),
    ("testlib", "sys.exit(255)"),
    ("testlib", "sys.exit(42)"),
    ("testlib", "os._exit(5)"),
    ("testlib", "sys.exit(7)"),
    ("testlib", "print('points 0.5')\nsys.exit(7)"),
    ("testlib", "print('points 1.5', file=sys.stderr)\nsys.exit(7)"),
    ("testlib", "print('points -1', file=sys.stderr)\nsys.exit(7)"),
    ("testlib", "print('points nan', file=sys.stderr)\nsys.exit(7)"),
    ("testlib", "print('points inf', file=sys.stderr)\nsys.exit(7)"),
    ("testlib", "print('points 1e999', file=sys.stderr)\nsys.exit(7)"),
    ("testlib", "print('ok points 1', file=sys.stderr)\nsys.exit(7)"),
    ("testlib", "print('points ' + '1' * 50, file=sys.stderr)\nsys.exit(7)"),
    ("testlib", "os.kill(os.getpid(), signal.SIGSEGV)"),
    ("testlib", "os.kill(os.getpid(), signal.SIGKILL)"),
    ("testlib", "os.abort()"),
    ("testlib", "while True: pass"),
    ("testlib", "time.sleep(1000)"),
    ("testlib", "while True: os.write(1, b'1' * 65536)"),
    ("testlib", "while True: os.write(2, b'ok ' * 20000)"),
    ("testlib", "x = 'x' * (1 << 40)"),
    ("testlib", "x = [b'x' * (1 << 20) for _ in iter(int, 1)]"),
    ("testlib", "def f(): f()\nf()"),
    ("testlib", "while True: os.fork()"),
    ("icpc", "sys.exit(0)"),
    ("icpc", "sys.exit(1)"),
    ("icpc", "sys.exit(41)"),
    ("icpc", "os.kill(os.getpid(), signal.SIGTERM)"),
    ("open_r1", "pass"),
    ("open_r1", "print(2)"),
    ("open_r1", "print(-0.5)"),
    ("open_r1", "print('nan')"),
    ("open_r1", "print('inf')"),
    ("open_r1", "print(True)"),
    ("open_r1", "print(1, 1)"),
    ("open_r1", "print('1' + '0' * 100 + 'e-100')"),
    ("open_r1", "print('1.' + '0' * 60 + 'e-9')"),
    ("open_r1", "print('1', '\\n' * 100000, '0')"),
    ("open_r1", "print('١')"),
    ("open_r1", "print(1)\nsys.exit(1)"),
    ("open_r1", "print(1, flush=True)\n1 / 0"),
    ("open_r1", "print(1, flush=True)\nwhile True: pass"),
    ("open_r1", "while True: os.write(1, b'1')"),
]
ACCEPTS = {"testlib": "sys.exit(0)", "icpc": "sys.exit(42)", "open_r1": "print(1)"}
QUICK = {"cpu_seconds": 0.5, "wall_seconds": 0.5, "memory_mb": 128}


def checker_of(convention: str, act: str, failing: str) -> dict[str, Any]:
    """A checker that accepts any output but `failing`, for which it acts so."""
    begin = {"testlib": SIDES.format(2), "icpc": STDIN, "open_r1": SIDES.format(3)}[convention]
    acts = "\n".join(f"    {line}" for line in act.split("\n"))
    source = f"{begin}if output == {failing.encode()!r}:\n{acts}\nelse:\n    {ACCEPTS[convention]}"
    return {"source": source, "convention": convention, "limits": QUICK}


def grader(checker: Any, stdout: str | None = "1", **more: Any) -> dict[str, Any]:
    return {"kind": "stdio", "cases": [{"stdout": stdout}], "checker": checker, **more}


def test_a_checker_that_fails_on_an_output_has_not_accepted_it(service: Service) -> None:
    items = [
        {"completion": "print('boom', end='')", "grader": grader(checker_of(*row, "boom"))}
        for row in FAILS
    ]
    for row, result in zip(FAILS, judge(service, *items), strict=True):
        assert (result["reward"], result["verdict"]) == (0.0, "failed"), (row, result)
        assert result["hack_signals"] == ["checker_failed"], (row, result)
        assert result["message"] == "the checker failed on the output", (row, result)


def test_a_checker_that_fails_on_the_answer_is_a_broken_task(service: Service) -> None:
    rows = [*FAILS, ("testlib", "sys.exit(1)"), ("icpc", "sys.exit(43)"), ("open_r1", "print(0.9)")]
    items = [
        {"completion": "print('boom', end='')", "grader": grader(checker_of(*row, "1"))}
        for row in rows
    ]
    for row, result in zip(rows, ask(service, *items), strict=True):
        assert result["error"]["reason"] == "invalid_task", (row, result)
        assert result["error"]["message"].startswith("checker: the answer of case 0: "), row


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"source": "def f(:"}, "checker: the answer of case 0: the checker failed: SyntaxError: "),
    ({"source": "int main( {", "language": "c"}, "checker does not compile: syntax_error: "),
    ({"source": "x", "language": "bash"}, "checker: the answer of case 0: the checker failed: "),
    (
        {"source": "0", "files": {"a": "x" * (20 << 20)}, "limits": {"disk_mb": 16}},
        "checker: ",
    ),
]


def test_a_checker_that_cannot_run_is_a_broken_task(service: Service) -> None:
    items = [{"completion": "print(1)", "grader": grader(each)} for each, _ in BROKEN]
    for (checker, message), result in zip(BROKEN, ask(service, *items), strict=True):
        assert result["error"]["reason"] == "invalid_task", (checker["source"], result)
        assert result["error"]["message"].startswith(message), result["error"]


HAS_DIGEST = (
    "import hashlib, sys\noutput = open(sys.argv[2], 'rb').read()\n"
    "sys.exit(hashlib.sha256(output).hexdigest() not in open(sys.argv[1]).read())"
)
OUTPUTS: list[bytes] = [
    b"",
    b"\n",
    b"1",
    b"1\n\n\n",
    b"\0",
    b"\0" * 1000 + b"\n",
    b"\xff\xfe\x00",
    b"\xed\xa0\x80",
    bytes(range(256)) * 300,
    b"\r\n" * 100,
    b"x" * (1 << 20),
    b"1\n" * (6 << 20),
]


def test_an_output_reaches_the_checker_byte_by_byte(service: Service) -> None:
    """The input of the case has the digests of the right outputs; there is no answer."""
    digests = " ".join(hashlib.sha256(each).hexdigest() for each in OUTPUTS)
    asked = {
        "kind": "stdio",
        "cases": [{"stdin": digests}],
        "checker": {"source": HAS_DIGEST},
    }
    programs = [
        *(f"import sys\nsys.stdout.buffer.write({each!r})" for each in OUTPUTS[:-2]),
        "print('x' * (1 << 20), end='')",
        "print('1\\n' * (6 << 20), end='')",
    ]
    wrong = ["print(1, 2)", "import sys\nsys.stdout.buffer.write(b'\\0' * 999)"]
    items = [{"completion": each, "grader": asked} for each in (*programs, *wrong)]
    rewards = [each["reward"] for each in judge(service, *items)]
    assert rewards == [1.0] * len(programs) + [0.0] * len(wrong)


def test_an_output_without_bound_is_no_error(service: Service) -> None:
    """Neither what a checker reads nor the room in its sandbox turns an output into an error."""
    small = {"source": "0", "limits": {"disk_mb": 1, "memory_mb": 12}}
    items: list[dict[str, Any]] = [
        {"completion": program, "grader": grader(checker, stdout)}
        for checker in (small, {"source": "0"})
        for stdout in ("1", None)
        for program in ("print('1' * (15 << 20))", "print('1' * (17 << 20))")
    ]
    results = judge(service, *items)
    for item, result in zip(items, results, strict=True):
        is_small = item["grader"]["checker"] is small
        if is_small or "17" in item["completion"]:
            assert result["verdict"] == "failed", (item, result["message"])
        else:
            assert result["verdict"] == "passed", (item, result["message"])


def test_what_a_checker_says_is_shown_only_to_those_who_may_read_it(service: Service) -> None:
    source = SIDES.format(2) + "if output != b'1\\n':\n    sys.exit('the secret is 4711')"
    items = [
        {"completion": "print(5)", "grader": grader({"source": source}, "1\n", reveal=reveal)}
        for reveal in (False, True)
    ]
    hidden, shown = judge(service, *items)
    assert hidden["message"] == "the checker rejects the output"
    assert "4711" not in str(hidden)
    assert shown["message"] == "the checker rejects the output: the secret is 4711"


def test_a_checker_that_hangs_takes_no_deadline(service: Service) -> None:
    """With a share of the reward for each case, too: the later cases do not run.

    Nor do they after outputs that have cost a checker much time, without a limit.
    """
    cases = [{"stdin": str(each), "stdout": "1"} for each in range(60)]
    works = "while time.process_time() < 2: pass\nsys.exit(1)"
    hangs = checker_of("testlib", "while True: pass", "boom")
    slow = {**checker_of("testlib", works, "boom"), "limits": {"cpu_seconds": 60}}
    program = "print('1' if int(input()) < 2 else 'boom', end='')"
    items = [
        {"completion": program, "grader": {"kind": "stdio", "cases": cases, "checker": checker}}
        for checker in (hangs, slow)
    ]
    items[0]["scoring"], items[1]["scoring"] = "fraction", "points"
    results = judge(service, *items, limits={"wall_seconds": 0.5}, deadline_seconds=60)
    assert [each["reward"] for each in results] == [2 / 60] * 2
    assert [each["hack_signals"] for each in results] == [["checker_failed"], []]


def test_texts_of_any_characters_reach_a_checker(service: Service) -> None:
    source = (
        "import sys\nsys.exit(open(sys.argv[1], 'rb').read() != open(sys.argv[2], 'rb').read())"
    )
    texts = ["\ud800", "\0", "\u2028\x85 \xa0", "é\r\n", "\U0001f600"]
    program = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())"
    items = [
        {
            "completion": program,
            "grader": {
                "kind": "stdio",
                "cases": [{"stdin": text, "stdout": text}],
                "checker": {"source": source, "files": {"a": text}},
            },
        }
        for text in texts
    ]
    assert [each["reward"] for each in judge(service, *items)] == [1.0] * len(texts)
