"""Prepared files of compilers: the same verdicts with them, read-only, and of no submission."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from constants import constants
from harness import Service, running_service
from judging import judge, stdio
from visible_folder import visible_folder
from waits import WAIT_SECONDS

from proctor_service.features.languages.prepare import prepare
from proctor_service.features.languages.prepared_files import PreparedFiles
from proctor_service.settings import Settings
from proctor_service.settings.languages import LANGUAGES
from proctor_service.settings.prepared_folder import SHOWN_AT

LIMITS = {"cpu_seconds": 60, "wall_seconds": 60}
SUM = stdio(("2 3\n", "5\n"), ("20 30\n", "50\n"))
RIGHT = {
    "cpp": "#include <bits/stdc++.h>\nusing namespace std;\n"
    "int main() { int a, b; cin >> a >> b; cout << a + b << endl; }",
    "java": "import java.util.*;\npublic class Main { public static void main(String[] a) {"
    " Scanner s = new Scanner(System.in); System.out.println(s.nextInt() + s.nextInt()); } }",
    "kotlin": 'fun main() { println(readLine()!!.split(" ").map { it.toInt() }.sum()) }',
    "scala": "object Main { def main(a: Array[String]): Unit = {"
    ' println(scala.io.StdIn.readLine().split(" ").map(_.toInt).sum) } }',
    "typescript": 'import * as fs from "fs";\nconst n: number[] = fs.readFileSync(0, "utf8")'
    '.split(" ").map(Number);\nconsole.log(n[0] + n[1]);',
}
WRONG_TYPE = {
    "cpp": (
        '#include <bits/stdc++.h>\nint main() {\n  int x = "s";\n}',
        "solution.cpp:3:11: error",
    ),
    "java": (
        'public class Main {\n  public static void main(String[] a) { int x = "s"; }\n}',
        "Main.java:2: error",
    ),
    "kotlin": ('fun main() {\n    val x: Int = "s"\n}', "solution.kt:2:18: error"),
    "scala": (
        'object Main {\n  def main(a: Array[String]): Unit = { val x: Int = "s" }\n}',
        "solution.scala:2: error",
    ),
    "typescript": ("const a = 1;\nconst b = ;\n", "solution.ts(2,11): error"),
}
RAISING = {
    "java": "public class Main { public static void main(String[] a) { assert a.length > 0; } }",
    "kotlin": "fun main() { check(listOf(1).isEmpty()) }",
    "scala": "object Main extends App { assert(List(1).isEmpty) }",
}
ODD_CPP = [
    (
        '#pragma GCC optimize("O3")\n#include <bits/stdc++.h>\nint main() { std::cout << 1; }',
        "passed",
    ),
    ("#define int long long\n#include <bits/stdc++.h>\nsigned main() {}", "syntax_error"),
    (
        "#define _GLIBCXX_ASSERTIONS\n#include <bits/stdc++.h>\n"
        "int main() { std::vector<int> v; return v[1]; }",
        "runtime_error",
    ),
    (
        "#include <iostream>\n#include <vector>\n"
        "int main() { std::vector<int> v{1}; std::cout << v[0]; }",
        "passed",
    ),
    ("#include <iostream>\nint main() { std::map<int, int> m; std::cout << 1; }", "syntax_error"),
    ("int main() { std::cout << 1; }", "syntax_error"),
    ("#include <bits/stdc++.h>\nint main() { cout << 1; }", "syntax_error"),
]
HOSTILE = f"""
for each in {SHOWN_AT} {SHOWN_AT}/*; do
  touch $each/x; rm -rf $each; mv $each /tmp/y; chmod -R 777 $each; ln -s /etc/passwd $each/y
done
mount -o remount,rw {SHOWN_AT}; mount -t tmpfs none {SHOWN_AT}; echo x > /proc/self/root{SHOWN_AT}/z
for each in {SHOWN_AT}/*/compile {SHOWN_AT}/*/*.jsa; do echo 'exit 0' > $each; truncate -s 0 $each; done
test -x {SHOWN_AT}/java-*/compile && ! test -w {SHOWN_AT}/java-*/compile
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Makes the prepared files, where nothing but this module uses them."""
    with visible_folder() as place:
        folder = place / "prepared"
        with constants(prepared_folder=folder):
            prepare(["cpp-O2-std=gnu++20", *(set(RIGHT) - {"cpp"})])
        yield folder


@pytest.fixture(scope="module")
def prepared(folder: Path) -> Iterator[Service]:
    """Serves with prepared files."""
    with (
        constants(prepared_folder=folder),
        running_service(Settings(workers="0"), judge=None) as running,
    ):
        yield running


def contents(folder: Path) -> dict[str, str]:
    """Digest or mode of each file below a folder, by name."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }


def test_each_language_is_compiled_and_run_with_prepared_files(prepared: Service) -> None:
    right, wrong, raising = (
        [{"completion": text, "language": name, "grader": each} for name, text in rows]
        for rows, each in (
            (RIGHT.items(), SUM),
            ([(name, text) for name, (text, _) in WRONG_TYPE.items()], SUM),
            (RAISING.items(), {"kind": "exec"}),
        )
    )
    results = judge(prepared, *right, *wrong, *raising, limits=LIMITS)
    assert [each["verdict"] for each in results[: len(right)]] == ["passed"] * len(right), results
    of_wrong = results[len(right) : -len(raising)]
    for (_, place), result in zip(WRONG_TYPE.values(), of_wrong, strict=True):
        assert result["verdict"] == "syntax_error"
        assert f"\n{place}" in f"\n{result['message']}", result
    for result in results[-len(raising) :]:
        assert (result["verdict"], result["exit_code"]) == ("runtime_error", 1), result


def test_a_header_is_used_only_where_it_changes_nothing(prepared: Service) -> None:
    items = [
        {"completion": each, "language": "cpp", "grader": stdio(("", "1"))} for each, _ in ODD_CPP
    ]
    results = judge(prepared, *items, limits=LIMITS)
    for (source, verdict), result in zip(ODD_CPP, results, strict=True):
        assert result["verdict"] == verdict, (source, result["message"])


def test_tests_apart_run_with_prepared_files(prepared: Service) -> None:
    rows = {
        "cpp": ("int f(int n) { return 2 * n; }", "int main() { return f(2) == 4 ? 0 : 1; }"),
        "kotlin": ("fun f(n: Int) = 2 * n", "fun main() { check(f(2) == 4) }"),
    }
    items = [
        {"completion": code, "language": name, "grader": {"kind": "exec", "tests": tests}}
        for name, (code, tests) in rows.items()
    ]
    items.append({**items[0], "completion": "int f(int n) { return n; }"})
    results = judge(prepared, *items, limits=LIMITS)
    assert [each["verdict"] for each in results] == ["passed", "passed", "runtime_error"]


def test_equal_programs_of_a_batch_are_compiled_once_each(prepared: Service) -> None:
    program = '#include <cstdio>\nint main() {{ printf("%d", {n}); }}'
    items = [
        {"completion": program.format(n=n), "language": "cpp", "grader": stdio(("", str(n)))}
        for n in range(8)
        for _ in range(8)
    ]
    results = judge(prepared, *items)
    assert {each["verdict"] for each in results} == {"passed"}
    compiled = [each["usage"]["compile_seconds"] > 0 for each in results]
    assert [sum(compiled[n : n + 8]) for n in range(0, 64, 8)] == [1] * 8


def test_nothing_of_a_submission_stays(prepared: Service, folder: Path) -> None:
    before = contents(folder)
    hostile = {"completion": HOSTILE, "language": "bash", "grader": {"kind": "exec"}}
    by_compiler = [
        {"completion": source, "language": name, "grader": {"kind": "exec"}}
        for name, source in {
            "cpp": f'#include "{SHOWN_AT}/x"\nint main() {{}}',
            "java": "package opt.proctor.languages; public class Main {"
            " public static void main(String[] a) throws Exception {"
            f' new java.io.FileOutputStream("{SHOWN_AT}/x"); }} }}',
        }.items()
    ]
    results = judge(prepared, hostile, *by_compiler, limits=LIMITS)
    verdicts = [each["verdict"] for each in results]
    assert verdicts == ["passed", "syntax_error", "runtime_error"], results
    assert contents(folder) == before


def test_files_that_do_not_fit_change_no_verdict(folder: Path) -> None:
    """As after an upgrade of a compiler: archives, headers and code of other versions."""
    names = ("cpp", "java", "typescript")
    with visible_folder() as place:
        for each in folder.iterdir():
            if each.name.startswith(names):
                each.rename(place / each.name)
        kept = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
        try:
            for path in place.rglob("*"):
                if path.suffix in (".gch", ".jsa") or path.name == "code":
                    data = kept[path]
                    path.chmod(0o644)
                    path.write_bytes(bytes([data[0] ^ 255]) + data[1:100_000])
            with (
                constants(prepared_folder=place),
                running_service(Settings(workers="0"), judge=None) as running,
            ):
                items = [
                    {"completion": RIGHT[name], "language": name, "grader": SUM} for name in names
                ]
                for result in judge(running, *items, limits=LIMITS):
                    assert (result["verdict"], result["stderr"]) == ("passed", ""), result
        finally:
            for path, data in kept.items():
                path.write_bytes(data)
            for each in place.iterdir():
                each.rename(folder / each.name)


def test_files_are_made_at_first_use() -> None:
    command = LANGUAGES["java"].compile
    assert command is not None

    async def main(folder: Path) -> None:
        missing = PreparedFiles(folder / "missing")
        assert await missing.scripts(command, "local") is None
        files = PreparedFiles(folder)
        assert await files.scripts(command, "aviato") is None
        assert not os.listdir(folder)  # noqa: PTH208
        assert await files.scripts(command, "local") is None
        async with asyncio.timeout(WAIT_SECONDS):
            while (scripts := await files.scripts(command, "local")) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        name = scripts.folder.removeprefix(f"{SHOWN_AT}/")
        assert (folder / name / "compile").is_file()
        assert await PreparedFiles(folder).scripts(command, "local") == scripts

    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
