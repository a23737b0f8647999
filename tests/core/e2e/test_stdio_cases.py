"""Cases of `stdio`: accepted outputs, letter case, tolerances, arguments, files, and output from a file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import Service
from judging import judge


def grader(case: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "stdio", "cases": [{"stdin": "", **case}], **more}


ECHO = "import sys\nprint(*sys.argv[1:])"
WRITES = "open('out.txt', 'w').write('5\\n')"
FILE = {"stdout": "5", "output_file": "out.txt"}
ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("print('Yes')", grader({"stdout": "YES\n"}, ignore_case=True), "passed"),
    ("print('Yes')", grader({"stdout": "YES\n"}), "failed"),
    ("print(2, 1)", grader({"stdout": ["1 2", "2 1"]}), "passed"),
    ("print(2, 2)", grader({"stdout": ["1 2", "2 1"]}), "failed"),
    ("print(1000500.25)", grader({"stdout": "1000000.25"}, tolerance={"absolute": 1e-3}), "failed"),
    (
        "print(1000000.2505)",
        grader({"stdout": "1000000.25"}, tolerance={"absolute": 1e-3}),
        "passed",
    ),
    ("print(0.0000001)", grader({"stdout": "0.0000004"}, tolerance={"relative": 1e-5}), "failed"),
    ("print(100.01)", grader({"stdout": "100"}, tolerance={"relative": 1e-3}), "passed"),
    ("print('1\\xa02')", grader({"stdout": "1 2"}), "failed"),
    (ECHO, grader({"stdout": "-n a b", "argv": ["-n", "a b"]}), "passed"),
    (
        "print(open('in/a.txt').read())",
        grader({"stdout": "7", "files": {"in/a.txt": "7"}}),
        "passed",
    ),
    (WRITES, grader(FILE), "passed"),
    (f"{WRITES}\nprint(4)", grader(FILE), "passed"),
    (f"{WRITES}\nimport os\nos.chdir('/tmp')", grader(FILE), "passed"),
    (f"{WRITES}\nimport os\nos._exit(0)", grader(FILE), "passed"),
    ("print(5)", grader(FILE), "failed"),
    ("open('out.txt', 'w').write('4')", grader(FILE), "failed"),
    (f"{WRITES}\n1 / 0", grader(FILE), "runtime_error"),
    (f"{WRITES}\nimport os\nos.kill(os.getpid(), 9)", grader(FILE), "runtime_error"),
    ("import os\nos.mkfifo('out.txt')", grader(FILE), "failed"),
    ("import os\nos.mkdir('out.txt')", grader(FILE), "failed"),
    ("import os\nos.symlink('/dev/zero', 'out.txt')", grader(FILE), "failed"),
    ("f = open('out.txt', 'w')\nf.truncate(1 << 40)", grader(FILE), "output_limit"),
    ("def f(:", grader(FILE), "syntax_error"),
    ("while True: pass", grader(FILE), "timeout"),
    ("print(open('a').read())", grader({**FILE, "files": {"a": "1", "out.txt": "5"}}), "passed"),
]


def test_cases_of_python_programs(service: Service) -> None:
    items = [{"completion": source, "grader": each} for source, each, _ in ROWS]
    results = judge(service, *items, limits={"cpu_seconds": 2})
    for (source, asked, verdict), result in zip(ROWS, results, strict=True):
        assert result["verdict"] == verdict, (source, asked, result)


def test_what_is_said_about_a_file_with_the_output(service: Service) -> None:
    case = {"stdout": ["5", "6"], "output_file": "out.txt"}
    items = [
        {"completion": source, "grader": grader(case, reveal=True)}
        for source in ("print(5)", "open('out.txt', 'w').write('4')", WRITES)
    ]
    missing, wrong, right = judge(service, *items)
    assert missing["message"] == "the program left no file out.txt"
    assert wrong["message"] == "token 1 (line 1) differs: got '4', expected '5'"
    assert (wrong["stdout"], right["stdout"]) == ("4", "5\n")


@pytest.mark.parametrize("language", ["c", "bash", "javascript"])
def test_cases_of_other_languages(service: Service, language: str) -> None:
    """The program prints its arguments and its input file; it writes its input to out.txt."""
    source = {
        "c": '#include <stdio.h>\nint main(int n, char **v) {\n  FILE *o = fopen("out.txt", "w"), '
        '*i = fopen("in.txt", "r");\n  int c;\n  printf("%s ", v[1]);\n  while ((c = getc(i)) != EOF) '
        "putchar(c);\n  while ((c = getchar()) != EOF) putc(c, o);\n  return 0;\n}",
        "bash": 'printf "%s " "$1"\ncat in.txt\ncat > out.txt',
        "javascript": 'const fs = require("fs");\nprocess.stdout.write(process.argv[2] + " " + '
        'fs.readFileSync("in.txt"));\nfs.writeFileSync("out.txt", fs.readFileSync(0));',
    }[language]
    case = {"stdin": "9", "argv": ["a'b"], "files": {"in.txt": "7"}}
    graders = [
        grader({**case, "stdout": "a'b 7"}),
        grader({**case, "stdout": "a'b 8"}),
        grader({**case, "stdout": "9", "output_file": "out.txt"}),
        grader({**case, "stdout": "9", "output_file": "other.txt"}),
    ]
    items = [{"completion": source, "grader": each, "language": language} for each in graders]
    found = [each["verdict"] for each in judge(service, *items)]
    assert found == ["passed", "failed", "passed", "failed"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    (grader({"stdout": "", "files": {"../a": ""}}), "cases.0.files: '../a' leads out"),
    (
        grader({"stdout": "", "output_file": "/etc/passwd"}),
        "cases.0.output_file: '/etc/passwd' is not",
    ),
    (grader({"stdout": "", "argv": ["\0"]}), "cases.0.argv: "),
    (grader({"stdout": "", "argv": ["\ud800"]}), "cases.0.argv: "),
    (grader({"stdout": "", "argv": ["x" * 100_001]}), "cases.0.argv: "),
    (grader({"stdout": []}), "cases.0.stdout: "),
    (grader({"stdout": 5}), "cases.0.stdout: "),
    (grader({"stdout": ""}, tolerance=-1), "tolerance: Input should be greater"),
    (
        grader({"stdout": ""}, tolerance={"absolut": 1}),
        "tolerance: Input should be a valid number; ",
    ),
]


def test_what_no_sandbox_takes_is_refused(service: Service) -> None:
    for asked, message in REFUSED:
        with service.client() as client:
            item = {"completion": "print()", "grader": asked}
            answer = client.post("/reward", content=json.dumps({"submissions": [item]}))
        assert answer.status_code == 422, (asked, answer.text)
        found = answer.json()["error"]["message"].removeprefix("submissions.0.grader.")
        assert found.startswith(message), found
