"""Compile and run commands of each language: the defaults of the settings.

Paths are relative to a sandbox's working directory. For a language with `named_by`, the placeholders
`{file}` and `{main}` stand for two names of the source: that of its file, and the class to run. In
every command `{memory}` stands for the program's memory limit in MB, and `{jvm}` for the memory that
a JVM takes for the machine's: a runtime sees that, never the limit. A language is installed if every
program in `needs` is on the sandbox's PATH. Languages that need nothing but a row are in `languages.toml`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

PYTHON = "python"
PYTHON_ALIASES = ("py", "python3", "py3")
SANDBOX_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RUNTIME_CORES = 4
"""Cores for which compilers and runtimes start threads: each thread counts among a sandbox's processes.

Java's `CompletableFuture` starts a thread for every task with fewer than three.
"""
_JVM_MB, _JVM_TIMES = 16_384, 4  # memory of the machine for a JVM: its heap may be a quarter of it

Command = Annotated[tuple[str, ...], Field(min_length=1)]
"""A program and its arguments."""


class Language(BaseModel):
    """Name of the source file, compile command (or None) and run command of a language.

    A compile command with the exit code 127 lacks a program: the submission is not to blame.
    `needs`: by default the first words of both commands. `aliases`: other names, in any case.
    `version`: command that prints the version, on this machine. `paths`: folders of its programs outside of
    /usr, shown read-only in every sandbox where the machine has them. `dialect`: the compiler takes gcc's
    standards and flags for this language. `newest_standard`: asked for where the compiler takes it.
    `opening`: what a source begins with; put before a source without it and without a match of `opened`.
    `launcher`: how tests apart from the completion run; absent: the language has none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    compile: Command | None = None
    run: Command
    needs: tuple[str, ...] = ()
    version: Command | None = None
    paths: tuple[str, ...] = ()
    named_by: Literal["java", "kotlin", "scala"] | None = None
    aliases: tuple[str, ...] = ()
    opening: str = ""
    opened: re.Pattern[str] | None = None
    launcher: str | None = None
    dialect: Literal["c", "c++"] | None = None
    newest_standard: str | None = None

    @model_validator(mode="after")
    def _with_needs(self) -> Self:
        if "needs" not in self.model_fields_set:
            first = [each[0] for each in (self.compile, self.run) if each]
            programs = [each for each in dict.fromkeys(first) if _is_installed(each)]
            object.__setattr__(self, "needs", tuple(programs))  # frozen from here on
        return self

    @field_validator("paths")
    @classmethod
    def _absolute(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if not path.startswith("/") or path == "/" or ".." in path.split("/") or "\0" in path:
                raise ValueError(f"{path!r} is no absolute path of a folder")
        return paths

    @field_validator("source")
    @classmethod
    def _file_name(cls, source: str) -> str:
        if source in ("", ".", "..") or "/" in source or "\0" in source:
            raise ValueError(f"{source!r} is no name of a file")
        return source

    def within(self, memory_mb: int) -> Self:
        """Return the language with the memory limit of a program in its commands."""
        return self.model_copy(
            update={
                "compile": self.compile and within(self.compile, memory_mb),
                "run": within(self.run, memory_mb),
            }
        )

    def with_compiler_words(self, words: Sequence[str]) -> Self:
        """Return the language with more words behind the command of its compiler; the last ones count."""
        if not words or self.compile is None:
            return self
        return self.model_copy(update={"compile": (*self.compile, *words)})

    def whole(self, source: str) -> str:
        """Return the source with its opening."""
        if not self.opening or self.opening in source:
            return source
        if self.opened is not None and self.opened.search(source):
            return source
        return f"{self.opening}\n{source}"


def _is_installed(program: str) -> bool:
    """Return False for a program that the compiler makes: `./solution`."""
    return program.startswith("/") or "/" not in program


def within(argv: tuple[str, ...], memory_mb: int) -> tuple[str, ...]:
    """Return a command with the memory limit of a program."""
    jvm_mb = max(_JVM_MB, _JVM_TIMES * memory_mb)

    def limited(word: str) -> str:
        return word.replace("{memory}", str(memory_mb)).replace("{jvm}", str(jvm_mb))

    return tuple(map(limited, argv))


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


def with_go_cache(languages: Mapping[str, Language], folder: str) -> dict[str, Language]:
    """Return the languages with a build cache for their commands of Go, in sandboxes with the
    cache.

    Go refuses a cache that is neither filled nor writable, so an empty folder counts for none.
    """
    quoted = shlex.quote(folder)
    script = f'[ -d {quoted}/00 ] && export GOCACHE={quoted}; exec go "$@"'

    def cached(argv: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return ("sh", "-c", script, *argv) if argv and argv[0] == "go" else argv

    return {
        name: language.model_copy(
            update={"compile": cached(language.compile), "run": cached(language.run)}
        )
        for name, language in languages.items()
    }


TRANSPILE = """\
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
for (const fileName of process.argv.slice(1)) {
  const done = ts.transpileModule(fs.readFileSync(fileName, "utf8"), {
    fileName, reportDiagnostics: true,
    compilerOptions: { target: "es2020", module: "commonjs", esModuleInterop: true },
  });
  if (done.diagnostics.length) {
    const host = { getCanonicalFileName: f => f, getCurrentDirectory: () => "", getNewLine: () => "\\n" };
    console.error(ts.formatDiagnostics(done.diagnostics, host));
    process.exit(1);
  }
  const known = /^const (?=[\\w$]+ = (?:__import\\w+\\()?require\\()/gm;
  const text = fileName === "tests.ts" ? done.outputText : done.outputText.replace(known, "var ");
  fs.writeFileSync(fileName.replace(/ts$/, "js"), text);
}
"""
"""Types are removed and not checked, as by tsx and Deno: the types of Node are often not installed.

Setup and completion may have the same import: they share a scope, where a variable may be declared twice.
"""

_JVM = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-XX:ActiveProcessorCount={RUNTIME_CORES}"),
    "-XX:-UsePerfData",  # nobody reads its file in /tmp, which takes a part of a short program's time
)
# A heap begins with 1/64 of the memory, and on a large machine garbage would fill it beyond the limit.
JAVA = ("java", "-ea", *_JVM, "-XX:MaxRAM={jvm}m")


def _for_launcher(*options: str) -> tuple[str, ...]:
    """Return options of the JVM for programs such as `javac`, which start a JVM."""
    return tuple(f"-J{option}" for option in options)


JAVAC = ("javac", *_for_launcher("-Xmx256m", *_JVM), "-proc:none")
_COMPILER_JVM = _for_launcher("-Xmx320m", *_JVM)
# Beside those that mcs takes itself, those of Debian's mono-mcs; one that is missing would fail them all.
_CSHARP_LIBRARIES = ("-r:System.Numerics.dll", "-r:Microsoft.CSharp.dll")
NODE = ("node", "--max-old-space-size={memory}")
_JUNIT_JARS = ":".join(
    f"/usr/share/java/{jar}.jar"
    for jar in (
        "apiguardian-api", "junit-jupiter-api", "junit-jupiter-engine", "junit-jupiter-params",
        "junit-platform-commons", "junit-platform-console", "junit-platform-engine",
        "junit-platform-launcher", "junit-platform-reporting", "opentest4j", "picocli", "univocity-parsers",
    )
)  # fmt: skip
_JUNIT_COMPILE = """\
for jar in $(echo "$1" | tr : ' '); do test -e "$jar" || { echo "no $jar" >&2; exit 127; }; done
jars=$1; shift; exec "$@" -d . -cp "$jars:."
"""
_PHP_SETTINGS = (
    *("-d", "display_errors=stderr", "-d", "memory_limit=-1"),
    *("-d", "zend.assertions=1"),  # as PHP has it without the settings of a distribution
    *("-d", "short_open_tag=1"),  # otherwise PHP prints a text from `<?` on
)

LANGUAGES: dict[str, Language] = {
    "bash": Language(
        source="solution.sh",
        launcher="bash",
        run=("bash", "solution.sh"),
        needs=("bash",),
        aliases=("sh", "shell", "zsh"),
    ),
    "javascript": Language(
        source="solution.js",
        launcher="javascript",
        run=(*NODE, "solution.js"),
        needs=("node",),
        aliases=("js", "node", "nodejs"),
    ),
    "typescript": Language(
        source="solution.ts",
        launcher="typescript",
        compile=("node", "-e", TRANSPILE, "solution.ts"),
        run=(*NODE, "solution.js"),
        needs=("node", "tsc"),
        aliases=("ts",),
    ),
    "c": Language(
        source="solution.c",
        launcher="c",
        compile=("gcc", "-O2", "-DONLINE_JUDGE", "-o", "solution", "solution.c", "-lm"),
        run=("./solution",),
        needs=("gcc",),
        dialect="c",
    ),
    "cpp": Language(
        source="solution.cpp",
        launcher="c",
        compile=(
            "g++",
            "-O2",
            "-std=gnu++17",
            "-DONLINE_JUDGE",
            "-Ulinux",
            "-Uunix",
            "-o",
            "solution",
            "solution.cpp",
        ),
        run=("./solution",),
        needs=("g++",),
        aliases=("c++", "cc", "cxx"),
        dialect="c++",
        newest_standard="gnu++20",
    ),
    "csharp": Language(
        source="solution.cs",
        launcher="csharp",
        compile=("mcs", "-optimize", *_CSHARP_LIBRARIES, "-out:solution.exe", "solution.cs"),
        run=("mono", "solution.exe"),
        needs=("mcs", "mono"),
        aliases=("c#", "cs"),
    ),
    "java": Language(
        source="{file}.java",
        launcher="java",
        compile=(*JAVAC, "-d", ".", "{file}.java"),
        run=(*JAVA, "-cp", ".", "{main}"),
        needs=("javac", "java"),
        named_by="java",
    ),
    "kotlin": Language(
        source="solution.kt",
        launcher="kotlin",
        compile=(
            "kotlinc",
            *_COMPILER_JVM,
            "-nowarn",
            "solution.kt",
            "-include-runtime",
            "-d",
            "solution.jar",
        ),
        run=(*JAVA, "-cp", "solution.jar", "{main}"),
        needs=("kotlinc", "java"),
        named_by="kotlin",
        aliases=("kt",),
    ),
    "scala": Language(
        source="solution.scala",
        launcher="scala",
        compile=("scalac", *_COMPILER_JVM, "-nowarn", "-d", ".", "solution.scala"),
        run=("scala", *_for_launcher(*_JVM, "-Xmx{memory}m"), "-cp", ".", "{main}"),
        needs=("scalac", "scala"),
        named_by="scala",
    ),
    "go": Language(
        source="solution.go",
        launcher="go",
        compile=("go", "build", "-o", "solution", "solution.go"),
        run=("./solution",),
        needs=("go",),
        aliases=("golang",),
    ),
    "go_test": Language(
        source="solution_test.go", run=("go", "test", "solution_test.go"), needs=("go",)
    ),
    "jest": Language(
        source="solution.test.js",
        run=("jest", "--config={}", "--rootDir=.", "--ci", "--runInBand", "--watchman=false"),
        needs=("node", "jest"),
    ),
    "junit": Language(
        source="{file}.java",
        compile=("sh", "-c", _JUNIT_COMPILE, "sh", _JUNIT_JARS, *JAVAC, "{file}.java"),
        run=(
            *JAVA,
            "-cp",
            f"{_JUNIT_JARS}:.",
            "org.junit.platform.console.ConsoleLauncher",
            "--disable-banner",
            "--disable-ansi-colors",
            "--fail-if-no-tests",
            "--include-classname=.*",
            "--scan-class-path=.",
        ),
        needs=("javac", "java"),
        named_by="java",
    ),
    "rust": Language(
        source="solution.rs",
        launcher="rust",
        compile=("rustc", "--edition", "2021", "-O", "-o", "solution", "solution.rs"),
        run=("./solution",),
        needs=("rustc",),
        aliases=("rs",),
    ),
    "ruby": Language(
        source="solution.rb",
        launcher="ruby",
        run=("ruby", "solution.rb"),
        needs=("ruby",),
        aliases=("rb",),
    ),
    "php": Language(
        source="solution.php",
        launcher="php",
        run=("php", *_PHP_SETTINGS, "solution.php"),
        needs=("php",),
        opening="<?php",  # PHP prints a text without it, and ends with 0
        opened=re.compile(r"(?i:<\?php)|<\?=|\A(?:#![^\n]*\n)?\s*<\?"),  # "<?PHP", "<?="
    ),
    "perl": Language(
        source="solution.pl",
        launcher="perl",
        run=("perl", "-Mstrict=subs", "solution.pl"),  # a word alone is no program
        needs=("perl",),
        aliases=("pl",),
    ),
    "lua": Language(
        source="solution.lua", launcher="lua", run=("lua", "solution.lua"), needs=("lua",)
    ),
    "r": Language(
        source="solution.R",
        launcher="r",
        run=("Rscript", "--vanilla", "solution.R"),
        needs=("Rscript",),
    ),
}

RUNNER_LANGUAGES: Mapping[str, str] = {
    "cargo_test": "rust",
    "go_test": "go",
    "jest": "javascript",
    "junit": "java",
    "pytest": "python",
}
"""Language of the tests of each runner."""
