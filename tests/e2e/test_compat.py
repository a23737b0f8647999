"""The compatible routes with real sandboxes: clients' requests, field by field, and what they make of it."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import signal
import textwrap
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from compat_clients import asking
from harness import Service, running_service
from shared_data import shared_data

from proctor_service.sandbox.local import LocalBackend
from proctor_service.settings import Settings
from proctor_service.settings.languages import LANGUAGES, SANDBOX_PATH

VERL: dict[str, Any] = {
    "compile_timeout": 10,
    "run_timeout": 10,
    "code": "",
    "stdin": None,
    "memory_limit_MB": 1024,
    "language": "python",
    "files": {},
    "fetch_files": [],
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running_service(Settings(), judge=None) as running:
        yield running


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        yield opened


def post(client: httpx.Client, path: str, body: Any) -> Any:
    answer = client.post(f"/compat/{path}", json=body, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()


def run_code(client: httpx.Client, code: str, **fields: Any) -> dict[str, Any]:
    """What /run_code says; the parts that no client can do without are checked on the way."""
    ran: dict[str, Any] = post(client, "run_code", VERL | {"code": code} | fields)
    for result in (ran["compile_result"], ran["run_result"]):
        if result is not None:
            assert isinstance(result["stdout"], str)
            assert isinstance(result["stderr"], str)
    return ran


# ---------------------------------------------------------------- SandboxFusion


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
    "java": "import java.util.*;\npublic class Main { public static void main(String[] a) {"
    " System.out.println(2 * new Scanner(System.in).nextInt()); } }",
    "rust": "fn main() { let mut s = String::new(); std::io::stdin().read_line(&mut s).unwrap();"
    ' println!("{}", 2 * s.trim().parse::<i32>().unwrap()); }',
}


@pytest.mark.parametrize("language", HELLO)
def test_other_languages_run_where_they_are_installed(client: httpx.Client, language: str) -> None:
    ran = run_code(client, HELLO[language], language=language, stdin="21\n", run_timeout=20)
    needs = LANGUAGES["javascript" if language == "nodejs" else language].needs
    if all(shutil.which(need, path=SANDBOX_PATH) for need in needs):
        assert ran["status"] == "Success", ran
        assert ran["run_result"]["stdout"] == "42\n"
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


def submit(completion: str, *cases: tuple[str, str], **config: Any) -> dict[str, Any]:
    test = [{"input": {"stdin": i}, "output": {"stdout": o}} for i, o in cases]
    data = {"id": 7, "content": "", "labels": {}, "test": test}
    fields = {"dataset_type": "CommonOJDataset", "language": "python", "provided_data": data}
    return {"dataset": "any", "id": 7, "completion": completion, "config": fields | config}


def test_submit_judges_case_by_case(client: httpx.Client) -> None:
    cases = (("1", "2"), ("2", "4"), ("5", "10"))
    right = post(client, "submit", submit("```python\nprint(2 * int(input()))\n```", *cases))
    assert (right["id"], right["accepted"]) == (7, True)
    assert set(right) == {
        "id", "accepted", "extracted_code", "full_code", "test_code", "tests", "extracted_type",
        "extra",
    }  # fmt: skip
    assert all(set(test) == {"passed", "exec_info", "test_info"} for test in right["tests"])
    assert right["extracted_code"] == "print(2 * int(input()))"
    assert [test["passed"] for test in right["tests"]] == [True] * 3
    assert right["tests"][2]["exec_info"]["run_result"]["stdout"] == "10\n"
    wrong = submit("```python\nprint(int(input()) ** 2 or 1)\n```", *cases)
    said = post(client, "submit", wrong)
    assert said["accepted"] is False
    assert [test["passed"] for test in said["tests"]] == [False]
    said = post(client, "submit", submit("No idea.", *cases))
    assert (said["accepted"], said["tests"], said["extracted_type"]) == (False, [], "empty")
    late = submit("```python\nwhile 1: pass\n```", *cases, run_timeout=0.5)
    [test] = post(client, "submit", late)["tests"]
    assert test["exec_info"]["run_result"]["status"] == "TimeLimitExceeded"
    assert test["exec_info"]["run_result"]["return_code"] is None


def test_submit_compiles(client: httpx.Client) -> None:
    broken = submit("```cpp\nint main() { return x; }\n```", ("1", "2"), language="cpp")
    [test] = post(client, "submit", broken)["tests"]
    assert test["exec_info"]["run_result"] is None
    assert test["exec_info"]["compile_result"]["return_code"] == 1


@pytest.mark.parametrize(
    "code",
    ["import os\nos._exit(0)", "raise SystemExit(0)", "print(open('/proc/self/cmdline').read())"],
)
def test_submit_rewards_nobody_for_leaving(client: httpx.Client, code: str) -> None:
    assert not post(client, "submit", submit(f"```python\n{code}\n```", ("1", "2")))["accepted"]


def test_a_large_integer_that_is_almost_right_is_wrong(client: httpx.Client) -> None:
    def accepted(printed: str, expected: str) -> bool:
        code = f"```python\nprint({printed!r})\n```"
        answer: dict[str, Any] = post(client, "submit", submit(code, ("", expected)))
        return bool(answer["accepted"])

    assert not accepted("123456789012", "123456789013")
    assert not accepted("0.5 1000000008", "0.5 1000000007")
    assert not accepted("1000000007.5 0.5", "1000000007 0.5")
    assert accepted("0.33333333", "0.333333")
    assert accepted("0.33333333 1000000007", "0.333333 1000000007")
    assert accepted("1.00001e5", "1e5")


@pytest.mark.parametrize(
    "completion",
    [
        "print(2 * int(input()))",
        "```python\nprint(2 * int(input()))\n```\nRun it:\n```\n$ echo 1 | python a.py\n2\n```",
        "```python\nprint(1)\n```\nNo, better:\n```python\nprint(2 * int(input()))\n```",
        "<answer>\nprint(2 * int(input()))\n</answer>",
    ],
)
def test_code_is_taken_out_as_reward_does(client: httpx.Client, completion: str) -> None:
    assert post(client, "submit", submit(completion, ("4", "8")))["accepted"] is True
    label = json.dumps([{"input": "4", "output": "8"}])
    asked = {"prompt": "", "response": completion, "label": label}
    assert post(client, "remote_rm", asked) == 1.0
    tests = ["assert callable(print)"]
    one = post(client, "reward", {"prompt": "", "response": completion, "tests": tests})
    assert one["extracted_code"] == "print(2 * int(input()))"


def test_what_is_no_code_is_none_on_every_route(client: httpx.Client) -> None:
    prose = "Sorry, I cannot."
    assert post(client, "submit", submit(prose, ("", "")))["accepted"] is False
    label = json.dumps([{"input": "", "output": ""}])
    assert post(client, "remote_rm", {"response": prose, "label": label}) == 0.0
    assert post(client, "reward", {"response": prose, "tests": ["assert True"]})["reward"] == 0.0


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
    client: httpx.Client, code: str, return_code: int, printed: str
) -> None:
    said = run_code(client, code, language="pytest")
    assert said["status"] == ("Failed" if return_code else "Success")
    assert said["compile_result"] is None
    assert said["run_result"]["return_code"] == return_code
    assert printed in said["run_result"]["stdout"]


def test_pytest_finds_the_files_beside_the_tests(client: httpx.Client) -> None:
    files = {"helper.py": base64.b64encode(b"n = 7").decode()}
    code = "from helper import n\ndef test_n():\n    assert n == 7"
    assert run_code(client, code, language="pytest", files=files)["status"] == "Success"


def test_pytest_is_held_to_its_time(client: httpx.Client) -> None:
    said = run_code(client, "def test_a():\n    while 1: pass", language="pytest", run_timeout=2)
    assert said["run_result"]["status"] == "TimeLimitExceeded"


# ---------------------------------------------------------------- open-r1

TEMPLATE = """
    import subprocess
    import json

    def evaluate_code(code, test_cases):
        passed = 0
        total = len(test_cases)
        exec_timeout = 5
        for case in test_cases:
            process = subprocess.run(
                ["python3", "-c", code],
                input=case["input"],
                text=True,
                capture_output=True,
                timeout=exec_timeout
            )
            if process.returncode != 0:
                continue
            if process.stdout.strip() == case["output"].strip():
                passed += 1
        return (passed / total)

    code_snippet = {code}
    test_cases = json.loads({test_cases})

    evaluate_code(code_snippet, test_cases)
    """


def script(code: str) -> str:
    """As open-r1 makes it: indented by four spaces, code and tests as literals."""
    cases = [{"input": "1", "output": "2"}, {"input": "3", "output": "6"}]
    literal = json.dumps(json.dumps(cases))
    return TEMPLATE.replace("{code}", json.dumps(code)).replace("{test_cases}", literal)


def rewards(answer: list[dict[str, Any]]) -> list[float | None]:
    """What open-r1's client makes of it."""
    found: list[float | None] = []
    for each in answer:
        execution = each["execution"]
        try:
            main = [r["text"] for r in execution["results"] if r["is_main_result"]]
            found.append(float(main[0]))
        except (TypeError, IndexError):
            found.append(None)
    return found


