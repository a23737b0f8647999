"""SandboxFusion's /run_code and /run_jupyter with real sandboxes: clients' requests, field by field."""

from __future__ import annotations

import base64
import json
import shutil
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from compat_requests import VERL, post, run_code
from harness import Service, running_service
from visible_folder import visible_python

from proctor_service.settings import Settings
from proctor_service.settings.languages import LANGUAGES, SANDBOX_PATH, language_named


@pytest.fixture(scope="module")
def with_pytest() -> Iterator[httpx.Client]:
    """Of a service whose interpreter, that of the tests, has pytest: a system's own may lack it."""
    with (
        visible_python() as python,
        running_service(Settings(sandbox_python=python), judge=None) as running,
        running.client() as client,
    ):
        yield client


def test_a_program_reads_and_prints(client: httpx.Client) -> None:
    ran = run_code(client, "print(int(input()) * 2)", stdin="21\n")
    assert ran["status"] == "Success"
    assert (ran["run_result"]["return_code"], ran["run_result"]["stdout"]) == (0, "42\n")


@pytest.mark.parametrize(
    ("code", "return_code", "stderr"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("raise ValueError('no')", 1, "ValueError: no"),
        ("def f(:", 1, "SyntaxError"),
        ("import os; os.kill(os.getpid(), 11)", -11, ""),
        ("import os; os._exit(0)", 0, ""),
        ("'\ud800'.encode()", 1, "UnicodeEncodeError"),
        ("x = '\0'", 1, "null"),
        ("class A: pass\nimport pickle\npickle.loads(pickle.dumps(A()))", 0, ""),
    ],
)
def test_how_a_program_ends(client: httpx.Client, code: str, return_code: int, stderr: str) -> None:
    answer = client.post("/compat/run_code", content=json.dumps(VERL | {"code": code}))
    ran = answer.json()
    assert ran["status"] == ("Failed" if return_code else "Success")
    assert ran["run_result"]["status"] == "Finished"
    assert ran["run_result"]["return_code"] == return_code
    assert stderr in ran["run_result"]["stderr"]


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(60)"])
def test_a_timeout_has_no_return_code(client: httpx.Client, code: str) -> None:
    ran = run_code(client, f"print('before', flush=True)\n{code}", run_timeout=0.5)
    assert ran["status"] == "Failed"
    assert ran["run_result"]["status"] == "TimeLimitExceeded"
    assert ran["run_result"]["return_code"] is None
    assert ran["run_result"]["stdout"] == "before\n"


def test_memory_is_limited_as_asked(client: httpx.Client) -> None:
    code = "x = bytearray(300 << 20)\nprint(len(x))"
    assert run_code(client, code, memory_limit_MB=600)["status"] == "Success"
    ran = run_code(client, code, memory_limit_MB=100)
    assert ran["status"] == "Failed"
    assert ran["run_result"]["status"] == "Finished"
    assert ran["run_result"]["return_code"] not in (0, None)


def test_much_output_is_no_timeout(client: httpx.Client) -> None:
    ran = run_code(client, "print('x' * 3_000_000)\nimport sys\nsys.stderr.write('e' * 200_000)")
    assert ran["status"] == "Success"
    assert len(ran["run_result"]["stdout"]) == 3_000_001
    assert len(ran["run_result"]["stderr"]) == 200_000


def test_much_input_is_read(client: httpx.Client) -> None:
    ran = run_code(client, "import sys; print(len(sys.stdin.read()))", stdin="y" * 2_000_000)
    assert ran["run_result"]["stdout"] == "2000000\n"


def test_files_go_in_and_come_out(client: httpx.Client) -> None:
    data = bytes(range(256))
    code = "open('out/x', 'wb').write(open('in/x', 'rb').read()[::-1])"
    ran = run_code(
        client,
        f"import os; os.mkdir('out'); os.symlink('/etc', 'etc')\n{code}",
        files={"in/x": base64.b64encode(data).decode(), "nothing": None},
        fetch_files=["out/x", "missing", "out", "etc/shadow"],
    )
    assert ran["status"] == "Success", ran
    assert {path: base64.b64decode(text) for path, text in ran["files"].items()} == {
        "out/x": data[::-1]
    }


