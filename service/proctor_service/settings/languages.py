"""Compile and run commands of each language: the defaults of the settings.

Paths are relative to a sandbox's working directory. For a language with `named_by`, the placeholders
`{file}` and `{main}` stand for two names of the source: that of its file, and the class to run. A
language is installed if every program in `needs` is on the sandbox's PATH.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from proctor_service.settings.java_names import java_names, scala_main

PYTHON = "python"
PYTHON_ALIASES = ("py", "python3", "py3")
SANDBOX_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Language(BaseModel):
    """Name of the source file, compile command (or None) and run command of a language.

    A compile command that ends with 127 lacks something, and says nothing of the submission.
    `aliases`: other names, in any case. `opening`: what a source begins with; it is put before a
    source that nowhere has it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    compile: tuple[str, ...] | None = None
    run: tuple[str, ...]
    needs: tuple[str, ...]
    named_by: Literal["java", "scala"] | None = None
    aliases: tuple[str, ...] = ()
    opening: str = ""

    def for_source(self, source: str) -> Self:
        """Return the language with the class names of a source in its paths and commands."""
        if self.named_by is None:
            return self
        if self.named_by == "java":
            names = java_names(source)
            file, main = names.file, names.main
        else:
            file = main = scala_main(source)

        def named(text: str) -> str:
            return text.replace("{file}", file).replace("{main}", main)

        return self.model_copy(
            update={
                "source": named(self.source),
                "compile": self.compile and tuple(map(named, self.compile)),
                "run": tuple(map(named, self.run)),
            }
        )

    def whole(self, source: str) -> str:
        """Return the source with the opening that it needs."""
        if not self.opening or self.opening in source:
            return source
        return f"{self.opening}\n{source}"


def language_named(name: str, languages: Mapping[str, Language]) -> str:
    """Return the name of a language for a name or an alias, in any case; others as they are."""
    if name == PYTHON or name in languages:
        return name
    lower = name.lower()
    if lower == PYTHON or lower in PYTHON_ALIASES:
        return PYTHON
    for each, language in languages.items():
        if lower in (other.lower() for other in (each, *language.aliases)):
            return each
    return name


_TRANSPILE = """\
const fs = require("fs"), path = require("path");
const tsc = process.env.PATH.split(":").map(d => path.join(d, "tsc")).find(p => fs.existsSync(p));
let ts;
try {
  ts = require(path.join(path.dirname(fs.realpathSync(tsc)), "../lib/typescript.js"));
  ts.transpileModule("", {});
} catch (error) {
  console.error(String(error));
  process.exit(127);
}
const done = ts.transpileModule(fs.readFileSync("solution.ts", "utf8"), {
  fileName: "solution.ts", reportDiagnostics: true,
  compilerOptions: { target: "es2020", module: "commonjs", esModuleInterop: true },
});
if (done.diagnostics.length) {
  const host = { getCanonicalFileName: f => f, getCurrentDirectory: () => "", getNewLine: () => "\\n" };
  console.error(ts.formatDiagnostics(done.diagnostics, host));
  process.exit(1);
}
fs.writeFileSync("solution.js", done.outputText);
"""
"""Types are removed and not checked, as by tsx and Deno: the types of Node are often not installed."""

_COMPILER_HEAP = ("-J-Xmx320m", "-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1")

LANGUAGES: dict[str, Language] = {
    "bash": Language(
        source="solution.sh",
        run=("bash", "solution.sh"),
        needs=("bash",),
        aliases=("sh", "shell", "zsh"),
    ),
    "javascript": Language(
        source="solution.js",
        run=("node", "solution.js"),
        needs=("node",),
        aliases=("js", "node", "nodejs"),
    ),
    "typescript": Language(
        source="solution.ts",
        compile=("node", "-e", _TRANSPILE),
        run=("node", "solution.js"),
        needs=("node", "tsc"),
        aliases=("ts",),
    ),
    "c": Language(
        source="solution.c",
        compile=("gcc", "-O2", "-o", "solution", "solution.c", "-lm"),
        run=("./solution",),
        needs=("gcc",),
    ),
    "cpp": Language(
        source="solution.cpp",
        compile=("g++", "-O2", "-std=c++17", "-o", "solution", "solution.cpp"),
        run=("./solution",),
        needs=("g++",),
        aliases=("c++", "cc", "cxx"),
    ),
    "csharp": Language(
        source="solution.cs",
        compile=("mcs", "-optimize", "-out:solution.exe", "solution.cs"),
        run=("mono", "solution.exe"),
        needs=("mcs", "mono"),
        aliases=("c#", "cs"),
    ),
    "java": Language(
        source="{file}.java",
        compile=("javac", "-J-Xmx256m", "-J-XX:+UseSerialGC", "-d", ".", "{file}.java"),
        run=("java", "-ea", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ".", "{main}"),
        needs=("javac", "java"),
        named_by="java",
    ),
    "kotlin": Language(
        source="solution.kt",
        compile=(
            "kotlinc",
            *_COMPILER_HEAP,
            "-nowarn",
            "solution.kt",
            "-include-runtime",
            "-d",
            "solution.jar",
        ),
        run=("java", "-ea", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", "solution.jar"),
        needs=("kotlinc", "java"),
        aliases=("kt",),
    ),
    "scala": Language(
        source="solution.scala",
        compile=("scalac", *_COMPILER_HEAP, "-nowarn", "-d", ".", "solution.scala"),
        run=("scala", "-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1", "-cp", ".", "{main}"),
        needs=("scalac", "scala"),
        named_by="scala",
    ),
    "go": Language(
        source="solution.go",
        compile=("go", "build", "-o", "solution", "solution.go"),
        run=("./solution",),
        needs=("go",),
        aliases=("golang",),
    ),
    "go_test": Language(
        source="solution_test.go", run=("go", "test", "solution_test.go"), needs=("go",)
    ),
    "rust": Language(
        source="solution.rs",
        compile=("rustc", "-O", "-o", "solution", "solution.rs"),
        run=("./solution",),
        needs=("rustc",),
        aliases=("rs",),
    ),
    "ruby": Language(
        source="solution.rb", run=("ruby", "solution.rb"), needs=("ruby",), aliases=("rb",)
    ),
    "php": Language(
        source="solution.php",
        run=("php", "-d", "display_errors=stderr", "-d", "memory_limit=-1", "solution.php"),
        needs=("php",),
        opening="<?php",  # PHP prints a text without it, and ends with 0
    ),
    "perl": Language(
        source="solution.pl",
        run=("perl", "-Mstrict=subs", "solution.pl"),  # a word alone is no program
        needs=("perl",),
        aliases=("pl",),
    ),
    "lua": Language(source="solution.lua", run=("lua", "solution.lua"), needs=("lua",)),
    "r": Language(
        source="solution.R", run=("Rscript", "--vanilla", "solution.R"), needs=("Rscript",)
    ),
}
