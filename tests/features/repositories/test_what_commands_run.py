"""Files that decide how tests run without a well-known name: what commands, Makefiles and settings run."""

from __future__ import annotations

import json

import pytest
from repository_files import files_of

from proctor_service.features.repositories import settings_keys
from proctor_service.features.repositories.names import folded
from proctor_service.features.repositories.protection import Protection, Rules

BASE = {
    "Makefile": "include build/common.mk $(TOP)/more.mk\n"
    "-include $(wildcard *.local.mk) extra/*.mak\n"
    "PY ?= python\n\nall: lint\n\ttrue\n"
    "test: ready\n\t@cd . && bash ci/run.sh\nready:\n\t-$(PY) ci/ready.py\nlint:\n\tsh ci/lint.sh\n",
    "build/common.mk": "-include local.mk\n",
    "more.mk": "",
    "sub/Makefile": "test: ; ./inner.sh\n",
    "sub/inner.sh": "",
    "ci/run.sh": '[ -f ci/local.sh ] && . ci/local.sh\n. "$HERE/ci/env.sh"\n. "$(dirname "$0")/ci/two.sh"\n'
    "npx grunt test\nfor each in env.d/*.sh; do . $each; done\n",
    "ci/env.sh": "",
    "ci/two.sh": "",
    "ci/ready.py": "import ready_config, os\nfrom ready_more import x\n",
    "ci/ready_config.py": "import ready_inner\n",
    "ci/ready_inner.py": "",
    "ci/ready_more.py": "",
    "ci/lint.sh": "",
    "ci/other.sh": "",
    "Gruntfile.js": "",
    "tox.ini": "[testenv]\ncommands =\n    python {toxinidir}/ci/tox.py {posargs}\n",
    "ci/tox.py": "",
    "jest.config.js": 'module.exports = {...require("./config/base"), '
    'transform: {"^.+$": "<rootDir>/scripts/compile.js"}, setupFiles: ["./scripts/setup.js"]}\n',
    "config/base.js": 'require("./inner.js"); require("../package.json")\n',
    "config/inner.js": "",
    "config/unused.js": "",
    "babel.config.js": "module.exports = "
    '{plugins: ["./scripts/plugin.js", "./index.js", "./src/plugin.ts"]}\n'
    'require("./babel-own.js"); require("./packages/a/index.js")\n',
    "babel-own.js": "",
    "index.js": "",
    "packages/a/index.js": "",
    "vite.config.ts": 'import own from "./src/plugin"\n',
    "scripts/compile.js": "",
    "scripts/setup.js": "",
    "scripts/plugin.js": "",
    "scripts/release.js": "",
    "src/plugin.ts": "",
    "package.json": "{}",
    "unit_tests/test_a.py": "",
    "unit_tests/helper.py": "",
    "app/__init__.py": "",
    "app/core.py": "",
    "slug.py": "",
    "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['extra']\n",
    "extra/x.py": "",
    "src/main/java/a/B.java": "",
    "src/__tests__/a.test.js": "",
    "Cargo.toml": "",
}
PYTEST = Protection(
    report="pytest",
    listed=["unit_tests/test_a.py::test_x"],
    command=[
        "cd . && make test && make -C sub test; tox -e py; python -m runner\n"
        "export PATH=./tools/bin:$PATH; PYTHONPATH=more pytest unit_tests"
    ],
    python_path="first:./second",
    path="./bin:/usr/bin",
    reference=[b"ci/ready_more.py"],
    installed=[b"hamcrest", b"app", b"slug"],
)
OF_PYTEST = {
    "Makefile": "protected",
    "GNUmakefile": "protected",
    "makefile": "protected",
    "build/common.mk": "protected",
    "local.mk": "protected",
    "more.mk": "protected",
    "sub/Makefile": "protected",
    "sub/inner.sh": "protected",
    "ci/run.sh": "protected",
    "ci/local.sh": "protected",
    "ci/env.sh": "protected",
    "ci/two.sh": "protected",
    "ci/ready.py": "protected",
    "ci/ready_config.py": "protected",
    "ci/ready_inner.py": "protected",
    "ci/subprocess.py": "shadows_the_runner",
    "env.d/a.sh": "protected",
    "x.local.mk": "protected",
    "extra/a.mak": "protected",
    "bin/python": "shadows_the_runner",
    "tools/bin/bash": "shadows_the_runner",
    "ci/tox.py": "protected",
    "Gruntfile.js": "protected",
    "runner.py": "protected",
    "runner/__init__.py": "protected",
    "runner/__main__.py": "protected",
    "unit_tests/helper.py": "protected",
    "hamcrest.py": "shadows_the_runner",
    "hamcrest/__init__.py": "shadows_the_runner",
    "src/hamcrest/core.py": "shadows_the_runner",
    "first/json.py": "shadows_the_runner",
    "second/json.py": "shadows_the_runner",
    "extra/json.py": "shadows_the_runner",
    "more/hamcrest.py": "shadows_the_runner",
    # honest changes beside them
    "ci/lint.sh": None,
    "ci/ready_more.py": None,  # the reference changes it: it is no mere part of the tests' programs
    "ci/helper.py": None,
    "bin/slug": None,
    "env.d/a.txt": None,
    "extra/python": None,
    "ci/other.sh": None,
    "ci/new.sh": None,
    "build/other.mk": None,
    "build/run.py": None,
    "app/core.py": None,
    "app/hamcrest.py": None,
    "app/json.py": None,
    "app/__main__.py": None,
    "slug/__init__.py": None,  # the module becomes a package; an older release is installed
    "src/slug.py": None,
    "docs/hamcrest.md": None,
    "hamcrest.txt": None,
    "runner_of_jobs.py": None,
    "first/new.py": None,
    "extra/new.py": None,
    "sub/new.py": None,
    "scripts/release.js": None,
    "setup.py": None,
}
JEST = Protection(
    report="jest", listed=["a > b"], brought=[b"src/__tests__/a.test.js"], command=["npx jest"]
)
OF_JEST = {
    "config/base.js": "protected",
    "config/inner.js": "protected",
    "scripts/compile.js": "protected",
    "scripts/setup.js": "protected",
    "scripts/plugin.js": "protected",
    "babel-own.js": "protected",
    "__mocks__/chai.js": "protected",
    "src/__snapshots__/a.test.js.snap": "protected",
    "bunfig.toml": "protected",
    ".yarn/releases/yarn.cjs": "protected",
    ".pnp.cjs": "protected",
    "index.js": None,
    "packages/a/index.js": None,
    "config/unused.js": None,
    "config/new.js": None,
    "scripts/release.js": None,
    "src/plugin.ts": None,
    "src/new.js": None,
    "package.json": None,
    "src/mocks/chai.js": None,
}
JUNIT = Protection(report="junit", listed=["a.BTest.c"], command=["mvn -o test"])
OF_JUNIT = {
    "src/main/java/org/junit/Assert.java": "shadows_the_runner",
    "core/src/main/kotlin/kotlin/test/A.kt": "shadows_the_runner",
    "src/main/java/a/New.java": None,
    "src/main/java/org/junitish/A.java": None,
}


