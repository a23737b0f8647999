"""How each language is compiled and run: the table that the settings start from.

Paths are relative to a sandbox's working directory. A language counts as installed when every program
in `needs` is on the sandbox's PATH.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

SANDBOX_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Language(BaseModel):
    """A language: its source file's name, how it compiles (or None), and how it runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    compile: tuple[str, ...] | None = None
    run: tuple[str, ...]
    needs: tuple[str, ...]


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
        source="Main.java",
        compile=("javac", "-J-Xmx256m", "-J-XX:+UseSerialGC", "Main.java"),
        run=("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ".", "Main"),
        needs=("javac", "java"),
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
