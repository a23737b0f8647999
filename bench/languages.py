"""Cost of a hello-world in each language, beside its bare compiler and run without a sandbox.

    PYTHONPATH=client:service python bench/languages.py [--rounds 9] [--only NAME ...] [--allow-degraded]

Starts a service, and posts a program with a single `stdio` case at a time. In turn run as plain
subprocesses, in a new directory, with the sandboxes' PATH and a lasting HOME (with warm caches of the
compiler), and without the prepared files, which the service has: `bare`, the commands that a user
would type (`BARE`; of other languages the service's own), and `same`, the service's own commands.
`ratio` is that of the medians of service and `bare`, `aim` its upper bound. `floor` is the service's time
for an empty `bash` program: a language whose bare run takes less cannot come near.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from measuring import Connection, check

from proctor_service.cli.temporary import temporary_service
from proctor_service.features.languages.jvm_names import named
from proctor_service.settings.languages import LANGUAGES, SANDBOX_PATH, Language
from proctor_service.version import version as service_version

AIM = 1.3
AIMS = {"cpp": 0.6, "java": 0.7, "kotlin": 0.7, "scala": 0.5, "typescript": 0.4}
BARE: Mapping[str, Sequence[Sequence[str]]] = {
    "cpp": (("g++", "-O2", "-std=gnu++17", "solution.cpp", "-o", "solution"), ("./solution",)),
    "java": (("javac", "Main.java"), ("java", "Main")),
    "kotlin": (
        ("kotlinc", "solution.kt", "-include-runtime", "-d", "solution.jar"),
        ("java", "-jar", "solution.jar"),
    ),
    "scala": (("scalac", "solution.scala"), ("scala", "Main")),
    "typescript": (
        ("tsc", "--target", "es2020", "--module", "commonjs", "solution.ts"),
        ("node", "solution.js"),
    ),
}
MEMORY_MB = 512
LIMITS = {"cpu_seconds": 60, "wall_seconds": 60}
HELLO = {
    "bash": "echo hello",
    "c": '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }',
    "cpp": '#include <bits/stdc++.h>\nint main() { std::cout << "hello" << std::endl; }',
    "csharp": 'class P { static void Main() { System.Console.WriteLine("hello"); } }',
    "go": 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }',
    "go_test": 'package main\n\nimport "testing"\n\nfunc TestHello(t *testing.T) {}',
    "java": 'public class Main { public static void main(String[] a) { System.out.println("hello"); } }',
    "javascript": 'console.log("hello")',
    "jest": 'test("hello", () => {});',
    "junit": "class Hello { @org.junit.jupiter.api.Test void hello() { } }",
    "kotlin": 'fun main() { println("hello") }',
    "lua": 'print("hello")',
    "perl": 'print "hello\\n";',
    "php": '<?php echo "hello\\n";',
    "python": 'print("hello")',
    "r": 'cat("hello\\n")',
    "ruby": 'puts "hello"',
    "rust": 'fn main() { println!("hello"); }',
    "scala": 'object Main { def main(a: Array[String]): Unit = { println("hello") } }',
    "typescript": 'const text: string = "hello";\nconsole.log(text);',
}
COMMENTS = {"lua": "--", **dict.fromkeys(("bash", "perl", "python", "r", "ruby"), "#")}
VERSIONS: Mapping[str, Sequence[str]] = {
    "bash": ("bash", "--version"),
    "c": ("gcc", "--version"),
    "cpp": ("g++", "--version"),
    "csharp": ("mono", "--version"),
    "go": ("go", "version"),
    "java": ("java", "-version"),
    "javascript": ("node", "--version"),
    "kotlin": ("kotlinc", "-version"),
    "lua": ("lua", "-v"),
    "perl": ("perl", "-e", "print $^V"),
    "php": ("php", "--version"),
    "r": ("Rscript", "--version"),
    "ruby": ("ruby", "--version"),
    "rust": ("rustc", "--version"),
    "scala": ("scala", "-version"),
    "typescript": ("tsc", "--version"),
}
PYTHON = Language(source="solution.py", run=("python3", "solution.py"), needs=("python3",))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*", default=sorted(HELLO))
    parser.add_argument("--allow-degraded", action="store_true")
    asked = parser.parse_args()
    here = {"python": PYTHON, **LANGUAGES}
    names = [name for name in asked.only if _installed(here[name])]
    proctor = (sys.executable, "-P", "-m", "proctor_service", "languages", "prepare")
    subprocess.run(proctor, check=True, stdout=subprocess.DEVNULL)
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"Proctor {service_version()}, {asked.rounds} rounds\n"
    )
    print("| language | service, ms | bare, ms | ratio | aim | same, ms | version |")
    print("|---|---|---|---|---|---|---|")
    above = []
    with (
        tempfile.TemporaryDirectory() as home,
        temporary_service(allow_degraded=asked.allow_degraded) as running,
    ):
        connection = Connection(running)
        floor = statistics.median(_judged(connection, "bash", ":") for _ in range(20))
        for name in names:
            ours, bare, same = measure(connection, name, here[name], asked.rounds, home)
            ratio, aim = ours / bare, AIMS.get(name, AIM)
            times = (
                f"{1000 * ours:.0f} | {1000 * bare:.0f} | {ratio:.2f} | {aim} | {1000 * same:.0f}"
            )
            print(f"| {name} | {times} | {_version(VERSIONS.get(name, ()))} |", flush=True)
            if ratio > aim:
                above.append(name)
        connection.close()
    print(f"\nfloor: {1000 * floor:.1f} ms")
    print(f"above their aim: {', '.join(above) or 'none'}")


def measure(
    connection: Connection, name: str, language: Language, rounds: int, home: str
) -> tuple[float, float, float]:
    """Return the median seconds of the service, of bare and of the same commands, in turn.

    Raises measuring.WrongReward, and CalledProcessError where a plain program fails.
    """
    times = []
    for number in range(rounds + 1):
        source = f"{HELLO[name]}\n{COMMENTS.get(name, '//')} {number}\n"  # no cache has its result
        known = named(language, source).within(MEMORY_MB)
        same = [command for command in (known.compile, known.run) if command]
        taken = (
            _judged(connection, name, source),
            _plain(BARE.get(name, same), known.source, source, home),
            _plain(same, known.source, source, home),
        )
        if number:  # the first fills caches
            times.append(taken)
    ours, bare, others = (statistics.median(each) for each in zip(*times, strict=True))
    return ours, bare, others


def _judged(connection: Connection, name: str, source: str) -> float:
    by_exit = name in ("go_test", "jest", "junit") or source == ":"  # their output has times
    cases = [{"stdout": "hello\n"}]
    grader = {"kind": "exec"} if by_exit else {"kind": "stdio", "cases": cases}
    taken, results = connection.judge(
        [], submissions=[{"completion": source, "language": name}], grader=grader, limits=LIMITS
    )
    check(results)
    return taken


def _plain(commands: Sequence[Sequence[str]], file: str, source: str, home: str) -> float:
    environment = {"PATH": SANDBOX_PATH, "HOME": home, "LANG": "C.UTF-8"}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, file).write_text(source)
        begun = time.perf_counter()
        for command in commands:
            subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        return time.perf_counter() - begun


def _installed(language: Language) -> bool:
    return all(shutil.which(need, path=SANDBOX_PATH) for need in language.needs)


def _version(command: Sequence[str]) -> str:
    if not command:
        return ""
    environment = {**os.environ, "PATH": SANDBOX_PATH}
    said = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    text = (said.stdout or said.stderr).strip().partition("\n")[0]
    return text.partition(" Copyright")[0][:50]


if __name__ == "__main__":
    main()
