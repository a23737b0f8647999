"""Each language that this machine has, by `exec` and `stdio`; and what is said of those that it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from harness import Service, running_service
from installed import is_language_here
from judging import JSON, ask, judge, one

from proctor_service.settings import Settings
from proctor_service.settings.languages import LANGUAGES, Language

HERE = set(filter(is_language_here, LANGUAGES))
SUM = {
    "kind": "stdio",
    "cases": [{"stdin": "2 3\n", "stdout": "5\n"}, {"stdin": "4 5\n", "stdout": "9\n"}],
}

LIMITS = {"cpu_seconds": 4}  # for a compiler too, which here share two cores with the rest


@dataclass(frozen=True)
class Samples:
    """Programs of one language; `broken` says what its compiler complains of.

    `cpu_seconds`: for the compiler, and for the program.
    """

    adds: str
    crashes: str
    spins: str
    broken: str | None = None
    complaint: str = ""
    cpu_seconds: float = 4.0


def _java(body: str) -> str:
    head = "import java.util.*; public class Main { public static void main(String[] a) {"
    return f"{head} {body} }} }}"


def _csharp(body: str) -> str:
    return f"using System; class P {{ static void Main() {{ {body} }} }}"


def _scala(body: str) -> str:
    return f"object Sum {{ def main(args: Array[String]): Unit = {{ {body} }} }}"


SAMPLES = {
    "bash": Samples("read a b; echo $((a + b))", "exit 3", "while :; do :; done"),
    "javascript": Samples(
        "const n = require('fs').readFileSync(0, 'utf8').split(/\\s+/).map(Number);\n"
        "console.log(n[0] + n[1])",
        "null.x",
        "for (;;) {}",
    ),
    "c": Samples(
        "#include <stdio.h>\nint main(void) { int a = 0, b = 0; "
        'scanf("%d %d", &a, &b); printf("%d\\n", a + b); return 0; }',
        "#include <stdlib.h>\nint main(void) { abort(); }",
        "int main(void) { for (volatile int i = 0;; i++); }",
        "int main(void) { return x; }",
        "undeclared",
    ),
    "cpp": Samples(
        "#include <iostream>\nint main() { int a = 0, b = 0; "
        "std::cin >> a >> b; std::cout << a + b << std::endl; }",
        "#include <stdexcept>\nint main() { throw std::runtime_error(\"no\"); }",
        "int main() { for (volatile int i = 0;; i = i + 1); }",
        "int main() { return x; }",
        "not declared",
    ),
    "java": Samples(
        _java("Scanner s = new Scanner(System.in); int n = 0; "
              "while (s.hasNextInt()) n += s.nextInt(); System.out.println(n);"),
        _java("throw new IllegalStateException();"),
        _java("for (int i = 0; ; i++) if (i < -5) i = 0;"),
        _java("int y = x;"),
        "cannot find symbol",
    ),
    "typescript": Samples(
        "const read: string = require('fs').readFileSync(0, 'utf8');\n"
        "const n: number[] = read.split(/\\s+/).map(Number);\nconsole.log(n[0] + n[1]);",
        "const x: any = null; x.y;",
        "for (;;) {}",
        "const x: = 3;",
        "TS1110",
    ),
    "csharp": Samples(
        _csharp("var t = (Console.ReadLine() ?? \"0 0\").Split(' '); "
                "Console.WriteLine(int.Parse(t[0]) + int.Parse(t[1]));"),
        _csharp("throw new Exception();"),
        _csharp("for (int i = 0; ; i++) if (i < -5) i = 0;"),
        _csharp("int y = x;"),
        "does not exist",
    ),
    "kotlin": Samples(
        'fun main() { println((readLine() ?: "0").split(" ").map { it.toInt() }.sum()) }',
        'fun main() { throw IllegalStateException() }',
        "fun main() { while (true) {} }",
        "fun main() { val y: Int = x }",
        "unresolved reference",
        cpu_seconds=8.0,
    ),
    "scala": Samples(
        _scala('println(scala.io.Source.stdin.mkString.split("\\\\s+").filter(_ != "").map(_.toInt).sum)'),
        _scala("throw new IllegalStateException()"),
        _scala("while (true) {}"),
        _scala("val y: Int = x"),
        "not found: value x",
        cpu_seconds=8.0,
    ),
    "go": Samples(
        'package main\nimport "fmt"\nfunc main() { var a, b int; fmt.Scan(&a, &b); fmt.Println(a + b) }',
        'package main\nfunc main() { panic("no") }',
        "package main\nfunc main() { for {} }",
        "package main\nfunc main() { println(x) }",
        "undefined: x",
    ),
    "rust": Samples(
        "use std::io::*;\nfn main() { let mut s = String::new(); stdin().read_to_string(&mut s).unwrap();"
        ' println!("{}", s.split_whitespace().map(|x| x.parse::<i32>().unwrap()).sum::<i32>()); }',
        'fn main() { panic!("no"); }',
        "fn main() { loop {} }",
        "fn main() { let y = x; }",
        "cannot find value",
    ),
    "ruby": Samples("puts $stdin.read.split.map(&:to_i).sum", "raise 'no'", "loop {}"),
    "php": Samples(
        "<?php\nfscanf(STDIN, '%d %d', $a, $b);\necho $a + $b, PHP_EOL;",
        "<?php throw new Exception('no');",
        "while (true) {}",
    ),
    "perl": Samples(
        "my ($a, $b) = split ' ', <STDIN>; print $a + $b, qq(\n);", "die 'no';", "1 while 1;"
    ),
    "lua": Samples("print((io.read('n') or 0) + (io.read('n') or 0))", "error('no')", "while true do end"),
    "r": Samples(
        "n <- scan(file('stdin'), quiet = TRUE); cat(sum(n), fill = TRUE)",
        "stop('no')",
        "repeat {}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_verdicts(service: Service, name: str) -> None:
    if name not in HERE:
        _refused(service, name)
        return
    samples = SAMPLES[name]
    found = {
        ("stdio", samples.adds): "passed",
        ("stdio", samples.crashes): "runtime_error",
        ("stdio", samples.spins): "timeout",
        ("exec", samples.adds): "passed",
        ("exec", samples.crashes): "runtime_error",
    }
    if samples.broken is not None:
        found["exec", samples.broken] = "syntax_error"
    graders: dict[str, Any] = {"stdio": SUM, "exec": {"kind": "exec"}}
    items = [{"completion": text, "grader": graders[kind]} for kind, text in found]
    items = [{**item, "language": name} for item in items]
    results = judge(service, *items, limits={"cpu_seconds": samples.cpu_seconds})
    assert [result["verdict"] for result in results] == list(found.values()), results
    assert all((r["reward"] == 1.0) == (r["verdict"] == "passed") for r in results)
    for result in results:
        if result["verdict"] == "syntax_error":
            assert samples.complaint in result["message"]
    wrong = {**SUM, "cases": [{"stdin": "2 3\n", "stdout": "987654\n"}]}
    failed = one(service, samples.adds, wrong, language=name)
    assert (failed["verdict"], failed["message"]) == ("failed", "token 1 (line 1) differs: got '5'")


@pytest.mark.parametrize("name", sorted(LANGUAGES))
def test_a_language_that_is_not_here_is_refused(service: Service, name: str) -> None:
    if name not in HERE:
        _refused(service, name)


def test_an_unknown_language_is_refused_with_those_that_there_are(service: Service) -> None:
    message = _refused(service, "cobol")
    for name in ("python", *HERE):
        assert name in message


def _refused(service: Service, name: str) -> str:
    body = {
        "submissions": [{"completion": "x", "language": name}],
        "grader": {"kind": "exec"},
    }
    with service.client() as client:
        answer = client.post("/reward", json=body, headers=JSON)
    assert answer.status_code == 422
    message = answer.json()["error"]["message"]
    assert "submissions.0.language" in message
    assert "python" in message
    return str(message)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("py", "python"), ("Python3", "python"), ("js", "javascript"), ("nodejs", "javascript"),
        ("ts", "typescript"), ("c++", "cpp"), ("C++", "cpp"), ("c#", "csharp"), ("golang", "go"),
        ("rs", "rust"), ("rb", "ruby"), ("pl", "perl"), ("kt", "kotlin"), ("R", "r"), ("sh", "bash"),
    ],
)  # fmt: skip
def test_a_language_has_other_names(service: Service, alias: str, name: str) -> None:
    if name not in ("python", *HERE):
        _refused(service, alias)
        return
    program = "n = input().split()\nprint(int(n[0]) + int(n[1]))"
    samples = SAMPLES.get(name, Samples(program, "", ""))
    limits = {"cpu_seconds": samples.cpu_seconds}
    fenced = f"```{alias}\n{samples.adds}\n```"
    item = {"completion": fenced, "grader": SUM, "language": alias}
    [result] = judge(service, item, limits=limits, extract="auto")
    assert result["verdict"] == "passed", result


def test_a_file_of_go_tests_passes_with_its_tests(service: Service) -> None:
    source = (
        'package main\nimport "testing"\nfunc double(x int) int {{ return {} * x }}\n'
        'func TestDouble(t *testing.T) {{ if double(2) != 4 {{ t.Fatal("no") }} }}'
    )
    if "go_test" not in HERE:
        _refused(service, "go_test")
        return
    for factor, verdict in ((2, "passed"), (3, "runtime_error"), ("y", "runtime_error")):
        found = one(
            service,
            source.format(factor),
            {"kind": "exec"},
            language="go_test",
            limits={"cpu_seconds": 20},
        )
        assert found["verdict"] == verdict, found


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_prose_is_no_program(service: Service, name: str) -> None:
    """Some interpreters print what is no program, or ignore it."""
    if name not in HERE:
        _refused(service, name)
        return
    for text in ("I do not know the answer, sorry.", "The answer is 42", "Sorry"):
        result = one(service, text, {"kind": "exec"}, language=name, limits={"cpu_seconds": 8})
        assert result["reward"] == 0.0, (text, result)


def test_a_complaint_on_stderr_fails_where_it_must_be_empty(service: Service) -> None:
    programs = {
        "python": "import sys\nprint('no', file=sys.stderr)",
        "javascript": "console.assert(1 + 1 === 3)",
    }
    strict = {"kind": "exec", "empty_stderr": True}
    for name, source in programs.items():
        if name in ("python", *HERE):
            assert one(service, source, {"kind": "exec"}, language=name)["verdict"] == "passed"
            found = one(service, source, strict, language=name)
            assert (found["verdict"], found["reward"]) == ("failed", 0.0)
            assert "stderr" in found["message"]
    assert one(service, "print('fine')", strict)["reward"] == 1.0


def test_files_stand_beside_the_program(service: Service) -> None:
    grader = {"kind": "stdio", "cases": [{"stdout": "7\n"}]}
    sources = {
        "bash": "cat data/seven.txt",
        "c": '#include <stdio.h>\n#include "data/seven.h"\n'
        'int main(void) { int n; FILE *f = fopen("data/seven.txt", "r"); fscanf(f, "%d", &n); '
        'return printf("%d\\n", n == SEVEN ? n : 0) < 0; }',
    }
    files = {"data/seven.txt": "7\n", "data/seven.h": "#define SEVEN 7\n"}
    for name, source in sources.items():
        if name in HERE:
            assert one(service, source, grader, language=name, files=files)["verdict"] == "passed"


def test_garbage_is_collected_within_the_memory_limit(service: Service) -> None:
    if "java" in HERE:
        loop = "for (int i = 0; i < 3000; i++) { byte[] b = new byte[1 << 20]; b[i] = 1; }"
        result = one(
            service, _java(loop), {"kind": "exec"}, language="java", limits={"memory_mb": 256}
        )
        assert result["verdict"] == "passed", result
    if "javascript" in HERE:
        loop = "let n = 0; for (let i = 0; i < 300; i++) n += new Array(1 << 17).fill(i).length"
        result = one(
            service, loop, {"kind": "exec"}, language="javascript", limits={"memory_mb": 256}
        )
        assert result["verdict"] == "passed", result


LIVE = {
    "java": _java(
        "byte[] live = new byte[{mb} << 20]; Arrays.fill(live, (byte) 1); long n = live[9]; "
        "for (int i = 0; i < 1000; i++) { int[] x = new int[1 << 18]; x[i] = 1; n += x[i]; } "
        "System.out.println(n);"
    ),
    "kotlin": "fun main() { val live = ByteArray({mb} shl 20) { 1 }; var n = live[9].toLong(); "
    "for (i in 0 until 1000) { val x = IntArray(1 shl 18); x[i] = 1; n += x[i] }; println(n) }",
    "scala": _scala(
        "val live = Array.fill[Byte]({mb} << 20)(1); var n: Long = live(9); "
        "for (i <- 0 until 1000) { val x = new Array[Int](1 << 18); x(i) = 1; n += x(i) }; println(n)"
    ),
}
"""Programs that keep so many MB, and a gigabyte of garbage beside."""


def _on_a_large_machine(name: str) -> Language:
    language = LANGUAGES[name]
    option = "-J-XX:MaxRAM=256g" if name == "scala" else "-XX:MaxRAM=256g"
    return language.model_copy(update={"run": (language.run[0], option, *language.run[1:])})


def test_a_heap_fits_the_memory_limit_on_a_machine_of_any_size() -> None:
    names = sorted(HERE & set(LIVE))
    settings = Settings(languages={name: _on_a_large_machine(name) for name in names})
    grader = {"kind": "stdio", "cases": [{"stdout": "1001"}]}
    items = [
        {
            "completion": LIVE[name].replace("{mb}", str(limit * 6 // 10)),
            "language": name,
            "limits": {"memory_mb": limit, "cpu_seconds": 20},
        }
        for name in names
        for limit in ((256, 512, 1024) if name == "java" else (512,))
    ]
    with running_service(settings, judge=None) as service:
        for result in judge(service, *items, grader=grader):
            assert result["verdict"] == "passed", result


def test_threads_are_few_on_a_machine_with_any_number_of_cores(service: Service) -> None:
    futures = (
        "List<java.util.concurrent.CompletableFuture<Integer>> all = new ArrayList<>(); "
        "for (int i = 0; i < 200; i++) all.add(java.util.concurrent.CompletableFuture.supplyAsync(() -> { "
        "try { Thread.sleep(20); } catch (InterruptedException e) { } return 1; })); "
        "int n = 0; for (var each : all) n += each.join(); "
        "System.out.println(n + Runtime.getRuntime().availableProcessors());"
    )
    programs = {
        "java": (_java(futures), "204"),
        "go": (
            'package main\nimport ("fmt"; "runtime")\nfunc main() { fmt.Println(runtime.GOMAXPROCS(0)) }',
            "4",
        ),
        "python": ("import os; print(os.environ['OPENBLAS_NUM_THREADS'])", "1"),
    }
    items = [
        {
            "completion": text,
            "language": name,
            "grader": {"kind": "stdio", "cases": [{"stdout": stdout}]},
        }
        for name, (text, stdout) in programs.items()
        if name in ("python", *HERE)
    ]
    for result in judge(service, *items):
        assert result["verdict"] == "passed", result


def test_a_compiler_that_is_too_greedy_is_a_verdict(service: Service) -> None:
    if "c" not in HERE:
        return
    bomb = "char huge[1 << 26] = {1};\nint main(void) { return 0; }"
    result = one(service, bomb, {"kind": "exec"}, language="c")
    assert (result["reward"], result["verdict"] in ("syntax_error", "output_limit")) == (0.0, True)
    macros = "".join(f"#define A{i + 1} A{i} A{i} A{i} A{i}\n" for i in range(16))
    flood = f"#define A0 x = x * 3 + 1;\n{macros}int main(void) {{ int x = 0; A16 return x; }}"
    result = one(service, flood, {"kind": "exec"}, language="c", limits={"cpu_seconds": 1})
    assert result["verdict"] in ("timeout", "memory_limit")


def test_an_interpreter_that_the_sandbox_lacks_is_our_failure() -> None:
    # The host finds it, as it found `needs`; a sandbox does not.
    lost = Language(source="solution.x", run=("no-such-interpreter", "solution.x"), needs=("sh",))
    uncompiled = lost.model_copy(update={"compile": ("no-such-compiler",)})
    broken = lost.model_copy(update={"compile": ("sh", "-c", "no-such-compiler solution.x")})
    settings = Settings(languages={"lost": lost, "uncompiled": uncompiled, "broken": broken})
    with running_service(settings, judge=None) as service:
        items = [{"completion": "x", "language": name} for name in ("lost", "uncompiled", "broken")]
        for result in ask(service, *items, grader={"kind": "exec"}):
            assert (result["reward"], result["error"]["reason"]) == (None, "judge_failed")


def test_a_java_assertion_that_fails_is_no_success(service: Service) -> None:
    if "java" not in HERE:
        return
    found = {"assert 1 + 1 == 2;": "passed", "assert 1 + 1 == 3;": "runtime_error"}
    items = [
        {"completion": _java(body), "grader": {"kind": "exec"}, "language": "java"}
        for body in found
    ]
    results = judge(service, *items, limits=LIMITS)
    assert [result["verdict"] for result in results] == list(found.values()), results


def test_a_java_class_has_any_name(service: Service) -> None:
    if "java" not in HERE:
        return
    main = 'public static void main(String[] a) { System.out.println("7"); }'
    sources = [
        f"public class Solution {{ {main} }}",
        f"// public class No {{\n/* public class No {{ */ class A {{ }}\npublic final class B {{ {main} }}",
        f"class Only {{ {main} }}",
        f'public class First {{ String s = "public class No {{"; }}\nclass Second {{ {main} }}',
        f"interface A {{ int f(); }} class Z {{ public static class In {{ }} {main} }}",
        f"public class Main {{ {main} }}",
        f"public enum E {{ X; {main} }}",
        f"package x.y;\nimport java.util.*;\npublic class Solution {{ {main} }}",
        f"/* a task */\npackage task ;\ninterface F {{ }}\nclass Other implements F {{ {main} }}",
        "package x;\npublic class A { }\n"
        f"class B {{ static class In {{ }} {main} }}\nenum Kind {{ ONE, TWO }}",
        f"class Helper {{ {main.replace('7', '8')} }}\npublic class Main {{ {main} }}",
        f"class T {{ void main(int x) {{ }} }}\nclass Main {{ {main.replace('[] a', '... a')} }}",
        f"public class Größe {{ {main} }}",
    ]
    items = [
        {
            "completion": source,
            "language": "java",
            "grader": {"kind": "stdio", "cases": [{"stdout": "7"}]},
        }
        for source in sources
    ]
    results = judge(service, *items, limits=LIMITS)
    assert [result["verdict"] for result in results] == ["passed"] * len(sources), results


CONTEST = {
    "C++ of GNU": (
        "cpp",
        "#include <bits/stdc++.h>\nusing namespace std;\nint main() { __int128 x = -7; typeof(x) y = abs(x);"
        " static_assert(is_integral_v<__int128>); cout << (long long) y << endl; }",
    ),
    "C#, large numbers": (
        "csharp",
        "using System; using System.Numerics; class P { static void Main() { dynamic d = 1;"
        " Console.WriteLine((BigInteger.Pow(2, 100) % 10) + d); } }",
    ),
    "Kotlin, an object": (
        "kotlin",
        "object Main {\n    @JvmStatic\n    fun main(args: Array<String>) { println(7) }\n}",
    ),
    "Kotlin, a companion": (
        "kotlin",
        "package a.b\nclass Main { companion object {"
        " @JvmStatic fun main(args: Array<String>) { println(7) } } }",
    ),
    "PHP, capitals": ("php", "<?PHP echo 7;"),
    "PHP, an expression": ("php", "<?= 7 ?>"),
    "PHP, a short opening": ("php", "<?\necho 7;"),
}


def test_programs_as_on_contest_sites(service: Service) -> None:
    items = {
        name: {"completion": source, "language": language}
        for name, (language, source) in CONTEST.items()
        if language in HERE
    }
    # C# writes the last digit of 2 ** 100, which is 6, plus 1.
    grader = {"kind": "stdio", "cases": [{"stdout": "7"}]}
    results = judge(service, *items.values(), grader=grader, limits={"cpu_seconds": 8})
    wrong = {
        name: found
        for name, found in zip(items, results, strict=True)
        if found["verdict"] != "passed"
    }
    assert not wrong


def test_a_java_package_finds_its_other_files(service: Service) -> None:
    if "java" not in HERE:
        return
    calls = "public static void main(String[] a) { System.out.println(Helper.seven()); }"
    helper = "public class Helper { public static int seven() { return 7; } }"
    item = {
        "completion": f"package x.y;\nimport x.z.Helper;\npublic class Solution {{ {calls} }}",
        "files": {"x/z/Helper.java": f"package x.z;\n{helper}"},
        "language": "java",
        "grader": {"kind": "stdio", "cases": [{"stdout": "7"}] * 2},
    }
    (result,) = judge(service, item, limits=LIMITS)
    assert result["verdict"] == "passed", result
