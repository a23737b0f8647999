"""Recipes of prepared files: for which commands, from which programs, and by which steps.

A recipe makes a folder with a script `compile`, and maybe `run`. The folder's name has a digest of the
compiler's files and of this code, so that a new compiler gets a new folder. Everything runs outside of
sandboxes, with the programs of this package (`training/`) as the only sources.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from types import MappingProxyType

from proctor_service.features.languages import transpiler
from proctor_service.settings.languages import (
    JAVA,
    JAVAC,
    LANGUAGES,
    SANDBOX_PATH,
    TRANSPILE,
    within,
)

_TRAINING = files(__package__) / "training"
_HEADERS = ("bits/stdc++.h", "iostream")
_HEADER_WORD = re.compile(r"-(?:std=[\w+]+|O\w*|g|pthread)")  # "-std=gnu++20", "-O2"
_MACRO_WORD = re.compile(r"-[DU]\w+")  # "-DONLINE_JUDGE"
_CLASS = re.compile(r"kotlin/.+\.class")  # "kotlin/collections/ArraysKt.class"
_MEMORY_MB = 512
_NO_WARNINGS = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
_PRELOADER = ("org.jetbrains.kotlin.preloading.Preloader",)
_COMPILER_HEAP = "-Xms256m"
"""At once as large as a small program needs: a growing heap is collected on its way."""
_SECONDS = 300.0


class NotMade(Exception):
    """Prepared files could not be made; the message says why."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Recipe of a folder: a change of the files `programs` asks for a new folder.

    `make`: makes the files in a folder; `place` is the folder's later path, in sandboxes. Raises NotMade
    and OSError.
    """

    name: str
    programs: tuple[Path, ...]
    make: Callable[[Path, str], None]


def recipe_name(argv: Sequence[str]) -> str | None:
    """Return the name of the recipe for the command of a compiler; None without a recipe."""
    if argv[0] == "g++":
        words = {each.split("=")[0][:2]: each for each in argv if _HEADER_WORD.fullmatch(each)}
        return "".join(("cpp", *sorted(words.values())))
    if argv[0] == "node":
        return "typescript" if tuple(argv[1:3]) == ("-e", TRANSPILE) else None
    return _NAMES.get(argv[0])


def recipe_for(name: str) -> Recipe | None:
    """Return the recipe with this name; None if a program is missing from its expected place."""
    if name.startswith("cpp"):
        words = tuple(f"-{each}" for each in name.split("-")[1:])
        return _cpp(name, words) if all(map(_HEADER_WORD.fullmatch, words)) else None
    return _RECIPES[name]() if name in _RECIPES else None


def default_names() -> list[str]:
    """Return the names of the recipes for the languages as the settings have them."""
    cpp = LANGUAGES["cpp"]
    assert cpp.compile is not None
    newest = cpp.with_compiler_words([f"-std={cpp.newest_standard}"]).compile
    assert newest is not None
    return [str(recipe_name(newest)), *_RECIPES]


def folder_name(recipe: Recipe) -> str:
    """Return the name of the folder of a recipe, for the programs of now. Raises OSError."""
    digest = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=8)
    for program in recipe.programs:
        status = program.stat()
        digest.update(f"{program} {status.st_size} {int(status.st_mtime)}\n".encode())
    return f"{recipe.name}-{digest.hexdigest()}"


def _cpp(name: str, words: tuple[str, ...]) -> Recipe | None:
    compiler, some_header = _program("g++"), Path("/usr/include/stdio.h")
    if compiler is None or not some_header.exists():
        return None
    return Recipe(name, (compiler, some_header), partial(_make_cpp, words))


def _make_cpp(words: tuple[str, ...], folder: Path, place: str) -> None:
    """Precompile headers. The compiler uses a fitting file for the first header of a program."""
    command = LANGUAGES["cpp"].compile or ()
    macros = [word for word in command if _MACRO_WORD.fullmatch(word)]
    for header in _HEADERS:
        wrapper = folder / header
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(f"#include_next <{header}>\n")
        options = ("-w", *words, *macros, "-x", "c++-header")
        _run(("g++", *options, "-isystem", str(folder), str(wrapper), "-o", f"{wrapper}.gch"))
    _script(
        folder / "compile", f'program=$1; shift\nexec "$program" -isystem {shlex.quote(place)} "$@"'
    )


def _java() -> Recipe | None:
    jdk = _jdk()
    return None if jdk is None else Recipe("java", jdk, _make_java)


def _make_java(folder: Path, place: str) -> None:
    with _training("Main.java") as work:
        dump = (f"-J-XX:ArchiveClassesAtExit={folder}/javac.jsa",)
        _run((JAVAC[0], *dump, *JAVAC[1:], "-d", "classes", "Main.java"), work)
    use = " ".join(f"-J{each}" for each in _using(f"{place}/javac.jsa"))
    _script(folder / "compile", f'program=$1; shift\nexec "$program" {use} "$@"')


def _kotlin() -> Recipe | None:
    jdk, home = _jdk(), _home("kotlinc", "lib/kotlin-compiler.jar")
    if jdk is None or home is None:
        return None
    return Recipe("kotlin", (*jdk, *_jars(home)), partial(_make_kotlin, home))


def _make_kotlin(home: Path, folder: Path, place: str) -> None:
    """The jar comes without Kotlin's library, which is on the class path of the run."""
    names = ("compiler", "stdlib", "reflect", "script-runtime")
    jars = [home / f"lib/kotlin-{name}.jar" for name in names]
    jars += [home / "lib/annotations-13.0.jar", home / "lib/trove4j.jar"]
    path = ":".join(str(jar) for jar in jars if jar.exists())
    main = ("org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-kotlin-home", str(home))
    arguments = ("-nowarn", "solution.kt", "-d", "solution.jar")
    with _training("solution.kt") as work:
        argv = _jvm_words(LANGUAGES["kotlin"].compile)
        as_script = ("-cp", str(home / "lib/kotlin-preloader.jar"), *_PRELOADER)
        compiler = ("-cp", str(home / "lib/kotlin-compiler.jar"), main[0])
        _run(("java", *argv, *as_script, *compiler, *arguments, "-include-runtime"), work)
        library = ":".join(map(str, _in_runtime(home, work / "solution.jar")))
        dump = f"-XX:ArchiveClassesAtExit={folder}/kotlinc.jsa"
        _run(("java", *argv, dump, "-cp", path, *main, *arguments), work)
        _dump_library(folder, work, library, "solution.jar", "SolutionKt")
    using = _using(f"{place}/kotlinc.jsa")
    _script(folder / "compile", _compiler_script(using, path, main, dropped="-include-runtime"))
    _script(folder / "run", _run_script(_using(f"{place}/library.jsa"), library))


