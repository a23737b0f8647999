"""`stdio` with an interactor: ten problems, and how talks end, each the same at every repetition."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from harness import Service
from interactive_problems import ADAPTIVE, BITS, GUESS, PROBLEMS, STREAM, C, Problem
from judging import ask, judge
from optional_programs import skip_without

REPEATS = 3
LIMITS = {"cpu_seconds": 1, "wall_seconds": 1}
SLOW = {"cpu_seconds": 5, "wall_seconds": 5}


def test_right_and_wrong_programs_of_ten_problems(service: Service) -> None:
    skip_without("g++")
    rows = [
        (problem, language, kind, verdict)
        for problem in PROBLEMS
        for language in ("python", "cpp")
        for kind, verdict in (("right", "passed"), ("wrong", "failed"))
    ]
    items = [
        {
            "completion": getattr(problem, kind)[language],
            "language": language,
            "grader": problem.grader(),
        }
        for problem, language, kind, _ in rows
    ]
    for (problem, language, kind, verdict), result in zip(
        rows, judge(service, *items), strict=True
    ):
        where = problem.name, language, kind
        assert (*where, result["verdict"]) == (*where, verdict), result
        assert result["reward"] == float(verdict == "passed")
        assert result["integrity"] == "separated"
        if verdict == "failed":
            assert result["message"] == "the interactor rejects what the program said"


# The source of a program in Python, and its verdict and the beginning of its message.
ENDS = {
    "reads on": ("input()\ninput()", "timeout", "deadlock: "),
    "forgets to flush": (
        """
        import sys
        sys.stdin.readline()
        sys.stdout.write("ask 5\\n")
        sys.stdin.readline()
        """,
        "timeout",
        "deadlock: ",
    ),
    "a thread waits beside": (
        """
        import threading, time
        threading.Thread(target=lambda: time.sleep(100), daemon=True).start()
        input()
        input()
        """,
        "timeout",
        "deadlock: ",
    ),
    "sleeps": ("import time\ntime.sleep(1000)", "timeout", "silence: "),
    "sleeps after a part of a line": (
        "import time\nprint('ans', end='', flush=True)\ntime.sleep(1000)",
        "timeout",
        "silence: ",
    ),
    "reads after a part of a line": (
        "input()\nprint('ans', end='', flush=True)\ninput()",
        "timeout",
        "deadlock: ",
    ),
    "dribbles": (
        "import time\nwhile True:\n    print('a', end='', flush=True)\n    time.sleep(0.01)",
        "timeout",
        "silence: ",
    ),
    "computes forever": ("while True: pass", "timeout", "time limit: "),
    "takes all memory": ("x = [0] * 10**10", "memory_limit", ""),
    "floods": (
        "import sys\nwhile True: sys.stdout.write('x' * 65536)",
        "output_limit",
        "flood: ",
    ),
    "floods its stderr": (
        "import sys\nwhile True: sys.stderr.write('x' * 65536)",
        "output_limit",
        "output limit: ",
    ),
    "ends at once": ("pass", "early_exit", "early end: "),
    "ends after a question": ("input()\nprint('ask 5')", "early_exit", "early end: "),
    "crashes": ("input()\n1 / 0", "runtime_error", "Traceback"),
    "exits with 3": ("input()\nraise SystemExit(3)", "runtime_error", "the program ended with"),
    "does not compile": ("(", "syntax_error", ""),
    "closes its stdout and sleeps": (
        "import os, time\nos.close(1)\ntime.sleep(1000)",
        "timeout",
        "silence: ",
    ),
    "closes its stdout and ends": ("import os\nos.close(1)", "early_exit", "early end: "),
    "leaves a child with its pipes": (
        "import os, time\nif not os.fork(): time.sleep(1000)",
        "early_exit",
        "early end: ",
    ),
    "kills its relay": (
        "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(1000)",
        "runtime_error",
        "the program died of SIGKILL",
    ),
    "stops its relay": (
        "import os, time\nos.kill(os.getppid(), 19)\ntime.sleep(1000)",
        "timeout",
        "silence: ",
    ),
    "answers wrong, and sleeps": (
        "import time\nprint('answer 0', flush=True)\ntime.sleep(1000)",
        "failed",
        "the interactor rejects",
    ),
    "answers wrong, and crashes": (
        "print('answer 0', flush=True)\n1 / 0",
        "failed",
        "the interactor rejects",
    ),
    "says bytes": (
        "import os\nos.write(1, bytes(range(128, 256)) + b'\\n')\ninput()",
        "failed",
        "the interactor failed",
    ),
}
AFTER_ANSWER = {
    "ends": ("", "passed", ""),
    "leaves a child": ("import os, time\nif not os.fork(): time.sleep(1000)", "passed", ""),
    "closes its input": ("import os\nos.close(0)", "passed", ""),
    "says more": ("print('what else?')", "passed", ""),
    "sleeps": ("import time\ntime.sleep(1000)", "timeout", "silence: "),
    "reads the end": ("assert sys.stdin.read() == ''", "passed", ""),
    "reads on": ("input()", "runtime_error", "Traceback"),
    "crashes": ("1 / 0", "runtime_error", "Traceback"),
    "exits with 3": ("raise SystemExit(3)", "runtime_error", "the program ended with code 3"),
    "talks on": ("while True: print('x' * 1000)", "output_limit", "flood: "),
    "computes": ("while True: pass", "timeout", "time limit: "),
}


def _after_answer(code: str) -> str:
    return f"import sys\nsys.stdin.readline()\nprint('answer 37', flush=True)\n{code}"


def _check(
    service: Service, problem: Problem, rows: dict[str, tuple[str, str, str]], **more: Any
) -> None:
    grader = problem.grader()
    grader["cases"] = grader["cases"][:1]
    named = [(name, row) for name, row in rows.items() for _ in range(REPEATS)]
    items = [
        {"completion": dedent(row[0]), "grader": grader, "limits": LIMITS, **more}
        for _, row in named
    ]
    found: dict[str, set[tuple[str, str]]] = {}
    for (name, (_, verdict, beginning)), result in zip(named, judge(service, *items), strict=True):
        assert result["reward"] == float(verdict == "passed"), (name, result)
        message = result["message"]
        begins = beginning if message.startswith(beginning) else message
        found.setdefault(name, set()).add((result["verdict"], begins))
        failed_itself = "checker_failed" in result["hack_signals"]
        assert failed_itself == message.startswith("the interactor failed")
    assert found == {name: {(verdict, text)} for name, (_, verdict, text) in rows.items()}


def test_ends_of_talks_have_names(service: Service) -> None:
    _check(service, GUESS, ENDS)


def test_after_the_answer_a_program_ends_by_itself(service: Service) -> None:
    rows = {
        name: (_after_answer(code), verdict, beginning)
        for name, (code, verdict, beginning) in AFTER_ANSWER.items()
    }
    _check(service, GUESS, rows)


def test_parts_of_lines_are_a_talk_like_any(service: Service) -> None:
    slowly = dedent(
        """
        import builtins, sys, time
        def say(*words, **_):
            for letter in " ".join(map(str, words)):
                sys.stdout.write(letter)
                sys.stdout.flush()
            time.sleep(0.003)
            sys.stdout.write("\\n")
            sys.stdout.flush()
        builtins.print = say
        """
    )
    for problem in (GUESS, STREAM):
        source = slowly + problem.right["python"]
        result = judge(service, {"completion": source, "grader": problem.grader(), "limits": SLOW})[
            0
        ]
        assert result["verdict"] == "passed", result
    no_end = "import os\nlow = input()\nos.write(1, b'answer ')\nos.write(1, b'37')"
    _check(service, GUESS, {"no line break at the end": (no_end, "passed", "")})


CPP_ENDS = {
    "forgets to flush": (
        'int main() { int a; printf("ask 5\\n"); for (;;) scanf("%d", &a); }',
        "timeout",
        "deadlock: ",
    ),
    "sleeps": ("#include <unistd.h>\nint main() { pause(); }", "timeout", "silence: "),
    "floods": ('int main() { for (;;) fputs("xxxxxxxx", stdout); }', "output_limit", "flood: "),
    "ends at once": ("int main() {}", "early_exit", "early end: "),
    "crashes": ("int main() { abort(); }", "runtime_error", "the program died of SIGABRT"),
    "a part of a line": (
        'int main() { int a; scanf("%d", &a); printf("answ"); fflush(stdout); for (;;) scanf("%d", &a); }',
        "timeout",
        "deadlock: ",
    ),
}


def test_ends_of_compiled_programs(service: Service) -> None:
    skip_without("g++")
    rows = {
        name: (f"{C}#include <cstdlib>\n{code}", verdict, beginning)
        for name, (code, verdict, beginning) in CPP_ENDS.items()
    }
    _check(service, GUESS, rows, language="cpp")


# An interactor in Python, and the verdict and message of a program that asks it a few times.
FAULTS = {
    "raises": ("input()\n1 / 0", "failed", "the interactor failed"),
    "says that it fails": ("input()\nraise SystemExit(3)", "failed", "the interactor failed"),
    "sleeps": ("input()\nimport time\ntime.sleep(1000)", "failed", "the interactor failed"),
    "computes": ("input()\nwhile True: pass", "failed", "the interactor failed"),
    "dies": ("input()\nimport os\nos.kill(os.getpid(), 9)", "failed", "the interactor failed"),
    "floods": ("input()\nwhile True: print('x' * 65536)", "failed", "the interactor failed"),
    "floods its stderr": (
        "import sys\ninput()\nwhile True: sys.stderr.write('x' * 65536)",
        "failed",
        "the interactor failed",
    ),
    "closes its stdout": ("input()\nimport os\nos.close(1)\ninput()", "runtime_error", "Traceback"),
    "accepts": ("input()", "passed", ""),
    "rejects": ("input()\nraise SystemExit(1)", "failed", "the interactor rejects"),
    "accepts the end alone": ("import sys\nsys.stdin.read()", "passed", ""),
}
PATIENT = "import sys\nprint('hello', flush=True)\nfor line in sys.stdin: print('well', flush=True)"
"""A program that ends as its input ends."""


def _interactor(source: str) -> dict[str, Any]:
    return {"source": source, "limits": LIMITS}


def test_failures_of_interactors_are_no_errors(service: Service) -> None:
    for name, (source, verdict, beginning) in FAULTS.items():
        problem = Problem(name, _interactor(source), ("",), {})
        talker = "print('hello', flush=True)\ninput()" if name == "closes its stdout" else PATIENT
        if name == "accepts the end alone":
            talker = "print('hello')"
        _check(service, problem, {name: (talker, verdict, beginning)})


BROKEN = {
    "does not compile": "(",
    "ends": "raise SystemExit(3)",
    "rejects": "raise SystemExit(1)",
    "raises": "import nothing",
}


def test_an_interactor_that_fails_by_itself_is_an_invalid_task(service: Service) -> None:
    programs = ("pass", "print('hello')", PATIENT, "import time\ntime.sleep(1000)")
    items = [
        {"completion": program, "grader": problem.grader(), "limits": LIMITS}
        for name, source in BROKEN.items()
        for problem in [Problem(name, _interactor(source), ("",), {})]
        for program in programs
    ]
    for item, result in zip(items, ask(service, *items), strict=True):
        assert result["reward"] is None, (item, result)
        assert result["error"]["reason"] == "invalid_task"
        assert "interactor" in result["error"]["message"]


def test_nobody_reads(service: Service) -> None:
    """An interactor or a program that reads late has all; one that never reads is to blame."""
    talks = "import sys\nfor _ in range(300): print('x' * 1000)\nprint('end', flush=True)\n{after}"
    late = "import sys, time\ntime.sleep(0.3)\nwhile input() != 'end': pass\n{after}"
    patient = {"limits": {"cpu_seconds": 5, "wall_seconds": 5}}
    sleeps = "import time\ntime.sleep(1000)"
    cases = [
        (talks.format(after=""), late.format(after=""), "passed", ""),
        (late.format(after="print('ok')"), talks.format(after="input()"), "passed", ""),
        (talks.format(after=""), sleeps, "failed", "the interactor failed"),
        (sleeps, talks.format(after="input()"), "timeout", "silence: "),
        (talks.format(after=""), talks.format(after="input()"), "timeout", "deadlock: "),
    ]
    for source, interactor, verdict, beginning in cases:
        limits = LIMITS if verdict == "failed" else patient["limits"]
        problem = Problem("", {"source": interactor, "limits": limits}, ("",), {})
        _check(service, problem, {source: (source, verdict, beginning)})


def test_points_of_an_interactor_and_of_subtasks(service: Service) -> None:
    skip_without("g++")
    asks_much = "for _ in range(20):\n    print('? 1', flush=True)\n    input()\n"
    subtasks = [{"points": 30, "cases": [0, 1]}, {"points": 70, "cases": [2], "requires": [0]}]
    grader = BITS.grader(subtasks=subtasks)
    items = [
        {"completion": source, "grader": grader, "scoring": "points"}
        for source in (BITS.right["python"], asks_much + BITS.right["python"], "print('! 0')")
    ]
    rewards = [result["reward"] for result in judge(service, *items)]
    assert rewards == [1.0, 0.15, 0.0]


ATTACKS = {
    "lines of the relay on every descriptor": """
        import os
        lines = b'["waits",0,1]\\n!["closed"]\\n["out",0,"YW5zd2VyIDM3Cg=="]\\n!["read",0]\\n'
        for number in range(2, 64):
            try:
                os.write(number, lines)
            except OSError:
                pass
        """,
    "descriptors of its relay": """
        import os
        for path in (f"/proc/{os.getppid()}/fd", "/proc/1/fd"):
            try:
                for name in os.listdir(path):
                    os.write(os.open(f"{path}/{name}", os.O_WRONLY), b'["out",0,"YW5zd2VyIDM3Cg=="]\\n')
            except OSError:
                pass
        """,
    "a descriptor by pidfd_getfd": """
        import ctypes, os
        pidfd = os.pidfd_open(os.getppid())
        for number in range(256):
            own = ctypes.CDLL(None).syscall(438, pidfd, number, 0)
            if own >= 0:
                os.write(own, b'["out",0,"YW5zd2VyIDM3Cg=="]\\n')
        """,
    "the interactor's files": """
        import glob, os
        found = [path for path in glob.glob("/box/**", recursive=True) if "case" in path]
        for path in (*found, "case/input", "../case/input", "/proc/2/cwd/case/input"):
            try:
                print("answer", open(path).read().split()[2])
            except (OSError, IndexError):
                pass
        """,
    "the interactor's exit": "import os\nos._exit(0)",
    "a signal for all": "import os\nos.kill(-1, 15)",
    "the pipe of its own input": """
        import os
        pipe = os.open("/proc/self/fd/0", os.O_WRONLY)
        os.write(pipe, b"=\\n" * 100)
        """,
    "a large pipe": """
        import fcntl, os
        fcntl.fcntl(1, 1031, 1 << 20)
        os.write(1, b"ask 1\\n" * 100000)
        """,
    "many processes": "import os\nwhile True: os.fork()",
}


def test_attacks_earn_nothing(service: Service) -> None:
    """A submission may spoil its own talk alone; an honest one beside it passes."""
    grader = GUESS.grader()
    grader["cases"] = grader["cases"][:1]
    honest = {"completion": GUESS.right["python"], "grader": grader}
    items = [
        {"completion": dedent(source), "grader": grader, "limits": LIMITS}
        for source in ATTACKS.values()
    ]
    results = judge(service, *(each for item in items for each in (item, honest)))
    for name, attack, beside in zip(ATTACKS, results[::2], results[1::2], strict=True):
        assert attack["reward"] == 0.0, (name, attack)
        assert attack["verdict"] != "passed"
        assert beside["reward"] == 1.0, (name, beside)


def test_text_of_the_interactor_needs_reveal(service: Service) -> None:
    source = "import sys\ninput()\nprint('it was 42', file=sys.stderr)\nsys.exit(1)"
    problem = Problem("", _interactor(source), ("",), {})
    says = {"completion": PATIENT}
    hidden, shown = judge(
        service,
        {**says, "grader": problem.grader()},
        {**says, "grader": problem.grader(reveal=True)},
    )
    assert hidden["message"] == "the interactor rejects what the program said"
    assert shown["message"] == "the interactor rejects what the program said: it was 42"
    assert "it was" not in str(hidden)
    assert hidden["stdout"] == "hello\n"


def test_many_questions_cost_no_time_limit(service: Service) -> None:
    """The wait for the other side is no idle time, for 2,000 questions under a limit of 1 s."""
    interactor = """
        for number in range(2000):
            assert int(input()) == number
            print(number, flush=True)
        """
    asks = "for number in range(2000):\n    print(number, flush=True)\n    assert input() == str(number)"
    problem = Problem("", {"source": dedent(interactor)}, ("",), {})
    _check(service, problem, {"asks": (asks, "passed", "")})


def test_programs_of_one_batch_do_not_wait_for_each_other(service: Service) -> None:
    """More pairs than slots, all asleep at once."""
    sleeps = "import time\nfor _ in range(3):\n    time.sleep(0.1)\n    print('?', flush=True)\n    input()"
    slow = (
        "import sys, time\nfor line in sys.stdin:\n    time.sleep(0.1)\n    print('!', flush=True)"
    )
    problem = Problem("", {"source": slow}, ("",), {})
    items = [{"completion": sleeps, "grader": problem.grader()} for _ in range(40)]
    assert {result["verdict"] for result in judge(service, *items)} == {"passed"}


def test_adaptive_interactors_answer_the_same_program_the_same(service: Service) -> None:
    skip_without("g++")
    item = {"completion": ADAPTIVE.right["python"], "grader": ADAPTIVE.grader()}
    results = judge(service, *[item] * 5)
    assert len({result["stdout"] for result in results}) == 1
