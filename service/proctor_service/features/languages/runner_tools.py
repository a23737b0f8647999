"""Files and commands of `command` with a `runner`: go test, cargo test, jest and JUnit.

A launcher of Proctor's runs the tests through the interface of the tool. The launcher reads a secret word
before the tests, and behind the tests reports the word and the outcome of each test (`launchers/`). The
settings of a tool are the launcher's: the submission's files are left out.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor_client.wire import Runner
from proctor_service.errors import InvalidTask
from proctor_service.features.languages.jvm_names import java_names
from proctor_service.features.languages.separate_tests import launcher_text
from proctor_service.features.languages.texts import GO_PACKAGE
from proctor_service.settings.languages import JAVA, JAVAC, NODE, Language

_GO = (
    "env", "GOENV=off", "GOFLAGS=", "GO111MODULE=on", "GOPROXY=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0",
    "GOWORK=off",
)  # fmt: skip
# The version in go.mod is that of the language, too; without one it would be 1.16.
_GO_NEWEST = """\
version=$("$1" env GOVERSION | cut -d. -f1,2)
case $version in go1.*) "$1" mod edit -go="${version#go}" ;; esac
exec "$@"
"""
_COMMENT = re.compile(
    r"^[ \t]*(?://[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z))", re.MULTILINE
)  # a comment that begins a line: `// func TestOld(t *testing.T)`
_GO_TEST = re.compile(r"^func[ \t]+(Test\w*)[ \t]*\(", re.MULTILINE)  # `func TestAdd(`
_GO_MODULE = re.compile(r"^module[ \t]+(\S+)", re.MULTILINE)  # `module example.com/m`
_JUNIT_FOLDER = "/usr/share/java"
_JUNIT_JARS = (
    "apiguardian-api", "junit-jupiter-api", "junit-jupiter-engine", "junit-jupiter-params",
    "junit-platform-commons", "junit-platform-engine", "junit-platform-launcher", "opentest4j",
)  # fmt: skip
_JUNIT_TEST = re.compile(
    r"@\s*(?:\w+\s*\.\s*)*(?:Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Nested)\b"
)  # `@Test`, `@ Test`, `@org.junit.jupiter.api.Test`
_JUNIT_4 = re.compile(
    r"(?:^[ \t]*import\s+(?:static\s+)?|@\s*)(?:org\.junit\.(?!(?:jupiter|platform)\b)|junit\.framework\.)",
    re.MULTILINE,
)  # `import org.junit.Test;`
_JAVA_CLASS = re.compile(r"\b(?:class|record)\s+\w")  # `class SolutionTest`
_JEST_TEST = re.compile(r"\b(?:[fx]?it|x?test)\b")  # `test("adds", …)`, `it.each`
_JEST_TEST_FILE = re.compile(r"(?:^|/)__tests__/|\.(?:test|spec)\.[cm]?[jt]sx?$")  # `a.test.js`
_JEST_SOURCES = (".js", ".jsx", ".cjs", ".mjs", ".cjsx", ".mjsx")
_JEST_SETTINGS = re.compile(
    r"(?:^|/)(?:package\.json|jest\.config\.\w+|\.?babel(?:rc|\.config)[\w.]*|__mocks__/.*|__snapshots__/.*"
    r"|node_modules/.*)$"
)  # `package.json`, `src/__mocks__/fs.js`
_CARGO_TEST = re.compile(
    r"#\s*\[\s*(?:\w+\s*::\s*)*\w*test"
)  # `#[test]`, `#[tokio::test]`, and not `#[cfg(test)]`
_CARGO_SETTINGS = re.compile(
    r"(?:^|/)(?:\.cargo/.*|build\.rs|Cargo\.(?:toml|lock)|rust-toolchain.*)$"
)  # `build.rs`, `.cargo/config.toml`
_GO_SETTINGS = re.compile(
    r"(?:^|/)(?:go\.(?:mod|sum|work)|vendor/.*|[^/]*_test\.go)$"
)  # `go.mod`, `a/f_test.go`
_CARGO_TOML = """\
[package]
name = "solution"
version = "0.0.0"
edition = "2021"