def _in_runtime(home: Path, program: Path) -> list[Path]:
    """Return Kotlin's libraries with classes put into programs by this compiler. Raises NotMade."""
    with zipfile.ZipFile(program) as jar:
        made = set(jar.namelist())
    found = []
    for library in ("stdlib", "stdlib-jdk7", "stdlib-jdk8", "reflect"):
        path = home / f"lib/kotlin-{library}.jar"
        if path.exists():
            with zipfile.ZipFile(path) as jar:
                classes = {each for each in jar.namelist() if _CLASS.fullmatch(each)}
            if classes <= made:
                found.append(path)
    if not found:
        raise NotMade("kotlinc -include-runtime leaves out Kotlin's library")
    return found


def _scala() -> Recipe | None:
    jdk, home = _jdk(), _home("scalac", "lib/scala-compiler.jar")
    if jdk is None or home is None:
        return None
    return Recipe("scala", (*jdk, *_jars(home)), partial(_make_scala, home))


def _make_scala(home: Path, folder: Path, place: str) -> None:
    """The class path is the path of the scripts `scalac` and `scala`: all of Scala's jars."""
    path = ":".join(map(str, sorted((home / "lib").glob("*.jar"))))
    main = (f"-Dscala.home={home}", "-Dscala.usejavacp=true", "scala.tools.nsc.Main")
    with _training("solution.scala") as work:
        argv = _jvm_words(LANGUAGES["scala"].compile)
        dump = f"-XX:ArchiveClassesAtExit={folder}/scalac.jsa"
        arguments = ("-nowarn", "-d", "classes", "solution.scala")
        _run(("java", *argv, dump, "-cp", path, *main, *arguments), work)
        _dump_library(folder, work, path, "classes", "Main")
    using = _using(f"{place}/scalac.jsa")
    _script(folder / "compile", _compiler_script(using, path, main))
    _script(folder / "run", _run_script(_using(f"{place}/library.jsa"), path, "java"))


def _dump_library(folder: Path, work: Path, library: str, classes: str, main: str) -> None:
    """Archive the classes of the JDK and of a library loaded by a program, without its own classes."""
    java = within((*JAVA, "-Xshare:off", "-XX:DumpLoadedClassList=classes.txt"), _MEMORY_MB)
    _run((*java, "-cp", f"{library}:{classes}", main), work)
    dump = ("-Xshare:dump", "-XX:SharedClassListFile=classes.txt")
    archive = f"-XX:SharedArchiveFile={folder}/library.jsa"
    _run((*within(JAVA, _MEMORY_MB), *dump, archive, "-cp", library), work)


def _typescript() -> Recipe | None:
    node, tsc = _program("node"), _program("tsc")
    library = tsc and tsc.parent.parent / "lib/typescript.js"
    if node is None or library is None or not library.is_file():
        return None
    return Recipe("typescript", (node, library), partial(_make_typescript, library))