def test_open_r1_gets_the_value_of_the_last_expression(client: httpx.Client) -> None:
    scripts = [
        script("print(2 * int(input()))"),
        script("print(2)"),
        script("raise SystemExit(0)"),
        "print('noise')\n1.0",
        "while True: pass",
        "import os; os._exit(0)",
        "1 / 0",
    ]
    body = {"scripts": scripts, "languages": ["python"] * 7, "timeout": 3, "request_timeout": 28}
    answer = post(client, "execute_batch", body)
    assert rewards(answer) == [1.0, 0.5, 0.0, 1.0, 0.0, 0.0, None]
    assert answer[3]["execution"]["logs"] == {"stdout": ["noise\n"], "stderr": []}
    for each in answer:
        assert set(each) == {"execution", "text", "exception_str"}
        assert set(each["execution"]) == {"results", "logs", "error", "execution_count"}
    assert set(answer[6]["execution"]["error"]) == {"name", "value", "traceback"}
    assert [each["execution"]["error"] and each["execution"]["error"]["name"] for each in answer] == [
        None, None, None, None, "TimeoutError", "SystemExit", "ZeroDivisionError",
    ]  # fmt: skip
    assert all(each["exception_str"] is None for each in answer)


def test_scripts_that_are_not_done_in_time_are_null_and_the_others_keep_their_values(
    client: httpx.Client,
) -> None:
    body = {"scripts": ["0.5", "while True: pass"], "languages": ["python"] * 2, "timeout": 60}
    done, cut = post(client, "execute_batch?hold_seconds=8", body)
    assert (done["text"], done["exception_str"]) == ("0.5", None)
    assert (cut["execution"], cut["text"]) == (None, "nan")
    assert cut["exception_str"] == "overloaded: it is not done yet"


