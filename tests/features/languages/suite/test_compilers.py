"""Standards, macros and flags of C and C++: the default, and what a task asks for."""

from __future__ import annotations

from typing import Any

from constants import constants
from harness import Service, running_service
from judging import ask, judge, stdio

from proctor_service.settings import Settings

RANGES = """\
#include <bits/stdc++.h>
using namespace std;
int main() {
    set<int> s{1, 2};
    vector<int> v{3, 1, 2};
    ranges::sort(v);
    cout << (s.contains(2) ? v[0] : -1) << endl;
}
"""
STANDARD = '#include <cstdio>\nint main() { printf("%ld", __cplusplus); }'
C_STANDARD = '#include <stdio.h>\nint main(void) { printf("%ld", __STDC_VERSION__); return 0; }'
JUDGE = '#include <stdio.h>\n#ifdef ONLINE_JUDGE\nint main() { printf("1"); }\n#endif'
DEFINED = '#include <stdio.h>\n#ifdef LOCAL\nint main() { printf("%d %g", N, EPS); }\n#endif'
OPTIMISED = '#include <cstdio>\nint main() {\n#ifdef __OPTIMIZE__\n puts("1");\n#else\n puts("0");\n#endif\n}'
ROWS: list[tuple[str, str, dict[str, Any] | None, str]] = [
    ("cpp", RANGES, None, "1"),
    ("cpp", STANDARD, None, "202002"),
    ("cpp", STANDARD, {"standard": "gnu++17"}, "201703"),
    ("cpp", STANDARD, {"standard": "c++11"}, "201103"),
    ("c", C_STANDARD, None, "201710"),
    ("c", C_STANDARD, {"standard": "c11"}, "201112"),
    ("c", JUDGE, None, "1"),
    ("cpp", JUDGE, {"flags": ["-O0"]}, "1"),
    ("cpp", DEFINED, {"defines": ["LOCAL", "N=5", "EPS=1e-9"]}, "5 1e-09"),
    ("cpp", OPTIMISED, None, "1"),
    ("cpp", OPTIMISED, {"flags": ["-O0", "-Wall", "-g"]}, "0"),
    ("cpp", OPTIMISED, {"defines": [], "flags": ["-lm"]}, "1"),
]


def test_each_program_is_compiled_as_its_task_asks(service: Service) -> None:
    items: list[dict[str, Any]] = []
    for language, source, compiler, stdout in ROWS:
        item = {"completion": source, "language": language, "grader": stdio(("", stdout))}
        items.append(item if compiler is None else {**item, "compiler": compiler})
    for row, result in zip(ROWS, judge(service, *items), strict=True):
        assert result["verdict"] == "passed", (row, result["message"])


def test_tests_apart_are_compiled_the_same_way(service: Service) -> None:
    tests = "#include <cassert>\nint main() { assert(twice(N) == 10 && __cplusplus == 201703); }"
    item = {
        "completion": "int twice(int n) { return 2 * n; }",
        "language": "cpp",
        "grader": {"kind": "exec", "tests": tests, "reveal": True},
    }
    compiler = {"standard": "c++17", "defines": ["N=5"]}
    (result,) = judge(service, item, compiler=compiler)
    assert result["verdict"] == "passed", result["message"]
    (result,) = judge(service, {**item, "compiler": {"defines": ["N=5"]}}, compiler=compiler)
    assert result["verdict"] == "runtime_error", result["message"]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("cpp", {"standard": "gnu++98"}, "compiler.standard: no 'gnu++98' here, only: c++11, c++14"),
    ("cpp", {"standard": "c11"}, "compiler.standard: no 'c11' here, only: c++11"),
    (
        "c",
        {"standard": "c++17"},
        "compiler.standard: no 'c++17' here, only: c11, c17, gnu11, gnu17",
    ),
    ("cpp", {"flags": ["-march=native"]}, "compiler.flags.0: no '-march=native' here, only: -O0"),
    ("cpp", {"flags": ["-O2", "-std=c++17"]}, "compiler.flags.1: no '-std=c++17' here"),
    ("cpp", {"defines": ["f(x)=x"]}, "compiler.defines.0: 'f(x)=x' is not a name"),
    ("cpp", {"defines": ["A=1;"]}, "compiler.defines.0"),
    ("python", {"standard": "c11"}, "compiler: for c and cpp alone"),
    ("rust", {}, "compiler: for c and cpp alone"),
]


def test_what_the_service_does_not_allow_is_refused_with_what_it_allows(service: Service) -> None:
    for language, compiler, message in REFUSED:
        item = {"completion": "x", "language": language, "grader": stdio(("", ""))}
        for body, where in (
            ({"submissions": [{**item, "compiler": compiler}]}, "submissions.0."),
            ({"submissions": [item], "compiler": compiler}, ""),
        ):
            with service.client() as client:
                answer = client.post("/reward", json=body)
            assert answer.status_code == 422, (compiler, answer.text)
            assert answer.json()["error"]["message"].startswith(where + message), answer.text


def test_a_standard_that_the_compiler_lacks_is_an_invalid_task() -> None:
    settings = Settings(workers="0")
    item = {"completion": STANDARD, "language": "cpp", "grader": stdio(("", ""))}
    with (
        constants(compiler_flags=["-std=c++99"]),
        running_service(settings, judge=None) as service,
    ):
        (result,) = ask(service, {**item, "compiler": {"standard": "c++99"}})
    assert result["error"]["reason"] == "invalid_task"
    assert "does not take c++99" in result["error"]["message"]