def _make_typescript(library: Path, folder: Path, place: str) -> None:
    """Copy the compiler, with the machine code of its used functions."""
    (folder / "library.js").write_bytes(transpiler.as_function(library.read_text()))
    for name, text in transpiler.PREPARED.items():
        (folder / name).write_text(text)
    with _training("solution.ts") as work:
        _run(("node", str(folder / "train.js"), str(library), "solution.ts"), work)
    words = (place + "/transpile.js", str(library))
    _script(folder / "compile", f'shift 3\nexec node {shlex.join(words)} "$@"')


def _go() -> Recipe | None:
    go = _program("go")
    return None if go is None else Recipe("go", (go,), _make_go)


def _make_go(folder: Path, place: str) -> None:
    """Fill a build cache with Go's standard library, compiled without and with cgo."""
    from proctor_service.cli.failures import Trouble
    from proctor_service.features.languages.go_cache import fill

    try:
        fill(folder / "cache")
    except Trouble as error:
        raise NotMade(str(error)) from None
    cache = shlex.quote(f"{place}/cache")
    _script(folder / "compile", f'export GOCACHE={cache}\nexec "$@"')


_NAMES: Mapping[str, str] = MappingProxyType(
    {"javac": "java", "kotlinc": "kotlin", "scalac": "scala", "go": "go"}
)
"""Recipes by the program of the command."""
_RECIPES: Mapping[str, Callable[[], Recipe | None]] = MappingProxyType(
    {"java": _java, "kotlin": _kotlin, "scala": _scala, "typescript": _typescript, "go": _go}
)


def _using(archive: str) -> tuple[str, ...]:
    """Return options to use an archive of classes; an unfit archive is left out silently."""
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *_NO_WARNINGS)


def _compiler_script(jvm: Sequence[str], path: str, main: Sequence[str], dropped: str = "-") -> str:
    """Return a script to start a compiler's class in the same way as the compiler's shell script.

    `dropped`: an option of the compiler to leave out.
    """
    return f"""\
shift; options=; left=$#
while [ $left -gt 0 ]; do
  word=$1; shift; left=$((left - 1))
  case $word in
    -J*) options="$options ${{word#-J}}" ;;
    {dropped}) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec java {_COMPILER_HEAP} $options {shlex.join(jvm)} -cp {shlex.quote(path)} {shlex.join(main)} "$@\""""


def _run_script(jvm: Sequence[str], library: str, java: str = '"$program"') -> str:
    """Return a script to run a program with a library before its own class path."""
    return f"""\
program=$1; shift; left=$#; place=
while [ $left -gt 0 ]; do
  word=$1; shift; left=$((left - 1))
  if [ -z "$place" ]; then
    case $word in
      -J*) word=${{word#-J}} ;;
      -cp) place={shlex.quote(library)}:$1; set -- "$@" -cp "$place"; shift; left=$((left - 1)); continue ;;
    esac
  fi
  set -- "$@" "$word"
done
exec {java} {shlex.join(jvm)} "$@\""""


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _jvm_words(argv: Sequence[str] | None) -> list[str]:
    return [word.removeprefix("-J") for word in argv or () if word.startswith("-J")]


def _jdk() -> tuple[Path, ...] | None:
    java, javac = _program("java"), _program("javac")
    if java is None or javac is None:
        return None
    modules = java.parent.parent / "lib/modules"
    return (java, modules) if modules.is_file() else None


def _home(program: str, file: str) -> Path | None:
    found = _program(program)
    home = found and found.parent.parent
    return home if home is not None and (home / file).is_file() else None


def _jars(home: Path) -> list[Path]:
    return sorted((home / "lib").glob("*.jar"))


def _program(name: str) -> Path | None:
    found = shutil.which(name, path=SANDBOX_PATH)
    return None if found is None else Path(os.path.realpath(found))


class _training:
    """Context with a new directory with a training program, and `classes`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work = tempfile.TemporaryDirectory()

    def __enter__(self) -> Path:
        work = Path(self._work.name)
        (work / "classes").mkdir()
        with as_file(_TRAINING / self._name) as source:
            shutil.copy(source, work)
        return work

    def __exit__(self, *_: object) -> None:
        self._work.cleanup()


def _run(command: Sequence[str], work: Path | None = None) -> None:
    """Run a command of a recipe, with the sandboxes' PATH. Raises NotMade."""
    with tempfile.TemporaryDirectory() as home:
        variables = {"PATH": SANDBOX_PATH, "HOME": home, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        try:
            process = subprocess.Popen(
                command,
                cwd=work or home,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        except OSError as error:
            raise NotMade(f"{command[0]}: {error}") from None
        try:
            output, _ = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise NotMade(f"{command[0]} took more than {_SECONDS:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                process.communicate()
    if process.returncode:
        text = output.strip()[-1000:]
        raise NotMade(f"{command[0]} ended with {process.returncode}: {text}")