[lib]
path = "src/lib.rs"
"""
_CARGO = """\
command -v cargo >/dev/null || exit 127
rm -rf .cargo build.rs
made=$(mktemp -d) && export CARGO_HOME="$made/home" CARGO_TARGET_DIR="$made/target" RUSTC_BOOTSTRAP=1
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
cargo test --offline --quiet --no-run --test '*' || exit 1
for each; do cp "$made/target/debug/deps/$each"-???????????????? "./$each" || exit 1; done
rm -rf "$made"
"""
_JAVAC = """\
for jar in $(echo "$1" | tr : ' '); do test -e "$jar" || { echo "no $jar" >&2; exit 127; }; done
shift; exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Tool:
    """Files and commands of a tool's run; the commands may have placeholders of the memory limit.

    `compile`: a command, or None. `runs`: commands; each reports its tests. `files`: for the compiler, or
    for the run of an uncompiled program. `tool`: for messages.
    """

    tool: str
    compile: tuple[str, ...] | None
    runs: tuple[tuple[str, ...], ...]
    files: Mapping[str, str] = field(default_factory=dict)


def tool_for(
    runner: Runner,
    source: str | None,
    tests: Mapping[str, str],
    others: Mapping[str, str],
    languages: Mapping[str, Language],
) -> Tool:
    """Return the tool for a submission; `source` None: the files are in the sandbox's snapshot.

    `tests`: the grader's files; `others`: the submission's. Raises InvalidTask for files without tests.
    """
    name = f"proctor_{secrets.token_hex(8)}"
    if runner == "go_test":
        build = (languages["go"].compile if "go" in languages else None) or ()
        go = build[: build.index("build")] if "build" in build else ("go",)
        return _go(name, source, tests, others, go)
    return _TOOLS[runner](name, source, tests, others)


def _go(
    name: str,
    source: str | None,
    tests: Mapping[str, str],
    others: Mapping[str, str],
    go: tuple[str, ...],
) -> Tool:
    files = _together(others, _GO_SETTINGS, "solution.go", source, tests)
    in_root = [path for path in tests if path.endswith("_test.go") and "/" not in path]
    expected = [test for path in in_root for test in _GO_TEST.findall(_code(tests[path]))]
    if "TestMain" in expected:
        raise InvalidTask("the runner go_test has its own TestMain, and the tests have one too")
    if not expected:
        raise InvalidTask("no file NAME_test.go beside the submission has a test function")
    package = GO_PACKAGE.search(tests[in_root[0]])
    if package is None:
        raise InvalidTask(f"{in_root[0]} has no package clause")
    if source is not None and not GO_PACKAGE.search(source):
        files["solution.go"] = f"package {package[1].removesuffix('_test')}\n{source}"
    module = _GO_MODULE.search(tests.get("go.mod", ""))
    newest = () if "go.mod" in files else ("sh", "-c", _GO_NEWEST, "sh")
    files.setdefault("go.mod", "module solution\n\ngo 1.18\n")
    files[f"{name}_test.go"] = launcher_text(
        "go_test.go",
        name,
        PACKAGE=package[1],
        MODULE="solution" if module is None else module[1],
        EXPECTED=" ".join(expected),
    )
    files[f"{name}/runner.go"] = launcher_text("go_runner.go", name)
    compile_it = (*_GO, *newest, *go, "test", "-c", "-vet=off", "-o", "solution.test", ".")
    return Tool("go", compile_it, (("./solution.test",),), files)


def _cargo(
    name: str, source: str | None, tests: Mapping[str, str], others: Mapping[str, str]
) -> Tool:
    files = _together(others, _CARGO_SETTINGS, "src/lib.rs", source, tests)
    files.setdefault("Cargo.toml", _CARGO_TOML)
    roots = []
    for path, text in tests.items():
        folder, _, file = path.rpartition("/")
        if folder != "tests" or not file.endswith(".rs"):
            continue
        roots.append(file.removesuffix(".rs"))
        head = (
            "#![feature(custom_test_frameworks, test)]\n"
            f"#![test_runner(crate::{name}::run)]\n#![allow(warnings)]\n"
        )
        files[path] = f'{head}{text}\n#[path = "../{name}.rs"]\nmod {name};\n'
    if not roots:
        raise InvalidTask("the grader has no file tests/NAME.rs")
    is_alone = "Cargo.toml" not in tests  # a dependency may have a macro for tests
    if is_alone and not any(_CARGO_TEST.search(_code(text)) for text in tests.values()):
        raise InvalidTask("no file of the grader has a test function")
    if any(not re.fullmatch(r"[a-z]\w*", root) for root in roots):  # `it`, `sums_2`
        raise InvalidTask("a file tests/NAME.rs has no plain name")
    files[f"{name}.rs"] = launcher_text("cargo_test.rs", name)
    runs = tuple((f"./{root}",) for root in roots)
    return Tool("cargo", ("sh", "-c", _CARGO, "sh", *roots), runs, files)