@pytest.mark.parametrize(
    ("protection", "expected"),
    [(PYTEST, OF_PYTEST), (JEST, OF_JEST), (JUNIT, OF_JUNIT)],
    ids=["pytest", "jest", "junit"],
)
def test_files_cross_or_do_not(protection: Protection, expected: dict[str, str | None]) -> None:
    reason = Rules(files_of(BASE), protection).reason
    assert {path: reason(path.encode()) for path in expected} == expected


def test_new_modules_of_the_reference_cross() -> None:
    protection = Protection(
        report="pytest",
        command=["pytest"],
        installed=[b"hamcrest"],
        reference=[b"hamcrest/core.py"],
    )
    reason = Rules(files_of(BASE), protection).reason
    assert reason(b"hamcrest/__init__.py") is None


REPORTS = Protection(
    report="junit", listed=["a"], command=["make check"], collected=["reports/*.xml", "*out/r.txt"]
)


def test_files_that_hold_outcomes_are_no_part_of_a_change() -> None:
    reason = Rules(files_of(BASE), REPORTS).reason
    paths = ("reports/a.xml", "reports/deep/a.xml", "sub/out/r.txt", "out/r.txt")
    assert {reason(each.encode()) for each in paths} == {"protected"}
    assert {reason(each) for each in (b"reports/a.xsl", b"src/reports.xml", b"out/r.md")} == {None}