def test_the_morph_router_gets_a_text(client: httpx.Client) -> None:
    scripts = {
        "    passed = 3\n    passed / 4\n": "0.75",
        "print(0.5)": "0.5\n",
        "print('debug')\n0.25": "0.25",
        "print(1.0)\n1 / 0": "",
        "x = 1": "",
        "raise SystemExit": "",
        "import os\nos._exit(0)": "0.0",
        "while True: pass": "0.0",
    }
    body = {"scripts": list(scripts), "languages": ["python"] * len(scripts), "timeout": 1}
    found = post(client, "execute_batch", body)
    assert [each["text"] for each in found] == list(scripts.values())
    assert all(each["exception_str"] is None for each in found)


def test_open_r1_runs_other_languages(client: httpx.Client) -> None:
    body = {"scripts": ["echo hi", "exit 3"], "languages": ["bash", "bash"], "timeout": 5}
    first, second = post(client, "execute_batch", body)
    assert first["execution"]["logs"]["stdout"] == ["hi\n"]
    assert first["execution"]["error"] is None
    assert second["execution"]["error"]["value"] == "3"


# ---------------------------------------------------------------- faults of ours

SLOW = "import time\ntime.sleep(1.5)\n"
FAULTED: list[tuple[str, Any, Any]] = [
    ("run_code", VERL | {"code": f"{SLOW}print(7)"}, "7\\n"),
    ("run_jupyter", {"cells": [SLOW, "7"]}, '"7"'),
    ("execute_batch", {"scripts": [f"{SLOW}7"], "languages": ["python"], "timeout": 9}, '"7"'),
    (
        "test_program",
        {"program": f"{SLOW}def f(): return 7", "tests": ["assert f() == 7"],
         "max_execution_time": 9.0},
        '"results":[1]',
    ),
    (
        "remote_rm",
        {"prompt": "", "response": f"{SLOW}def f():\n    return 7", "label": ["assert f() == 7"]},
        "1.0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "said"), FAULTED, ids=[each[0] for each in FAULTED])
def test_a_sandbox_that_is_lost_is_not_seen(
    service: Service, path: str, body: Any, said: str
) -> None:
    backend = service.parts.backend
    assert isinstance(backend, LocalBackend)
    with asking(service, f"/compat/{path}", body) as asked:
        service.until(lambda: bool(backend.busy_slots()))
        for slot in service.call(backend.busy_slots):
            os.kill(slot, signal.SIGKILL)
        answer = asked.answer()
    assert answer.status_code == 200, answer.text
    assert said in answer.text


# ---------------------------------------------------------------- tests and code apart

DOUBLE = "def double(n):\n    return 2 * n\n"
CHEATS = {
    "exits": "raise SystemExit(0)",
    "exits in the function": "def double(n):\n    raise SystemExit(0)",
    "leaves at once": "import os\nos._exit(0)",
    "is equal to all": "class E:\n    def __eq__(self, other): return True\n"
    "    __hash__ = None\ndef double(n):\n    return E()",
    "an int that is equal": "class E(int):\n    def __eq__(self, other): return True\n"
    "    __hash__ = int.__hash__\ndef double(n):\n    return E(7)",
    "patches": "import builtins\nbuiltins.AssertionError = type('N', (BaseException,), {})\n"
    "def double(n):\n    return 0",
}
TESTS = ["assert double(2) == 4", "assert double(5) == 10"]


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_earn_nothing(client: httpx.Client, name: str) -> None:
    code = CHEATS[name]
    response = f"```python\n{code}\n```"
    said = post(client, "test_program", {"program": code, "tests": TESTS})
    assert said["results"] == [0, 0]
    item = {"prompt": "", "response": response, "tests": TESTS, "setup_code": ""}
    assert post(client, "reward", item)["reward"] == 0.0
    assert post(client, "remote_rm", {"prompt": "", "response": response, "label": TESTS}) == 0.0


def test_open_instruct_judges_each_test(client: httpx.Client) -> None:
    tests = [*TESTS, "assert double(1) == 3", "assert double(", "import time; time.sleep(9)"]
    packed = base64.b64encode(zlib.compress(pickle.dumps(tests))).decode()
    for given in (tests, json.dumps(tests), packed):
        body = {"program": DOUBLE, "tests": given, "max_execution_time": 1.0}
        said = post(client, "test_program", body)
        assert set(said) == {"results", "runtimes"}
        assert said["results"] == [1, 1, 0, 0, 0]
        assert [seconds > 0 for seconds in said["runtimes"]] == [True, True, False, False, False]
        assert said["runtimes"][2:] == [-1.0] * 3


def test_open_instruct_lets_a_program_name_what_it_likes(client: httpx.Client) -> None:
    program = f"import os, shutil, threading\n{DOUBLE}"
    assert post(client, "test_program", {"program": program, "tests": TESTS})["results"] == [1, 1]


def test_open_instruct_reads_stdin(client: httpx.Client) -> None:
    tests = [
        {"input": "1\n", "output": "2\n"},
        {"input": ["3"], "output": ["6"]},
        {"input": "1", "output": "3"},
        {"input": "1", "output": "2.0"},
    ]
    body = {"program": "print(2 * int(input()))", "tests": tests, "max_execution_time": 1.0}
    said = post(client, "test_program_stdio", body)
    assert said["results"] == [1, 1, 0, 1]
    slow = body | {"program": "while 1: pass", "max_execution_time": 0.3}
    assert post(client, "test_program_stdio", slow)["results"] == [0, 0, 0, 0]


def test_a_batch_of_skypilots(client: httpx.Client) -> None:
    right = {
        "prompt": "",
        "response": f"Sure.\n```python\n{DOUBLE}```\nThat is it.",
        "tests": ["assert double(math.floor(2.5)) == 4"],
        "setup_code": "import math",
    }
    wrong = right | {"tests": ["assert double(2) == 5"]}
    said = post(client, "batch_reward", {"items": [right, wrong]})
    assert [each["reward"] for each in said["rewards"]] == [1.0, 0.0]
    assert (said["mean_reward"], said["pass_rate"]) == (0.5, 0.5)
    assert said["rewards"][0]["extracted_code"] == DOUBLE.strip()


def corpus(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shared_data(name).read_text().splitlines()]


@pytest.mark.parametrize(("name", "rewarded"), [("hacks.jsonl", False), ("honest.jsonl", True)])
def test_hacks_earn_nothing_and_honest_oddities_do(
    service: Service, name: str, rewarded: bool
) -> None:
    entries = corpus(name)
    with service.client() as client:
        items = [
            {"prompt": "", "response": f"```python\n{entry['completion']}\n```",
             "tests": entry["problem"]["tests"], "setup_code": ""}
            for entry in entries
        ]  # fmt: skip
        batch = post(client, "batch_reward", {"items": items})["rewards"]
        programs = []
        for entry in entries:
            body = {"program": entry["completion"], "tests": entry["problem"]["tests"]}
            said = post(client, "test_program", body | {"max_execution_time": 10.0})
            programs.append(all(said["results"]))
    got = {
        entry["id"]: (reward["reward"], all_passed)
        for entry, reward, all_passed in zip(entries, batch, programs, strict=True)
    }
    other = (0.0, False) if rewarded else (1.0, True)
    assert [name for name, each in got.items() if set(each) & set(other)] == []