def test_files_that_lead_out_of_the_directory_stay_in_the_sandbox(client: httpx.Client) -> None:
    files = {"../../../../tmp/compat-escaped": base64.b64encode(b"x").decode()}
    answer = client.post("/compat/run_code", json=VERL | {"code": "1", "files": files})
    assert answer.status_code in (200, 422)
    assert not Path("/tmp/compat-escaped").exists()


HELLO = {
    "bash": "read x; echo $((x * 2))",
    "nodejs": "console.log(2 * Number(require('fs').readFileSync(0)))",
    "c": '#include <stdio.h>\nint main() { int x; scanf("%d", &x); printf("%d\\n", 2 * x); }',
    "cpp": "#include <iostream>\nint main() { int x; std::cin >> x; std::cout << 2 * x << '\\n'; }",
    "go": 'package main\nimport "fmt"\nfunc main() { var x int; fmt.Scan(&x); fmt.Println(2 * x) }',
    "go_test": 'package main\nimport ("fmt"; "testing")\nfunc TestIt(t *testing.T)'
    " { var x int; fmt.Scan(&x); if x != 0 { t.Fatal(x) } }",
    "java": "import java.util.*;\npublic class Main { public static void main(String[] a) {"
    " System.out.println(2 * new Scanner(System.in).nextInt()); } }",
    "rust": "fn main() { let mut s = String::new(); std::io::stdin().read_line(&mut s).unwrap();"
    ' println!("{}", 2 * s.trim().parse::<i32>().unwrap()); }',
    "typescript": "declare function require(name: string): any;\n"
    "const x: number = Number(require('fs').readFileSync(0));\nconsole.log(2 * x);",
    "csharp": "class P { static void Main() {"
    " System.Console.WriteLine(2 * int.Parse(System.Console.ReadLine())); } }",
    "ruby": "puts 2 * gets.to_i",
    "php": "<?php echo 2 * (int) fgets(STDIN), PHP_EOL;",
    "perl": 'print 2 * <STDIN>, "\\n";',
    "lua": "print(2 * io.read('n'))",
    "R": "x <- scan(file('stdin'), quiet = TRUE)\ncat(2 * x, fill = TRUE)",
    "kotlin": "fun main() { println(2 * readLine()!!.toInt()) }",
    "scala": "object A { def main(a: Array[String]): Unit = println(2 * scala.io.StdIn.readInt()) }",
}


@pytest.mark.parametrize("language", HELLO)
def test_other_languages_run_where_they_are_installed(client: httpx.Client, language: str) -> None:
    ran = run_code(client, HELLO[language], language=language, stdin="21\n", run_timeout=20)
    needs = LANGUAGES[language_named(language, LANGUAGES)].needs
    if all(shutil.which(need, path=SANDBOX_PATH) for need in needs):
        assert ran["status"] == "Success", ran
        assert ran["run_result"]["stdout"].startswith("ok" if language == "go_test" else "42\n")
    else:
        assert ran["status"] == "SandboxError"
        assert f"no {language!r} here" in ran["message"]


def test_java_in_a_package_runs(client: httpx.Client) -> None:
    source = f"package x.y;\n{HELLO['java']}"
    ran = run_code(client, source, language="java", stdin="21\n", run_timeout=20)
    if shutil.which("javac", path=SANDBOX_PATH):
        assert ran["run_result"]["stdout"] == "42\n", ran
    else:
        assert ran["status"] == "SandboxError"


def test_a_compiler_complains_in_its_own_result(client: httpx.Client) -> None:
    ran = run_code(client, "int main() { return x; }", language="c")
    assert ran["status"] == "Failed"
    assert ran["compile_result"]["status"] == "Finished"
    assert ran["compile_result"]["return_code"] == 1
    assert "undeclared" in ran["compile_result"]["stderr"]
    assert ran["run_result"] is None
    ran = run_code(client, '#include "/dev/zero"', language="c", compile_timeout=0.5)
    assert ran["status"] == "Failed"
    assert ran["run_result"] is None


def test_many_at_once_are_slow_and_not_too_late(service: Service) -> None:
    code = "import time\nwhile time.process_time() < 0.25: pass\nprint('done')"
    with service.client() as client, ThreadPoolExecutor(12) as pool:
        bodies = [f"{code}  # {number}" for number in range(12)]
        said = list(pool.map(lambda each: run_code(client, each, run_timeout=1), bodies))
    assert [ran["run_result"]["stdout"] for ran in said] == ["done\n"] * 12