def test_modules_that_python_imports_at_its_start_do_not_cross() -> None:
    reason = Rules(files_of(BASE), PYTEST).reason
    paths = (
        "src/sitecustomize/__init__.py",
        "usercustomize.cpython-311.so",
        "more/sitecustomize.py",
    )
    assert {reason(each.encode()) for each in paths} == {"protected"}


GO_MOD = b"module a\n\ngo 1.22\n\nrequire b v1.0.0\n"
REPLACES = b"replace (\n\tb => ./fake\n)\nreplace c v1.0.0 => ./c\n"


def test_replaced_modules_of_go_and_scripts_of_composer_are_the_tasks() -> None:
    keys = settings_keys.with_protected_keys
    assert keys(b"go.mod", GO_MOD + REPLACES, GO_MOD) == GO_MOD
    assert keys(b"go.mod", GO_MOD, GO_MOD + REPLACES) == GO_MOD + REPLACES
    honest = GO_MOD.replace(b"v1.0.0", b"v1.1.0") + REPLACES
    assert keys(b"go.mod", honest, GO_MOD + REPLACES) == honest
    before = b'{"scripts": {"test": "phpunit"}, "require": {}}'
    after = before.replace(b"phpunit", b"true")
    assert json.loads(keys(b"composer.json", after, before)) == json.loads(before)
    assert keys(b"composer.json", before.replace(b"{}", b'{"a": "1"}'), before) != before


def test_keys_of_cargo_are_the_tasks() -> None:
    base = b'[package]\nname = "a"\n\n[[test]]\nname = "ring"\npath = "tests/ring.rs"\n'
    changed = base.replace(b"tests/ring.rs", b"src/fake.rs") + b'\n[dependencies]\nb = "1"\n'
    merged = settings_keys.with_protected_keys(b"core/Cargo.toml", changed, base)
    assert b"tests/ring.rs" in merged
    assert b'["dependencies"]' in merged
    assert b"fake" not in merged
    honest = base + b'\n[dependencies]\nb = "1"\n'
    assert settings_keys.with_protected_keys(b"Cargo.toml", honest, base) == honest


HOSTILE_SETTINGS = {
    "a key of many parts": (b"pyproject.toml", b".".join([b"a"] * 100_000) + b" = 1\n"),
    "quoted parts": (b"pyproject.toml", b"[" + b" . ".join([b'"a\\".b"'] * 50_000) + b"]\n"),
}
HONEST_SETTINGS = {
    "blank lines": (b"setup.cfg", b"\n" * 250_000),
    "blanks": (b"setup.cfg", b"x = 1\n" + b" " * 250_000 + b"\n"),
    "a long word": (b"pyproject.toml", b'a = "' + b"b" * 250_000 + b'"\n'),
    "many versions": (b"pyproject.toml", b"a = [" + b'"b >= 1.2.3.4", ' * 10_000 + b"]\n"),
}


@pytest.mark.parametrize("case", [*HOSTILE_SETTINGS, *HONEST_SETTINGS])
def test_settings_are_read_in_linear_time(case: str) -> None:
    if case in HONEST_SETTINGS:
        path, content = HONEST_SETTINGS[case]
        assert settings_keys.with_protected_keys(path, content, b"") == content
        return
    path, content = HOSTILE_SETTINGS[case]
    with pytest.raises(settings_keys.Unreadable):
        settings_keys.with_protected_keys(path, content, b"")


def test_names_are_folded_in_linear_time() -> None:
    blanks, brackets = "a" + " " * 1_000_000 + "b", "]" + "[/" * 500_000
    assert folded(blanks, ["without_timing"]) == blanks
    assert folded(brackets, ["short_paths"]) == brackets
    assert folded("a [/*] b[/c/d] e", ["short_paths"]) == "a [/*] b[/d] e"
    assert folded("a  (0.1s)", ["without_timing"]) == "a"
