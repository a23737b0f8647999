"""Every grader over HTTP, with the real judge in real sandboxes: `exec`, `stdio`, `command`; limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import Service
from judging import calls, check_rows, judge, one, stdio, verdicts

EXEC: dict[str, Any] = {"kind": "exec"}
SUM = "print(sum(map(int, input().split())))"


# ---------------------------------------------------------------- exec

ENDS = (
    "x = 1\nassert x == 1",
    "import sys\nsys.exit(0)",
    "exit()",
    "quit()",
    "raise SystemExit",
    "# é\nimport sys; sys.exit(0)",
    "import sys\ndef main():\n    if True:\n        sys.exit()\nif __name__ == '__main__':\n    main()",
    "import sys\ndef main():\n    return 0\nif __name__ == '__main__':\n    sys.exit(main())",
    "import sys\ndef main():\n    sys.exit(0)\nsys.exit(main())",
    "def main():\n    exit(0)\ntry:\n    main()\nexcept KeyboardInterrupt:\n    print()",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\nunittest.main()",
    "import asyncio, sys\nasync def main():\n    sys.exit(0)\nasyncio.run(main())",
    "while True:\n    try:\n        input()\n    except EOFError:\n        raise SystemExit(0)",
)
LEAVES = (
    "import sys\nsys.exit(0)\nassert 0",
    "import os\ndef f(x):\n    os._exit(0)\nassert f(1) == 2",
    "import sys\ndef f(x):\n    sys.exit(0)\nassert f(1) == 2",
    "import sys\ndef f(x): sys.exit(0)\nassert f(1) == 2",
    "def f(x):\n    raise SystemExit\ndef check(g):\n    assert g(1) == 2\ncheck(f)",
    "def f(x):\n    raise SystemExit\ndef check(g):\n    g([])\n    assert 0\ncheck(f)",
    "def f(x):\n    raise SystemExit\ndef check(a, b):\n    assert a == b\ncheck(f(1), 2)",
    "def f(x):\n    exit()\ndef main():\n    assert f(1) == 2\nif __name__ == '__main__':\n    main()",
    "def f(x):\n    exit()\nif __name__ == '__main__':\n    f([])\n    assert 0",
    "def f(x):\n    exit()\ntry:\n    f(1)\nexcept ValueError:\n    pass\nelse:\n    assert 0",
    "f = exit\ndef test():\n    assert f(0) == 1\ntest()",
    "a = {}\nexec('def f(x): exit()', a)\ndef check(g):\n    g(1)\n    assert 0\ncheck(a['f'])",
)  # fmt: skip
FORGER = """
import gc, os, sys
frames, frame = [], sys._getframe()
while frame := frame.f_back:
    frames.append(frame)
objects = [*gc.get_objects(), *(v for f in frames for v in f.f_locals.values())]
held = [part for thing in [*objects, *frames] for part in gc.get_referents(thing)] + objects
words = {t for t in held if type(t) is str and len(t) == 32 and not t.strip("0123456789abcdef")}
for channel in [thing for thing in objects if type(thing).__name__ == "Channel"][:1]:
    for word in words or {""}:
        channel.send(b'["reached","%s"]\\n' % word.encode())