def test_what_verl_wraps_around_a_function_runs(client: httpx.Client) -> None:
    code = textwrap.dedent("""
        import sys, json
        class Solution:
            def add(self, a, b):
                return [a, b]
        def _execute():
            args = [json.loads(line) for line in sys.stdin.read().split("\\n")]
            return getattr(globals()["Solution"](), "add")(*args)
        if __name__ == "__main__":
            print(json.dumps(_execute()))
    """)
    assert run_code(client, code, stdin='1\n"b"')["run_result"]["stdout"] == '[1, "b"]\n'


def test_what_tinker_cookbook_sends_runs(client: httpx.Client) -> None:
    files = {
        "test_cases.txt": json.dumps({"input_output": "{}"}),
        "code.py": "def f(): return 1",
        "testing_util.py": "def run_test(code): return 'f' in code",
    }
    encoded = {path: base64.b64encode(text.encode()).decode() for path, text in files.items()}
    code = textwrap.dedent("""
        import json, multiprocessing, sys
        from testing_util import run_test
        json.load(open("test_cases.txt"))
        def work(found): found.append(run_test(open("code.py").read()))
        found = multiprocessing.Manager().list()
        process = multiprocessing.Process(target=work, args=(found,))
        process.start(); process.join(5)
        sys.exit(0 if found[0] else 1)
    """)
    body = {"code": code, "language": "python", "run_timeout": 12, "files": encoded}
    ran = post(client, "run_code", body)
    assert ran["status"] == "Success", ran


def test_cells_share_an_interpreter_and_report_one_by_one(client: httpx.Client) -> None:
    cells = [
        "a = 'hello'",
        "a",
        "print(a)",
        "import sys; sys.stderr.write('stderr message')",
        "raise RuntimeError('error message')",
        "import os; os.system('echo from a child')",
        "display(1); 2",
        "def f():\n    return a\nf();",
        "open('made', 'w').write(f()); None",
        "x = (",
        "sys.exit(1)",
        "print('still here', os.read(0, 1))",
    ]
    body = {"cells": cells, "cell_timeout": 0, "total_timeout": 45, "kernel": "python3"}
    said = post(client, "run_jupyter", body | {"files": {}, "fetch_files": ["made"]})
    assert set(said) == {"status", "message", "driver", "cells", "executor_pod_name", "files"}
    assert (said["status"], said["driver"]["status"]) == ("Success", "Finished")
    got = said["cells"]
    assert all(set(cell) == {"stdout", "stderr", "display", "error"} for cell in got)
    assert [cell["stdout"] for cell in got] == [
        "", "", "hello\n", "", "", "from a child\n", "", "", "", "", "", "still here b''\n",
    ]  # fmt: skip
    assert got[1]["display"] == [{"text/plain": "'hello'"}]
    assert got[3]["stderr"] == "stderr message"
    [error] = got[4]["error"]
    assert (error["ename"], error["evalue"]) == ("RuntimeError", "error message")
    assert "<cell 4>" in "".join(error["traceback"])
    assert got[6]["display"] == [{"text/plain": "1"}, {"text/plain": "2"}]
    assert got[7]["display"] == []
    assert [got[index]["error"][0]["ename"] for index in (9, 10)] == ["SyntaxError", "SystemExit"]
    assert base64.b64decode(said["files"]["made"]) == b"hello"


@pytest.mark.parametrize(
    ("cells", "limits", "status", "done"),
    [
        (["1", "while True: pass", "3"], {"total_timeout": 0.6}, "TimeLimitExceeded", 1),
        (["1", "import os; os._exit(0)", "3"], {}, "Finished", 1),
        (["1", "x = bytearray(1 << 30)", "3"], {"memory_limit_MB": 2000}, "Finished", 3),
        (["import os; os.fork(); 7"], {}, "Finished", 1),
        (["print('é' * 3_000_000)", "2"], {}, "Finished", 2),
    ],
)
def test_cells_that_end_badly(
    client: httpx.Client, cells: list[str], limits: dict[str, Any], status: str, done: int
) -> None:
    said = post(client, "run_jupyter", {"cells": cells, **limits})
    assert said["driver"]["status"] == status
    assert len(said["cells"]) == done
    assert said["status"] == ("Success" if done == len(cells) else "Failed")


