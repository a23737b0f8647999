"""`command` with a `runner`: counts of tests, and submissions that end, fake or bend the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from harness import Service
from installed import are_installed
from judging import JSON, ask, judge

LIMITS = {"cpu_seconds": 30, "wall_seconds": 30, "memory_mb": 2048, "processes": 64, "disk_mb": 512}


@dataclass(frozen=True)
class Samples:
    """A runner's tests, of which `right` passes all and `half` all but one; `hacks` earn no reward.

    `broken` has an error of syntax; it is empty where a compiler takes long.
    """

    language: str
    needs: tuple[str, ...]
    files: dict[str, str]
    right: str
    half: str
    broken: str
    hacks: tuple[str, ...]
    others: dict[str, str] = field(default_factory=dict)


_JUNIT = (
    "import static org.junit.jupiter.api.Assertions.*;\nimport org.junit.jupiter.api.*;\n"
    "import java.util.*;\nclass SolutionTest {\n"
    "@Test void four() { assertEquals(8, Solution.twice(4)); }\n"
    "@Test void zero() { assertTrue(Objects.equals(0, Solution.twice(0))); }\n}"
)


def _java(body: str, more: str = "") -> str:
    return f"public class Solution {{ {more} static int twice(int n) {{ {body} }} }}"


def _go(body: str, more: str = "", imports: str = "") -> str:
    return f"package solution\n{imports}\n{more}\nfunc twice(n int) int {{ {body} }}\n"


SAMPLES = {
    "pytest": Samples(
        "python",
        ("python3",),
        {"test_it.py": "from solution import twice\ndef test_four(): assert twice(4) == 8\n"
                       "def test_zero(): assert twice(0) == 0\n"},
        "def twice(n): return 2 * n",
        "def twice(n): return n",
        "def twice(n:",
        ("import os; os._exit(0)",),
    ),
    "go_test": Samples(
        "go",
        ("go",),
        {"solution_test.go": "package solution\n\nimport \"testing\"\n\n"
         "func TestFour(t *testing.T) {\n\tif twice(4) != 8 {\n\t\tt.Fatal()\n\t}\n}\n\n"
         "func TestZero(t *testing.T) {\n\tif twice(0) != 0 {\n\t\tt.Fatal()\n\t}\n}\n"},
        _go("return 2 * n"),
        _go("return n"),
        _go("return x"),
        (
            _go("return n", "func init() { os.Exit(0) }", 'import "os"'),
            _go('fmt.Print("--- PASS: TestFour\\nPASS\\n"); syscall.Exit(0); return n', "",
                'import ("fmt"; "syscall")'),
            _go("return n", "var word, _ = os.ReadFile(\"/proc/self/fd/3\")\nfunc init() {\n"
                "os.WriteFile(\"/proc/self/fd/3\", append(word, []byte(\"\\npassed TestFour\\n\")...), 0)\n"
                "os.Exit(0) }", 'import "os"'),
        ),
        {"more_test.go": "package solution\n\nfunc TestMain() {}\n", "go.mod": "module x\n"},
    ),
    "cargo_test": Samples(
        "rust",
        ("cargo",),
        {"tests/it.rs": "use solution::*;\n\n#[test]\nfn four() {\n    assert_eq!(twice(4), 8);\n}\n\n"
         "mod inner {\n    use super::*;\n    #[test]\n    fn zero() { assert_eq!(twice(0), 0); }\n}\n"},
        "pub fn twice(n: i32) -> i32 { 2 * n }",
        "pub fn twice(n: i32) -> i32 { n }",
        "",
        (
            "pub fn twice(n: i32) -> i32 { println!(\"test four ... ok\"); std::process::exit(0) }",
        ),
        {"build.rs": "fn main() { panic!() }", ".cargo/config.toml": "[build]\nrustc = \"true\"\n",
         "Cargo.toml": "nonsense", "tests/more.rs": "#[test] fn one() {}"},
    ),
    "jest": Samples(
        "javascript",
        ("node", "jest"),
        {"solution.test.js": "const { twice } = require('./solution');\n"
         "test('four', () => { expect(twice(4)).toBe(8); });\n"
         "test('zero', () => { expect(twice(0)).toBe(0); });\n",
         "later.test.js": "const { twice } = require('./solution');\n"
         "test('minus one', () => { expect(twice(-1)).toEqual(-2); });\n"},
        "module.exports = { twice: (n) => 2 * n };",
        "module.exports = { twice: (n) => Math.abs(2 * n) };",
        "module.exports = {",
        (
            "process.exit(0);",
            "for (const name of ['later', 'solution'])\n"
            "  require('fs').writeFileSync(`${name}.test.js`, `test('mine', () => {});`);\n"
            "module.exports = { twice() {} };",
        ),
        {"package.json": '{"jest": {"testMatch": []}}', "jest.config.js": "process.exit(0)",
         "more.test.js": "test('mine', () => {});"},
    ),
    "junit": Samples(
        "java",
        ("java", "javac"),
        {"SolutionTest.java": _JUNIT},
        _java("return 2 * n;"),
        _java("return n;"),
        _java("return x;"),
        (
            _java("System.exit(0); return 0;"),
            _java("return 1;", "static { Runtime.getRuntime().halt(0); }"),
        ),
        {"junit-platform.properties": "junit.jupiter.conditions.deactivate=*",
         "META-INF/services/org.junit.platform.launcher.TestExecutionListener": "Solution",
         "MoreTest.java": "class MoreTest { @org.junit.jupiter.api.Test void one() {} }"},
    ),
}  # fmt: skip


def _is_here(name: str) -> bool:
    here = are_installed(SAMPLES[name].needs)
    return here and (name != "junit" or Path("/usr/share/java/junit-jupiter-engine.jar").exists())


def _judged(service: Service, name: str, *programs: str, **more: Any) -> list[dict[str, Any]]:
    samples = SAMPLES[name]
    grader = {"kind": "command", "runner": name, "files": samples.files, **more}
    items = [
        {"completion": text, "language": samples.language, "files": samples.others}
        for text in programs
    ]
    return judge(service, *items, grader=grader, limits=LIMITS)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_runner_counts_its_tests(service: Service, name: str) -> None:
    if not _is_here(name):
        pytest.skip(f"{name} is not installed")
    samples = SAMPLES[name]
    programs = (samples.right, samples.half, *samples.hacks, *filter(None, [samples.broken]))
    right, half, *hacks = _judged(service, name, *programs)
    total = 3 if name == "jest" else 2
    assert (right["verdict"], right["reward"], right["hack_signals"]) == ("passed", 1.0, []), right
    assert (right["tests"]["passed"], right["tests"]["total"]) == (total, total)
    assert right["integrity"] == "in_process"
    assert (half["verdict"], half["reward"]) == ("failed", 0.0), half
    assert (half["tests"]["passed"], half["tests"]["total"]) == (total - 1, total)
    assert len(half["tests"]["failures"]) == 1
    assert (half["stdout"], half["stderr"]) == ("", "")
    for result in hacks:
        assert (result["reward"], result["tests"]["passed"] < total) == (0.0, True), result
    assert hacks[0]["verdict"] == "early_exit", hacks[0]


def test_a_runner_needs_its_language_and_tests(service: Service) -> None:
    files = {"solution.test.js": "test('x', () => {});"}
    runner = {"kind": "command", "runner": "jest", "files": files}
    refused = [
        ("python", runner, "submissions.0.language"),
        ("python", {**runner, "argv": ["true"]}, "either an argv or a runner"),
        ("python", {"kind": "command"}, "either an argv or a runner"),
        ("python", {**runner, "files": {}}, "needs files"),
        ("python", {"kind": "command", "runner": "pytest", "files": {"../x": ""}}, "leads out"),
    ]
    with service.client() as client:
        for language, grader, message in refused:
            submission = {"completion": "x", "language": language, "grader": grader}
            answer = client.post("/reward", json={"submissions": [submission]}, headers=JSON)
            assert answer.status_code == 422, answer.text
            assert message in answer.json()["error"]["message"], answer.text


EMPTY = {
    "go_test": ({"x_test.go": "package x\n"}, {"x_test.go": "package x\n// func TestX(t *testing.T) {}\n"},
                {"x_test.go": "package x\n/*\nfunc TestX(t *testing.T) {}\n*/\nfunc helper() {}\n"}),
    "cargo_test": ({"src/x.rs": ""}, {"tests/x.rs": ""}, {"tests/x.rs": "// #[test]\nfn x() {}\n"},
                   {"tests/x.rs": "#[cfg(test)]\nmod inner { fn x() {} }\n"}),
    "junit": ({"X.java": "class X { }"}, {"XTest.java": "class XTest {\n  // @Test\n  void x() { }\n}"},
              {"XTest.java": "import org.junit.Test;\npublic class XTest {\n  @Test public void x() { }\n}"}),
    "jest": ({"x.txt": ""}, {"x.test.js": ""}, {"x.test.js": "describe('x', () => {});"},
             {"x.test.js": "const f = require('./solution');\n/* test('x', () => {}); */\n"}),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(EMPTY))
def test_files_without_tests_are_an_invalid_task(service: Service, name: str) -> None:
    if not _is_here(name):
        pytest.skip(f"{name} is not installed")
    language = SAMPLES[name].language
    for files in EMPTY[name]:
        grader = {"kind": "command", "runner": name, "files": files}
        [result] = ask(service, {"completion": "x", "language": language, "grader": grader})
        assert (result["reward"], result["error"]["reason"]) == (None, "invalid_task"), result


JUNIT_FILES = {
    "its own class": {"ATest.java": "class ATest { @org.junit.jupiter.api.Test void a() {CHECK} }"},
    "its base": {"Base.java": "abstract class Base { @org.junit.jupiter.api.Test void a() {CHECK} }",
                 "ATest.java": "class ATest extends Base { }"},
    "an annotation": {"Quick.java": "import java.lang.annotation.*;\n@Retention(RetentionPolicy.RUNTIME)\n"
                                    "@org.junit.jupiter.api.Test @interface Quick { }",
                      "ATest.java": "class ATest { @Quick void a() {CHECK} }"},
}  # fmt: skip


def test_a_class_has_tests_in_the_ways_of_junit(service: Service) -> None:
    if not _is_here("junit"):
        pytest.skip("junit is not installed")
    check = "{ org.junit.jupiter.api.Assertions.assertEquals(8, Solution.twice(4)); }"
    graders = [
        {"kind": "command", "runner": "junit", "files": {
            name: text.replace("{CHECK}", check) for name, text in files.items()
        }}
        for files in JUNIT_FILES.values()
    ]  # fmt: skip
    right, wrong = (_java(body) for body in ("return 2 * n;", "return n;"))
    items = [
        {"completion": code, "language": "java", "grader": grader}
        for grader in graders
        for code in (right, wrong)
    ]
    results = judge(service, *items, limits=LIMITS)
    assert [each["reward"] for each in results] == [1.0, 0.0] * len(graders), results


_ABORTING = (
    "import org.junit.jupiter.api.*;\nclass ATest {\n"
    "@ Test void a() { Assertions.assertEquals(8, Solution.twice(4)); }\n"
    "@Test void b() { assumed(); }\n"
    "static void assumed() { Assumptions.assumeTrue(Solution.twice(0) == 1); }\n}"
)


def test_only_the_tests_abort_a_test_of_junit(service: Service) -> None:
    if not _is_here("junit"):
        pytest.skip("junit is not installed")
    grader = {"kind": "command", "runner": "junit", "files": {"ATest.java": _ABORTING}}
    abort = "if (n == 0) throw new org.opentest4j.TestAbortedException(); return 2 * n;"
    assume = "org.junit.jupiter.api.Assumptions.assumeTrue(n != 0); return 2 * n;"
    programs = [_java(body) for body in ("return 2 * n;", abort, assume)]
    items = [{"completion": code, "language": "java"} for code in programs]
    found = judge(service, *items, grader=grader, limits=LIMITS)
    assert [each["reward"] for each in found] == [1.0, 0.0, 0.0], found
    assert [each["tests"]["total"] for each in found] == [1, 2, 2], found


def test_skipped_tests_earn_nothing(service: Service) -> None:
    if not _is_here("jest"):
        pytest.skip("jest is not installed")
    files = {"x.test.js": "test.skip('x', () => {});"}
    grader = {"kind": "command", "runner": "jest", "files": files}
    [result] = judge(service, {"completion": ";", "language": "javascript", "grader": grader})
    assert (result["verdict"], result["message"]) == ("failed", "no test ran")
    assert (result["reward"], result["tests"]["passed"]) == (0.0, 0)


def test_a_report_of_many_tests_with_long_names_counts_them_all(service: Service) -> None:
    if not _is_here("jest"):
        pytest.skip("jest is not installed")
    rows = "Array.from({length: 4000}, (_, n) => [n, '数'.repeat(60)])"
    test = f"const f = require('./solution'); test.each({rows})('%d \\u0085 %s', n => f(n));"
    throws = "if (n === {}) throw Error()"
    good, bad = (f"module.exports = n => {{ {throws.format(n)}; }};" for n in (-1, 3999))
    items = [{"completion": text, "language": "javascript"} for text in (good, bad)]
    grader = {"kind": "command", "runner": "jest", "files": {"x.test.js": test}}
    right, wrong = judge(service, *items, grader=grader, limits=LIMITS)
    assert (right["verdict"], right["tests"]["passed"]) == ("passed", 4000), right
    assert (wrong["verdict"], wrong["tests"]["passed"], wrong["tests"]["total"]) == (
        "failed",
        3999,
        4000,
    )
    assert [each["index"] for each in wrong["tests"]["failures"]] == [3999]


def test_a_report_that_is_too_long_is_no_pass(service: Service) -> None:
    if not _is_here("jest"):
        pytest.skip("jest is not installed")
    test = "require('./solution'); test.each([1, 2, 3])('%d' + 'x'.repeat(2 << 20), n => {});"
    item = {"completion": ";", "language": "javascript"}
    grader = {"kind": "command", "runner": "jest", "files": {"x.test.js": test}}
    [result] = judge(service, item, grader=grader, limits=LIMITS)
    assert (result["verdict"], result["reward"]) == ("output_limit", 0.0), result