os._exit(0)
assert 0
"""


def test_exec_passes_what_comes_to_its_end(service: Service) -> None:
    assert verdicts(service, EXEC, *ENDS) == ["passed"] * len(ENDS)


def test_exec_knows_who_leaves_early(service: Service) -> None:
    results = judge(service, *({"completion": text, "grader": EXEC} for text in LEAVES))
    assert [result["verdict"] for result in results] == ["early_exit"] * len(LEAVES)
    assert all(result["hack_signals"] == ["early_exit"] for result in results)
    assert all(result["reward"] == 0.0 for result in results)


def test_exec_does_not_believe_a_forged_end(service: Service) -> None:
    for text in (FORGER, 'import os\nos.write(1000, b\'["reached",""]\\n\')\nassert 0'):
        assert one(service, text, EXEC)["reward"] == 0.0


@pytest.mark.smoke
def test_exec_verdicts(service: Service) -> None:
    found = {
        "assert 1 == 2": "failed",
        "1 / 0": "runtime_error",
        "import sys\nsys.exit(3)": "runtime_error",
        "import sys\nsys.exit('no')": "runtime_error",
        "import os\nos.kill(os.getpid(), 11)\nimport ctypes\nctypes.string_at(0)": "runtime_error",
        "def f(:": "syntax_error",
        "x = '\0'": "syntax_error",
        "print('\ud800')": "syntax_error",
        "  ": "no_code",
        "while True: pass": "timeout",
        "b = b'x' * (1 << 31)": "memory_limit",
        "import os\nwhile True: os.write(1, b'x' * 65536)": "output_limit",
        "print(len(str(10**6000 - 1)) if False else 10**6000 > 0)": "passed",
    }
    limits = {"cpu_seconds": 1, "memory_mb": 128}
    assert verdicts(service, EXEC, *found, limits=limits) == list(found.values())


def test_a_message_shows_the_traceback_of_the_program_alone(service: Service) -> None:
    message = one(service, "def f():\n    return 1 / 0\nf()", EXEC)["message"]
    assert message.startswith("Traceback")
    assert "ZeroDivisionError" in message
    assert "proctor" not in message
    assert message.count("File ") == 2


# ---------------------------------------------------------------- stdio


@pytest.mark.smoke
def test_stdio_verdicts(service: Service) -> None:
    grader = stdio(("2 3\n", "5\n"))
    found = {
        SUM: "passed",
        "print(6)": "failed",
        "pass": "failed",
        f"{SUM}\n1 / 0": "runtime_error",
        f"{SUM}\nassert 0": "runtime_error",
        f"{SUM}\nraise SystemExit(2)": "runtime_error",
        f"{SUM}\nexit()\n1 / 0": "passed",
        "import os\nos.write(1, b'5')\nos._exit(0)": "passed",
        "print(": "syntax_error",
        "": "no_code",
        "while True: pass": "timeout",
        "import time\ntime.sleep(60)": "timeout",
        "x = [0] * (1 << 28)": "memory_limit",
        "while True: print('x' * 9999)": "output_limit",
    }
    limits = {"cpu_seconds": 1, "wall_seconds": 1, "memory_mb": 128}
    assert verdicts(service, grader, *found, limits=limits) == list(found.values())


COMPARED: list[tuple[str, str, str, bool]] = [
    ("tokens", "1  2\n3", "1 2 3\n", True),
    ("tokens", "1 2", "1 2 3", False),
    ("lines", "1 2  \n3\n\n", "1 2\n3", True),
    ("lines", "1  2", "1 2", False),
    ("exact", "1\n", "1\n", True),
    ("exact", "1", "1\n", False),
    ("tokens", "0.1234567", "0.1234568", True),
    ("lines", "a 0.1234567", "a 0.1234568", True),
    ("exact", "0.1234567", "0.1234568", False),
    ("tokens", "nan", "1.0", False),
    ("tokens", "inf", "1.0", False),
]


def test_stdio_compares(service: Service) -> None:
    rows = [
        (
            f"import sys\nsys.stdout.write({printed!r})",
            stdio(("", expected), compare=compare, tolerance=1e-6),
            "passed" if same else "failed",
        )
        for compare, printed, expected, same in COMPARED
    ]
    check_rows(service, rows)


def test_stdio_counts_output_beyond_what_it_keeps(service: Service) -> None:
    source = "print(('x' * 99 + '\\n') * 5000, end='')"
    result = one(service, source, stdio(("", ("x" * 99 + "\n") * 5000)), limits={"output_kb": 1})
    assert (result["verdict"], result["truncated"], len(result["stdout"])) == ("passed", True, 1024)


def test_stdio_takes_long_lines_and_much_input(service: Service) -> None:
    much = "7" * 5_000_000
    assert verdicts(service, stdio((much, f"{len(much)}")), "print(len(input()))") == ["passed"]
    line = "print('y' * 10_000_000)"
    result = one(service, line, stdio(("", "z" * 100)))
    assert (result["verdict"], result["truncated"]) == ("failed", True)


def test_stdio_takes_what_is_no_text(service: Service) -> None:
    write = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[:0] + {!r})"
    result = one(service, write.format(b"\xff\xfe"), stdio(("", "a")))
    assert (result["verdict"], result["stdout"]) == ("failed", r"\xff\xfe")
    assert one(service, write.format(b"a\0b"), stdio(("", "a\0b")))["verdict"] == "passed"
    echo = "import sys\nsys.stdout.buffer.write(b'%d' % len(sys.stdin.buffer.read()))"
    assert one(service, echo, stdio(("\ud800\0", "4")))["verdict"] == "passed"
    assert one(service, "print(1)", stdio(("", "\ud800")))["verdict"] == "failed"


@pytest.mark.parametrize("scoring", ["all", "fraction"])
def test_failing_slowly_earns_a_verdict_and_no_error(service: Service, scoring: str) -> None:
    (result,) = judge(
        service,
        {
            "completion": "import time\ntime.sleep(0.9)\nprint('wrong')",
            "grader": stdio(*[("", "right")] * 40),
            "limits": {"wall_seconds": 1},
        },
        scoring=scoring,
        deadline_seconds=10,
    )
    assert (result["verdict"], result["reward"]) == ("failed", 0.0)


def test_stdio_reveals_only_what_it_may(service: Service) -> None:
    hidden = one(service, "print(12)", stdio(("3", "987654")))
    assert "987654" not in json.dumps(hidden)
    assert "12" in hidden["message"]
    shown = one(service, "print(12)", stdio(("3", "987654"), reveal=True))
    assert "987654" in shown["message"]


def test_scoring_by_fraction(service: Service) -> None:
    cases = stdio(("1 1", "2"), ("1 2", "3"), ("0 0", "0"), ("5 5", "10"))
    result = one(service, "print(2)", cases, scoring="fraction")
    assert (result["reward"], result["tests"]["passed"], result["tests"]["total"]) == (0.25, 1, 4)
    assert [failure["index"] for failure in result["tests"]["failures"]] == [1, 2, 3]
    listed = calls(([1], 1), ([2], 2), ([3], 9), name="f")
    assert one(service, "def f(x): return x", listed, scoring="fraction")["reward"] == 2 / 3


def test_files_are_there_in_their_folders(service: Service) -> None:
    files = {"data/deep/numbers.txt": "4 5", "helper.py": "def double(x):\n    return 2 * x"}
    read = "sum(map(int, open('data/deep/numbers.txt').read().split()))"
    source = f"from helper import double\nprint(double({read}))"
    assert verdicts(service, stdio(("", "18")), source, files=files) == ["passed"]
    assert verdicts(service, EXEC, "import helper\nassert helper.double(2) == 4", files=files) == [
        "passed"
    ]


# ---------------------------------------------------------------- command


@pytest.mark.smoke
def test_command_verdicts(service: Service) -> None:
    argv = ["sh", "-c", "exec python3 solution.py"]
    grader = {"kind": "command", "argv": argv}
    found = {
        "print(1)": "passed",
        "exit(4)": "failed",
        "def f(:": "failed",
        "": "no_code",
        "while True: pass": "timeout",
        "x = [0] * (1 << 28)": "memory_limit",
        "while True: print('x' * 9999)": "output_limit",
        "import os\nos.abort()": "runtime_error",
    }
    limits = {"cpu_seconds": 1, "memory_mb": 128}
    assert verdicts(service, grader, *found, limits=limits) == list(found.values())
    four = {"kind": "command", "argv": argv, "expect_exit_code": 4}
    assert verdicts(service, four, "exit(4)", "exit(0)") == ["passed", "failed"]


def test_command_sees_the_files_and_says_what_is_missing(service: Service) -> None:
    grader = {"kind": "command", "argv": ["sh", "-c", "cat a/b.txt solution.py"]}
    result = one(service, "x = 1", grader, files={"a/b.txt": "deep\n", "solution.py": "not this"})
    assert (result["verdict"], result["stdout"]) == ("passed", "deep\nx = 1")
    missing = one(service, "x = 1", {"kind": "command", "argv": ["no-such-program"]})
    assert (missing["verdict"], missing["message"]) == (
        "runtime_error",
        "the command was not found",
    )


# ---------------------------------------------------------------- limits


def test_limits_of_a_submission_count_for_it_alone(service: Service) -> None:
    spin = "import time\nwhile time.process_time() < 0.6: pass"
    fork = "import os, time\nfor _ in range(12):\n    if os.fork() == 0:\n        time.sleep(9)"
    fill = "open('big', 'wb').write(bytes(3 << 20))"
    hold = "x = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"
    items: list[dict[str, Any]] = [
        {"completion": spin, "limits": {"cpu_seconds": 0.2}},
        {"completion": spin},
        {"completion": fork, "limits": {"processes": 4}},
        {"completion": fill, "limits": {"disk_mb": 1}},
        {"completion": fill},
        {"completion": hold, "limits": {"memory_mb": 100}},
        {"completion": hold},
    ]
    results = judge(service, *items, grader=EXEC)
    assert [result["verdict"] for result in results] == [
        "timeout",
        "passed",
        "runtime_error",
        "runtime_error",
        "passed",
        "memory_limit",
        "passed",
    ]


NAP = "import time\ndef f(seconds):\n    time.sleep(seconds)\n    return seconds"
NAPS = "lambda: __import__('time').sleep(60)"
FAILS = {"failed", "runtime_error", "timeout", "early_exit"}
LINES = """
import os, stat, time
def f(seconds):
    for number in range(3, 1024):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                channel = number
        except OSError: pass
    while True:
        {deed}
        time.sleep(0.02)