def test_a_cell_has_a_timeout_of_its_own(client: httpx.Client) -> None:
    cells = ["while True: pass", "import time; time.sleep(60)", "'after'"]
    said = post(client, "run_jupyter", {"cells": cells, "cell_timeout": 0.3})
    assert [cell["error"][:1] and cell["error"][0]["ename"] for cell in said["cells"]] == [
        "TimeoutError", "TimeoutError", [],
    ]  # fmt: skip


def test_forged_reports_are_only_output(client: httpx.Client) -> None:
    forged = json.dumps({"stdout": 1, "display": [[]], "value": {}, "error": None})
    deep = "[" * 5_000
    code = f"import os\nfor fd in range(3, 20):\n    try: os.write(fd, {forged + chr(10) + deep!r}.encode())\n    except OSError: pass\nos._exit(0)"  # noqa: E501
    said = post(client, "run_jupyter", {"cells": [code, "2"], "total_timeout": 5})
    assert said["status"] == "Failed"
    assert said["cells"] == []


PYTEST_RUNS = [
    ("def test_a():\n    assert 1 + 1 == 2", 0, "1 passed"),
    ("def test_a():\n    assert 1 + 1 == 3", 1, "1 failed"),
    ("def f(x):\n    return x\n\nclass TestF:\n    def test_it(self):\n        assert f(1) == 1",
     0, "1 passed"),
    ("import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(1, 1)",
     0, "1 passed"),
    ("import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n):\n    assert n", 0, "2 passed"),
    ("x = 1", 5, "no tests ran"),
    ("def test_a(:", 2, "SyntaxError"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "return_code", "printed"), PYTEST_RUNS)
def test_pytest_runs_the_test_functions(
    with_pytest: httpx.Client, code: str, return_code: int, printed: str
) -> None:
    said = run_code(with_pytest, code, language="pytest")
    assert said["status"] == ("Failed" if return_code else "Success")
    assert said["compile_result"] is None
    assert said["run_result"]["return_code"] == return_code
    assert printed in said["run_result"]["stdout"]


_TESTS_BY_TOOL = {
    "jest": (
        "const {{ twice }} = require('./twice');\ntest('four', () => {{ expect(twice(4)).toBe({}); }});",
        {"twice.js": b"module.exports = { twice: (n) => 2 * n };"},
        "solution.test.js",
    ),
    "junit": (
        "import org.junit.jupiter.api.*;\npublic class FourTest {{ @Test void four() {{"
        " Assertions.assertEquals({}, Twice.of(4)); }} }}",
        {"Twice.java": b"class Twice { static int of(int n) { return 2 * n; } }"},
        "four()",
    ),
}


@pytest.mark.parametrize("language", _TESTS_BY_TOOL)
def test_tests_run_by_their_tool(client: httpx.Client, language: str) -> None:
    code, files, printed = _TESTS_BY_TOOL[language]
    encoded = {path: base64.b64encode(data).decode() for path, data in files.items()}
    for expected, status in ((8, "Success"), (9, "Failed")):
        source = code.format(expected)
        ran = run_code(
            client, source, language=language, files=encoded, run_timeout=30, compile_timeout=30
        )
        if ran["status"] == "SandboxError":
            assert f"no {language}" in ran["message"].replace("'", "")
            continue
        assert ran["status"] == status, ran
        assert printed in ran["run_result"]["stdout"] + ran["run_result"]["stderr"]


def test_pytest_finds_the_files_beside_the_tests(with_pytest: httpx.Client) -> None:
    files = {"helper.py": base64.b64encode(b"n = 7").decode()}
    code = "from helper import n\ndef test_n():\n    assert n == 7"
    assert run_code(with_pytest, code, language="pytest", files=files)["status"] == "Success"


def test_pytest_is_held_to_its_time(with_pytest: httpx.Client) -> None:
    said = run_code(
        with_pytest, "def test_a():\n    while 1: pass", language="pytest", run_timeout=2
    )
    assert said["run_result"]["status"] == "TimeLimitExceeded"
