"""Compile and run commands of each language: the defaults of the settings.

Paths are relative to a sandbox's working directory. For a language with `named_by` "java", the
placeholders `{file}` and `{main}` stand for two class names of the source: the class that names the
file, and the class to run. A language is installed if every program in `needs` is on the sandbox's
PATH.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from proctor_service.settings.java_names import java_names

SANDBOX_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Language(BaseModel):
    """Name of the source file, compile command (or None) and run command of a language."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    compile: tuple[str, ...] | None = None
    run: tuple[str, ...]
    needs: tuple[str, ...]
    named_by: Literal["java"] | None = None

    def for_source(self, source: str) -> Self:
        """Return the language with the class names of a source in its paths and commands."""
        if self.named_by is None:
            return self
        names = java_names(source)

        def named(text: str) -> str:
            return text.replace("{file}", names.file).replace("{main}", names.main)

        return self.model_copy(
            update={
                "source": named(self.source),
                "compile": self.compile and tuple(map(named, self.compile)),
                "run": tuple(map(named, self.run)),
            }
        )


LANGUAGES: dict[str, Language] = {
    "bash": Language(source="solution.sh", run=("bash", "solution.sh"), needs=("bash",)),
    "javascript": Language(source="solution.js", run=("node", "solution.js"), needs=("node",)),
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
    ),
    "java": Language(
        source="{file}.java",
        compile=("javac", "-J-Xmx256m", "-J-XX:+UseSerialGC", "-d", ".", "{file}.java"),
        run=("java", "-ea", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ".", "{main}"),
        needs=("javac", "java"),
        named_by="java",
    ),
    "go": Language(
        source="solution.go",
        compile=("go", "build", "-o", "solution", "solution.go"),
        run=("./solution",),
        needs=("go",),
    ),
    "rust": Language(
        source="solution.rs",
        compile=("rustc", "-O", "-o", "solution", "solution.rs"),
        run=("./solution",),
        needs=("rustc",),
    ),
}