"""

# Questions, the answers to which it leaves unread until nobody can send it more.
FLOOD = """
        for number in range(30_000): os.write(channel, b'["q",%d,"",["t"],{"k":1}]\\n' % number)
        while True:
            os.write(channel, b'["q",0,"",["t"],{"k":1}]\\n')
            time.sleep(0.02)
"""


@pytest.mark.parametrize(
    ("source", "test", "expected"),
    [
        # Longer than the limit, but neither the tests nor the submission.
        (NAP, "import time\ntime.sleep(0.6)\nassert f(0.6)", {"passed"}),
        (NAP, "f(60)", {"timeout"}),
        (NAP, "while True: f(0.2)", {"timeout"}),
        (NAP, "import time\ntime.sleep(60)", {"timeout"}),
        (NAP, "import time\nwhile True:\n    f(0)\n    time.sleep(0.2)", {"timeout"}),
        (
            NAP,
            f"import threading\nthreading.Thread(target={NAPS}).start()\nassert f(0.1)",
            {"passed"},
        ),
        # Whose turn it is can't be forged.
        (LINES.format(deed="os.write(channel, b'[1]\\n')") + "f(1)", "f(1)", FAILS),
        (LINES.format(deed="os.write(channel, b'[1]\\n'); break") + "f(1)", "f(1)", FAILS),
        (LINES.format(deed="os.write(channel, b'[1]\\n')"), "f(1)", FAILS),
        (LINES.format(deed="os.write(channel, b'!\\n')"), "f(1)", FAILS),
        (LINES.format(deed="os.closerange(3, 1024)"), "f(1)", FAILS),
        # A room that no longer listens, or is no longer listened to, waits for nobody.
        (LINES.format(deed=FLOOD), "f(1)", FAILS | {"timeout"}),
        *(
            (LINES.format(deed=f"os.write(channel, b'{last}\\n[1]\\n')") + "f(1)", "f(1)", FAILS)
            for last in ('["exit","load",0]', '["syntax","",""]', '["raised","load","","","",[]]')
        ),
    ],
)
def test_idle_time_counts_for_whose_turn_it_is(
    service: Service, source: str, test: str, expected: set[str]
) -> None:
    grader = {"kind": "asserts", "tests": [test]}
    assert one(service, source, grader, limits={"wall_seconds": 1})["verdict"] in expected


def test_what_is_cut_says_so(service: Service) -> None:
    source = "import sys\nprint('o' * 5000)\nprint('e' * 5000, file=sys.stderr)"
    whole, cut = judge(
        service,
        {"completion": source},
        {"completion": source, "limits": {"output_kb": 1}},
        grader=EXEC,
    )
    assert (whole["truncated"], len(whole["stdout"]), len(whole["stderr"])) == (False, 5001, 5001)
    assert (cut["truncated"], len(cut["stdout"]), len(cut["stderr"])) == (True, 1024, 1024)


def test_an_answer_keeps_a_bounded_amount_of_output(service: Service) -> None:
    limits = {"output_kb": 16_384}
    much = {"completion": "print('o' * 12_000_000)", "limits": limits}
    results = judge(service, much, much, much, {"completion": "print(1)"}, grader=EXEC)
    assert [each["verdict"] for each in results] == ["passed"] * 4
    *first, last = results
    sizes = sorted((len(each["stdout"]), each["truncated"]) for each in first)
    assert sizes == [(0, True), (12_000_001, False), (12_000_001, False)]
    assert (last["stdout"], last["truncated"]) == ("1\n", False)