def _junit(
    name: str, source: str | None, tests: Mapping[str, str], others: Mapping[str, str]
) -> Tool:
    place = None if source is None else f"{java_names(source).file}.java"
    files = _together(others, None, place, source, tests)
    if not any(_JUNIT_TEST.search(_code(text)) for text in tests.values()):
        raise InvalidTask("no file of the grader has a test of JUnit Jupiter")
    for path, text in tests.items():
        if path.endswith(".java") and _JUNIT_4.search(_code(text)):
            raise InvalidTask(f"{path} needs JUnit 4, and the runner junit has JUnit Jupiter alone")
    # A class may have its tests from another file: by inheritance, or an annotation of its own.
    classes = [
        _class_of(path, text)
        for path, text in tests.items()
        if path.endswith(".java") and _JAVA_CLASS.search(_code(text))
    ]
    files[f"{name}/{name}.java"] = launcher_text(
        "junit.java",
        name,
        CLASSES=", ".join(map(json.dumps, classes)),
        FILES=", ".join(json.dumps(path.rpartition("/")[2]) for path in tests),
    )
    jars = ":".join(f"{_JUNIT_FOLDER}/{jar}.jar" for jar in _JUNIT_JARS)
    sources = sorted(path for path in files if path.endswith(".java"))
    compiler = (
        *JAVAC, "-nowarn", "-d", f"{name}/classes", "-cp", jars, "-sourcepath", ".", *sources,
    )  # fmt: skip
    run = (*JAVA, "-cp", f"{jars}:{name}/classes", f"{name}.{name}")
    return Tool("junit", ("sh", "-c", _JAVAC, "sh", jars, *compiler), (run,), files)


def _class_of(path: str, text: str) -> str:
    """Return the class of a test file, with its package: the class with the file's name, if any."""
    names = java_names(text)
    stem = path.rpartition("/")[2].removesuffix(".java")
    if re.search(rf"\bclass\s+{re.escape(stem)}\b", text):  # `class PairTest`
        return names.main[: names.main.rfind(".") + 1] + stem
    return names.main


def _jest(
    name: str, source: str | None, tests: Mapping[str, str], others: Mapping[str, str]
) -> Tool:
    files = _together(others, _JEST_SETTINGS, "solution.js", source, tests)
    sources = [path for path in tests if path.endswith(_JEST_SOURCES)]
    chosen = [path for path in sources if _JEST_TEST_FILE.search(path)] or sources
    if not any(_JEST_TEST.search(_code(tests[path])) for path in sources):
        raise InvalidTask("no file of the grader has a test for jest")
    files[f"{name}/launcher.js"] = launcher_text(
        "jest.js", name, FILES=json.dumps(dict(tests)), TESTS=json.dumps(chosen)
    )
    return Tool("jest", None, ((*NODE, f"{name}/launcher.js"),), files)


def _code(text: str) -> str:
    """Return a test file without its comments, which may have switched-off tests."""
    return _COMMENT.sub("", text)


def _together(
    others: Mapping[str, str],
    settings: re.Pattern[str] | None,
    path: str | None,
    source: str | None,
    tests: Mapping[str, str],
) -> dict[str, str]:
    """Return the submission's files without settings of the tool, its source, and the grader's files."""
    found = {
        name: text for name, text in others.items() if settings is None or not settings.search(name)
    }
    if path is not None and source is not None:
        found[path] = source
    return found | dict(tests)


_TOOLS = {"cargo_test": _cargo, "jest": _jest, "junit": _junit}
