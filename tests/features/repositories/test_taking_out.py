"""What of a change crosses into the grading sandbox: rules by class, for honest changes and attacks."""

from __future__ import annotations

import json
import shlex
import tomllib

import pytest
from repository_files import files_of, state_of
from shared_data import shared_data

from proctor_service.features.repositories.change import Change, FileState
from proctor_service.features.repositories.patches import read_patch
from proctor_service.features.repositories.protection import Protection, Rules
from proctor_service.features.repositories.taking_out import graded, take_out

BASE = {
    "README.md": "x\n",
    "pyproject.toml": "[project]\nname = 'a'\n\n[tool.pytest.ini_options]\naddopts = '-q'\n",
    "setup.cfg": "[metadata]\nname = a\n\n[tool:pytest]\naddopts = -q\n",
    "package.json": '{"name": "a", "scripts": {"test": "node test/run.js"}}\n',
    ".gitignore": "build/\n*.log\n!keep.log\n",
    "src/app/__init__.py": "",
    "src/app/core.py": "x = 1\n",
    "src/app/testing/__init__.py": "",
    "src/app/testing/client.py": "",
    "src/app/testing/tests/test_client.py": "",
    "src/app/test/client.py": "",
    "tests/test_core.py": "def test_x(): pass\n",
    "tests/helper.py": "",
    "tests/data/a.json": "{}",
    "run_tests.sh": "set -e\nbash ci/inner.sh\npython -m pytest tests\n",
    "ci/inner.sh": "true\n",
    "ci/other.sh": "true\n",
    "Makefile": "test:\n\tpytest\n",
    "link": "symlink:src",
    "venv/pyvenv.cfg": "home = /usr\n",
    "venv/lib/a.py": "",
    "conftest.py": "",
    "setup.py": "",
    "lib.rs": "fn f() {}\n#[cfg(test)]\nmod tests {}\n",
}
PYTEST = Protection(
    report="pytest",
    listed=["tests/test_core.py::test_x", "src/app/testing/tests/test_client.py::test_y"],
    brought=[b"tests/test_core.py"],
    command=["PYTHONPATH=src:more bash run_tests.sh && make test"],
)
ANYWHERE = Protection(report="pytest", listed=PYTEST.listed, command=["pytest -q"])
PATHS = {
    "src/app/core.py": None,
    "src/app/new.py": None,
    "README.md": None,
    "src/app/test/client.py": None,
    "src/app/test/new.py": None,
    "src/app/testing/client.py": None,
    "src/app/testing/tests/test_client.py": "protected",
    "ci/other.sh": None,
    "setup.py": None,
    "src/.npmrc": None,
    "docs/index.md": None,
    "tests/helper.py": "protected",
    "tests/data/a.json": "protected",
    "tests/new_helper.py": "protected",
    "tests/test_new.py": "new_test",
    "tests/conftest.py": "protected",
    "tests": "protected",
    "src/app/testing/tests": "protected",
    "src": "protected",
    "conftest.py": "protected",
    "src/conftest.py": "protected",
    "pytest.ini": "protected",
    ".pytest.ini": "protected",
    "tox.ini": "protected",
    ".coveragerc": "protected",
    "src/sitecustomize.py": "protected",
    "src/usercustomize.py": "protected",
    "fast.pth": "protected",
    "fast-1.0.dist-info/entry_points.txt": "protected",
    "src/app.egg-info/entry_points.txt": "protected",
    "run_tests.sh": "protected",
    "ci/inner.sh": "protected",
    "Makefile": "protected",
    ".git/hooks/post-checkout": "git",
    "sub/.git/config": "git",
    "sub/.GIT": "git",
    "src/app/__pycache__/core.cpython-311.pyc": "cache",
    "src/app/core.pyc": "cache",
    ".pytest_cache/v/x": "cache",
    ".venv/lib/x.py": "environment",
    "venv/lib/a.py": "environment",
    "venv/lib/new.py": "environment",
    "node_modules/x/index.js": "environment",
    "build/x.py": "ignored",
    "src/a.log": "ignored",
    "src/keep.log": None,
    "pytest.py": "shadows_the_runner",
    "src/_pytest/python.py": "shadows_the_runner",
    "pluggy.so": "shadows_the_runner",
    "unittest/__init__.py": "shadows_the_runner",
    "src/app/pytest.py": None,
    "argparse.py": "shadows_the_runner",
    "src/json/__init__.py": "shadows_the_runner",
    "more/json.py": "shadows_the_runner",
    "other/json.py": None,
    "packaging/debian/rules": None,
    ".env": "protected",
    "../up.py": "outside",
    "/etc/passwd": "outside",
    "a//b": "outside",
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_crosses_or_does_not(path: str) -> None:
    base = files_of(BASE)
    assert Rules(base, PYTEST).reason(path.encode()) == PATHS[path]


def test_a_new_file_that_the_command_does_not_collect_crosses() -> None:
    base = files_of(BASE)
    commands = {
        "pytest -rA tests": None,
        "python -m pytest tests/test_core.py": None,
        "cd src && pytest ../tests": None,
        "pytest": "new_test",
        "pytest -k x": "new_test",
        "pytest tests .": "new_test",
        "bash run_tests.sh": "new_test",
        "pytest $FILES": "new_test",
    }
    for command, reason in commands.items():
        protection = Protection(listed=PYTEST.listed, command=[command])
        assert Rules(base, protection).reason(b"test_quick.py") == reason, command


def test_files_of_tests_are_found_by_all_forms_of_names() -> None:
    files = {
        "tests/test_account.py": "",
        "tests/admin/tests.py": "",
        "units/length.py": "",
        "src/test/java/a/RingTest.java": "",
        "src/main/java/a/Ring.java": "",
        "web/ring.test.js": "",
        "pkg/ring_test.go": "",
        "pkg/ring.go": "",
        "Cargo.toml": "",
        "tests/ring.rs": "",
        "src/lib.rs": "",
    }
    cases = [
        ("unittest", "tests.test_account.Account.test_x", "tests/test_account.py", "units/length.py"),
        ("django", "test_x (admin.tests.AdminTest)", "tests/admin/tests.py", "units/length.py"),
        ("pytest", "units/length.py::units.length.f", "tests/test_account.py", "units/length.py"),
        ("junit", "a.RingTest.drops", "src/test/java/a/RingTest.java", "src/main/java/a/Ring.java"),
        ("jest", "Ring > drops", "web/ring.test.js", "pkg/ring.go"),
        ("go", "a/pkg.TestRing", "pkg/ring_test.go", "pkg/ring.go"),
        ("cargo", "ring::drops", "tests/ring.rs", "src/lib.rs"),
    ]  # fmt: skip
    for kind, name, test, source in cases:
        rule = Rules(files_of(files), Protection(report=kind, listed=[name])).reason
        assert (rule(test.encode()), rule(source.encode())) == ("protected", None), kind


def test_files_that_settings_and_options_name_are_protected() -> None:
    files = {
        "jest.config.js": "a = {setupFilesAfterEnv: ['<rootDir>/config/setup.js'], a: './lib/a.js'}",
        ".mocharc.yml": "spec: x\nrequire:\n  - ./config/hooks\n",
        "package.json": '{"exports": {"require": "./lib/a.js"}, "jest": {"globalSetup": "./config/all.js"}}',
        **dict.fromkeys(("config/setup.js", "config/hooks.js", "config/all.js", "lib/a.js"), ""),
        "ci/ci.ini": "",
    }  # fmt: skip
    protection = Protection(report="mocha", command=["npx mocha --config ci/ci.ini lib/a.js"])
    rule = Rules(files_of(files), protection).reason
    found = {path for path in files if rule(path.encode()) == "protected"}
    assert found == files.keys() - {"lib/a.js", "package.json"}


def test_vendored_libraries_of_tests_are_the_tasks() -> None:
    rule = Rules(files_of({"go.mod": "", "a_test.go": ""}), Protection(report="go")).reason
    assert rule(b"vendor/github.com/stretchr/testify/assert/assertions.go") == "protected"
    assert rule(b"vendor/github.com/pkg/errors/errors.go") is None


def test_plugins_that_a_build_would_install_are_the_tasks() -> None:
    text = "[project]\nname='a'\n[project.entry-points.pytest11]\nx='a.b'\n[tool.hatch.envs.t]\nx='true'\n"
    crossing = take_out(
        change_of(**{"pyproject.toml": text}), Rules(files_of({"a.py": ""}), PYTEST)
    )
    state = crossing.change.files[b"pyproject.toml"]
    assert state is not None
    parsed = tomllib.loads(state.content.decode())
    assert parsed["project"] == {"name": "a", "entry-points": {}}
    assert "envs" not in parsed["tool"]["hatch"]
    ini = "[options.entry_points]\npytest11 =\n  x = a.b\n"
    assert not take_out(
        change_of(**{"setup.cfg": ini}), Rules(files_of({"a.py": ""}), PYTEST)
    ).change


def change_of(**files: str | None) -> Change:
    return Change(
        {path.encode(): None if text is None else state_of(text) for path, text in files.items()}
    )


def test_settings_cross_but_for_the_keys_of_the_runner() -> None:
    base = files_of(BASE)
    change = change_of(
        **{
            "pyproject.toml": "[project]\nname='a'\nversion='2'\n[tool]\npytest.ini_options.addopts='--co'\n",
            "setup.cfg": "[tool:pytest]\naddopts = --co\n[metadata]\nname = b\n[coverage:run]\nx = 1\n",
            "src/app/core.py": "x = 2\n",
        }
    )
    crossing = take_out(change, Rules(base, PYTEST))
    files = crossing.change.files
    toml, ini = files[b"pyproject.toml"], files[b"setup.cfg"]
    assert toml is not None
    assert ini is not None
    assert b'"version" = "2"' in toml.content
    assert b'"addopts" = "-q"' in toml.content
    assert ini.content == b"[metadata]\nname = b\n[tool:pytest]\naddopts = -q\n"
    assert {(each.path, each.reason) for each in crossing.left_out} == {
        ("pyproject.toml", "protected_keys"),
        ("setup.cfg", "protected_keys"),
    }
    assert crossing.signals == ("protected_files_changed",)
    harmless = change_of(**{"pyproject.toml": BASE["pyproject.toml"].replace("'a'", "'b'")})
    crossing = take_out(harmless, Rules(base, PYTEST))
    assert (crossing.change.files, crossing.left_out) == (harmless.files, ())


def test_settings_that_the_task_does_not_have_do_not_cross() -> None:
    base = files_of(
        {"pyproject.toml": "[project]\nname = 'a'\n", "setup.cfg": "[metadata]\nname = a\n"}
    )
    for text in (
        "[tool.pytest.ini_options]\naddopts = '--co'\n",
        "tool.pytest.ini_options.addopts = '--co'\n",
        "[tool]\npytest = {ini_options = {addopts = '--co'}}\n[tool.black]\n",
        "[tool.'pytest']\nini_options.addopts = '--co'\n[project]\n[tool.coverage.run]\n",
    ):
        for name in ("pyproject.toml", "sub/pyproject.toml"):
            crossing = take_out(change_of(**{name: text}), Rules(base, PYTEST))
            state = crossing.change.files[name.encode()]
            assert state is not None
            tools = tomllib.loads(state.content.decode()).get("tool", {})
            assert not {"pytest", "coverage"} & tools.keys()
    ini = "[metadata]\nname = b\n[tool:pytest]\naddopts = --co\n[pytest]\n[coverage:run]\n"
    state = take_out(change_of(**{"setup.cfg": ini}), Rules(base, PYTEST)).change.files[
        b"setup.cfg"
    ]
    assert state == state_of("[metadata]\nname = b\n")
    package = change_of(**{"package.json": '{"name": "a", "jest": {"testRegex": "x"}}'})
    node = Protection(report="jest", listed=["x"], command=["npx jest"])
    state = take_out(package, Rules(base, node)).change.files[b"package.json"]
    assert state is not None
    assert json.loads(state.content) == {"name": "a"}


def test_settings_that_cannot_be_read_are_left_out_whole() -> None:
    texts = [
        None,
        "symlink:/dev/null",
        "[project\n",
        "x = " + "[" * 5000 + "\n",
        "a = 1\n" + "# " + "x" * 600_000,
    ]
    for text in texts:
        crossing = take_out(change_of(**{"pyproject.toml": text}), Rules(files_of(BASE), PYTEST))
        assert not crossing.change, text
        assert [each.reason for each in crossing.left_out] == ["protected"]
    ini = "[metadata]\n\x0b[tool:pytest]\naddopts = --co\n"
    assert not take_out(change_of(**{"setup.cfg": ini}), Rules(files_of(BASE), PYTEST)).change


def test_scripts_of_package_json_are_the_tasks() -> None:
    protection = Protection(report="node", listed=["x"], command=["npm test --silent"])
    base = files_of({**BASE, "test/run.js": "", "lib/ring.js": ""})
    change = change_of(
        **{
            "package.json": '{"name": "b", "jest": {}, "scripts": {"test": "true"}}',
            "test/run.js": "1",
            "lib/ring.js": "2",
        }
    )
    crossing = take_out(change, Rules(base, protection))
    state = crossing.change.files[b"package.json"]
    assert state is not None
    assert json.loads(state.content) == {"name": "b", "scripts": {"test": "node test/run.js"}}
    assert b"test/run.js" not in crossing.change.files
    assert crossing.change.files[b"lib/ring.js"] == state_of("2")


def test_links_and_files_in_the_place_of_folders_do_not_cross() -> None:
    base = files_of(BASE)
    change = change_of(
        **{
            "tests": "symlink:/tmp",
            "tests/test_core.py": None,
            "tests/helper.py": None,
            "docs": "symlink:/etc",
            "docs/passwd": "x",
            "venv": "a file",
            "src/app/core.py": "x = 2\n",
        }
    )
    crossing = take_out(change, Rules(base, PYTEST))
    assert set(crossing.change.files) == {b"docs", b"src/app/core.py"}
    found = {each.path: each.reason for each in crossing.left_out}
    assert found["docs/passwd"] == "below_a_link"
    assert found["tests"] == found["venv"] == found["tests/helper.py"] == "protected"


def test_signals_of_builds_and_inline_tests() -> None:
    base = files_of({**BASE, "Cargo.toml": "[package]\n"})
    protection = Protection(report="cargo", listed=["tests::x"], command=["cargo test"])
    change = change_of(
        **{"Cargo.toml": "[lib]\n", "lib.rs": BASE["lib.rs"].replace("{}\n#", "{ 1 }\n#")}
    )
    assert take_out(change, Rules(base, protection)).signals == ("build_files_changed",)
    change = change_of(**{"lib.rs": "fn f() {}\n#[cfg(test)]\nmod tests { }\n"})
    assert take_out(change, Rules(base, protection)).signals == ("inline_tests_changed",)


def test_protected_files_have_the_state_of_the_reference() -> None:
    base = files_of(BASE)
    reference = change_of(
        **{
            "pyproject.toml": BASE["pyproject.toml"].replace("-q", "-q --strict-markers"),
            "conftest.py": "import os\n",
            "src/app/core.py": "x = 3\n",
            "tests/helper.py": None,
        }
    )
    change = change_of(
        **{
            "pyproject.toml": "[project]\nname = 'b'\n",
            "src/app/core.py": "x = 2\n",
            "conftest.py": "evil",
        }
    )
    crossing = take_out(change, Rules(base, PYTEST))
    tests = {b"tests/test_core.py": state_of("def test_y(): pass\n")}
    state = graded(Rules(base, PYTEST), crossing.change, reference, tests, [b"tests/data/a.json"])
    toml = state.files[b"pyproject.toml"]
    assert toml is not None
    assert b'"name" = "b"' in toml.content
    assert b"--strict-markers" in toml.content
    assert {path: each for path, each in state.files.items() if path != b"pyproject.toml"} == {
        b"src/app/core.py": state_of("x = 2\n"),
        b"conftest.py": state_of("import os\n"),
        b"tests/helper.py": None,
        b"tests/data/a.json": None,
        b"tests/test_core.py": tests[b"tests/test_core.py"],
    }


def test_a_file_that_the_reference_adds_is_no_ignored_one() -> None:
    path, base = b"build/table.py", files_of(BASE)
    assert Rules(base, PYTEST).reason(path) == "ignored"
    assert Rules(base, Protection(reference=[path])).reason(path) is None


def test_of_the_shared_cases_no_honest_source_and_no_attack_on_files_is_missed() -> None:
    needs = {
        "clean_tree",
        "trusted_settings",
        "restore_tests_folder",
        "trusted_command",
        "write_no_symlinks",
    }
    for line in shared_data("repositories.jsonl").read_text().splitlines():
        case = json.loads(line)
        if not case.get("patch"):
            continue
        base = files_of(case["repository"])
        tests = {path.encode(): state_of(text) for path, text in case.get("tests", {}).items()}
        protection = Protection(
            report=case["report"],
            listed=[*case.get("fail_to_pass", []), *case.get("pass_to_pass", [])],
            brought=list(tests),
            command=[shlex.join(case["command"])],
            reference=[path.encode() for path in case["gold"]],
        )
        change = (
            read_patch(case["patch"].encode()).applied(base, Rules(base, protection).reason).change
        )
        crossing = take_out(change, Rules(base, protection))
        crossed = base.after(crossing.change)
        for path, text in case["gold"].items():
            if case["kind"] == "honest" and path.encode() in change.files and text is not None:
                assert path.encode() in crossing.change.files, case["id"]
        if case["kind"] == "attack" and case["needs"] in needs and ".ci/sh" not in case["patch"]:
            protected = [path for path in base.paths() if Rules(base, protection).reason(path)]
            assert all(crossed[path] == base.files[path] for path in protected), case["id"]
            assert crossing.left_out, case["id"]


def test_deletions_are_changes_too() -> None:
    change = Change(
        {b"conftest.py": None, b"src/app/core.py": None, b"src/app/__pycache__/x.pyc": None}
    )
    crossing = take_out(change, Rules(files_of(BASE), PYTEST))
    assert dict(crossing.change.files) == {b"src/app/core.py": None}
    assert len(crossing.change.files) == 1
    with pytest.raises(KeyError):
        crossing.change.files[b"conftest.py"]
    assert FileState("644", b"") not in crossing.change.files.values()
