"""Environments in a store: built by the real uv, used, checked and removed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tiny_packages import DEFAULT, offline, usable_interpreters, write_source, write_wheel

from proctor_service.errors import StartError
from proctor_service.features.environments.interpreters import inspect
from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.sandbox.environments import BuiltEnvironment
from proctor_service.settings import Settings
from proctor_service.settings.environments import Environment

ONE = Environment(requirements=("proctortest-one",))


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = offline(monkeypatch, tmp_path)
    write_wheel(folder, "proctortest_one", {"proctortest_one/__init__.py": "X = 1"})
    return folder


@pytest.fixture
def store(tmp_path: Path) -> EnvironmentStore:
    return EnvironmentStore(tmp_path / "deep" / "store")


def folders(store: EnvironmentStore) -> list[str]:
    """The names of all folders in the store but that of the locks."""
    return sorted({each.name for each in store.folder.glob("*")} - {"locks"})


def build(store: EnvironmentStore, definition: Environment) -> BuiltEnvironment:
    return store.build("one", definition, DEFAULT)


def refused(store: EnvironmentStore, definition: Environment) -> str:
    """The words of a build that fails; it leaves nothing in the store."""
    before = folders(store)
    with pytest.raises(StartError) as raised:
        build(store, definition)
    assert folders(store) == before
    return str(raised.value)


# ------------------------------------------------------------ builds


def test_a_built_environment_imports_its_packages(store: EnvironmentStore, wheels: Path) -> None:
    with pytest.raises(StartError, match="environment one is not built: run `proctor env build"):
        store.built("one", ONE, DEFAULT)
    lines: list[str] = []
    built = store.build("one", ONE, DEFAULT, lines.append)
    assert "proctortest-one==1.0" in "".join(lines)
    command = [
        str(built.python),
        "-I",
        "-c",
        "import proctortest_one as p; print(p.X, p.__cached__)",
    ]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert shown[0] == "1"
    assert Path(shown[1]).is_file()  # compiled by the build
    assert dict(built.packages) == {"proctortest-one": "1.0"}
    assert built.version == inspect(DEFAULT).version
    assert built == store.built("one", ONE, DEFAULT)
    assert store.check("one", ONE, DEFAULT) == []
    assert all(each.lstat().st_nlink == 1 for each in store.folder.rglob("*") if each.is_file())


@pytest.mark.slow
def test_a_second_build_changes_nothing_and_a_rebuild_takes_newer_packages(
    store: EnvironmentStore, wheels: Path
) -> None:
    first = build(store, ONE)
    assert first.python is not None
    number = first.python.parent.stat().st_ino
    assert build(store, ONE) == first
    assert first.python.parent.stat().st_ino == number
    write_wheel(wheels, "proctortest_one", {"proctortest_one.py": ""}, version="2.0")
    assert build(store, ONE) == first
    newer = store.build("one", ONE, DEFAULT, rebuild=True)
    assert dict(newer.packages) == {"proctortest-one": "2.0"}
    assert newer.folder == first.folder
    assert newer.digest != first.digest


@pytest.mark.slow
def test_each_interpreter_has_a_folder(store: EnvironmentStore, wheels: Path) -> None:
    interpreters = usable_interpreters()
    for each in interpreters:
        definition = Environment(python=str(each.base), requirements=ONE.requirements)
        built = build(store, definition)
        asked = [str(built.python), "-c", "import platform; print(platform.python_version())"]
        shown = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        assert shown == built.version == each.version
    assert len(folders(store)) == len(interpreters)


@pytest.mark.slow
def test_the_folder_goes_by_the_packages_and_the_digest_by_everything(
    store: EnvironmentStore, wheels: Path
) -> None:
    write_wheel(wheels, "proctortest_two", {"proctortest_two.py": ""})
    both = ("proctortest-one", "proctortest-two")
    first = build(store, Environment(requirements=both))
    others = [
        Environment(requirements=both[::-1], env={"A": "1"}),
        Environment(requirements=both[::-1], paths=(Path("/srv"),)),
        Environment(requirements=both[::-1], preload=("json",)),
        Environment(requirements=both[::-1], languages=()),
    ]
    found = [build(store, each) for each in others]
    assert {each.folder for each in found} == {first.folder}
    assert len({first.digest, *(each.digest for each in found)}) == 1 + len(others)
    assert build(store, Environment(requirements=(*both, *both))).digest == first.digest


def test_an_environment_without_requirements_is_its_interpreter(store: EnvironmentStore) -> None:
    built = build(store, Environment(preload=("json",)))
    assert (built.python, built.folder) == (DEFAULT, None)
    assert built == store.built("one", Environment(preload=("json",)), DEFAULT)
    assert built.digest != store.built("one", Environment(), DEFAULT).digest
    assert folders(store) == []


@pytest.mark.slow
def test_a_virtual_environment_is_used_as_it_is_or_not_at_all(
    store: EnvironmentStore, tmp_path: Path, wheels: Path
) -> None:
    venv = build(store, ONE).python
    definition = Environment(python=str(venv))
    used = build(store, definition)
    assert (used.python, used.folder, "proctortest-one" in used.packages) == (venv, None, True)
    words = refused(store, Environment(python=str(venv), requirements=("proctortest-one",)))
    assert f"name {DEFAULT}" in words


# ------------------------------------------------------------ builds that fail


def test_without_a_network_the_words_are_those_of_uv(store: EnvironmentStore, wheels: Path) -> None:
    words = refused(store, Environment(requirements=("proctortest-missing",)))
    assert words.startswith("environment one cannot be built: uv failed:\n")
    assert "proctortest-missing was not found" in words
    assert "network was disabled" in words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("import proctortest_absent", "No module named 'proctortest_absent'"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by signal 11"),
        ("import os; os._exit(3)", "exit code 3"),
    ],
)
def test_a_package_that_cannot_be_imported_is_refused(
    store: EnvironmentStore, wheels: Path, module: str, words: str
) -> None:
    write_wheel(wheels, "proctortest_bad", {"proctortest_bad/__init__.py": module})
    refusal = refused(store, Environment(requirements=("proctortest.BAD",)))
    assert "proctortest_bad: module proctortest_bad cannot be imported" in refusal
    assert words in refusal


@pytest.mark.slow
def test_any_module_will_do_where_none_has_the_name_of_the_package(
    store: EnvironmentStore, wheels: Path
) -> None:
    modules = {"proctortest_x.py": "1 / 0", "proctortest_y.py": "", "_proctortest.py": "1 / 0"}
    write_wheel(wheels, "proctortest_several", modules)
    build(store, Environment(requirements=("proctortest-several",)))
    write_wheel(wheels, "proctortest_none", {"proctortest_none-stubs/a.pyi": ""})
    build(store, Environment(requirements=("proctortest-none; python_version > '3'",)))


@pytest.mark.slow
def test_a_preload_that_cannot_be_imported_is_refused_also_later(
    store: EnvironmentStore, wheels: Path
) -> None:
    definition = Environment(requirements=ONE.requirements, preload=("json", "proctortest_no"))
    assert "preload: ModuleNotFoundError: No module named 'proctortest_no'" in refused(
        store, definition
    )
    build(store, ONE)
    assert "preload: ModuleNotFoundError" in refused(store, definition)
    assert store.check("one", ONE, DEFAULT) == []
    assert "preload: ModuleNotFoundError" in store.check("one", definition, DEFAULT)[0]
    with pytest.raises(StartError, match="preload: ModuleNotFoundError"):
        store.build("one", definition, DEFAULT, rebuild=True)
    assert store.check("one", ONE, DEFAULT) == []  # the old one remains


def test_a_failed_build_shows_the_end_of_its_words_without_credentials(
    store: EnvironmentStore, wheels: Path, tmp_path: Path
) -> None:
    code = (
        "print('word ' * 200_000)\n"
        "raise SystemExit('git+https://user:hunter2@example.org: no compiler')"
    )
    words = refused(store, Environment(requirements=(write_source(tmp_path / "s", code),)))
    assert "Failed to build" in words
    assert "no compiler" in words
    assert "hunter2" not in words
    assert len(words) < 20_000


def test_builds_see_no_secret_of_the_service_and_imports_no_variable(
    store: EnvironmentStore, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROCTOR_TOKENS", "CWSANDBOX_API_KEY", "aviato_api_key", "PYTHONPATH"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:1")
    dump = "import json, os; json.dump(dict(os.environ), open({!r}, 'w'))"
    built, imported = tmp_path / "built.json", tmp_path / "imported.json"
    source = write_source(tmp_path / "s", dump.format(str(built)))
    assert "environment one cannot be built" in refused(store, Environment(requirements=(source,)))
    seen = json.loads(built.read_text())
    assert "hunter2" not in seen.values()
    assert seen["HTTPS_PROXY"] == "http://proxy.invalid:1"
    text = dump.format(str(imported))
    write_wheel(wheels, "proctortest_dump", {"proctortest_dump.py": text})
    build(store, Environment(requirements=("proctortest-dump",), env={"A": "1"}))
    assert set(json.loads(imported.read_text())) <= {
        "A",
        "HOME",
        "TMPDIR",
        "PATH",
        "LANG",
        "LC_CTYPE",
    }


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path, wheels: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "store"):
        with pytest.raises(StartError, match=f"environment one cannot be built: .*{tmp_path}/file"):
            EnvironmentStore(folder).build("one", ONE, DEFAULT)


# ------------------------------------------------------------ later


@pytest.mark.slow
def test_a_damaged_environment_is_found_and_built_again(
    store: EnvironmentStore, wheels: Path
) -> None:
    built = build(store, ONE)
    assert built.python is not None
    next(built.python.parents[1].rglob("proctortest_one/__init__.py")).unlink()
    changed = store.check("one", ONE, DEFAULT)
    assert changed[0].startswith("files changed since the build: 1, such as venv/lib/")
    assert changed[0].endswith("/proctortest_one/__init__.py")
    assert build(store, ONE) == built
    assert store.check("one", ONE, DEFAULT) == []
    (built.python.parents[1] / "pyvenv.cfg").unlink()
    assert any("version none was found" in each for each in store.check("one", ONE, DEFAULT))
    assert build(store, ONE) == built
    assert store.check("one", ONE, DEFAULT) == []
    assert built.folder is not None
    (built.folder / "manifest.json").write_text("{")
    with pytest.raises(StartError, match="environment one is damaged: run `proctor env build one`"):
        store.built("one", ONE, DEFAULT)
    assert build(store, ONE) == built
    assert folders(store) == [built.folder.name]


def test_an_interpreter_that_changed_is_named(
    store: EnvironmentStore, wheels: Path, tmp_path: Path
) -> None:
    built = build(store, ONE)
    assert built.folder is not None
    other = built.folder.rename(store.folder / ("0" * 32))
    manifest = json.loads((other / "manifest.json").read_text())
    for interpreter, version, words in (
        (str(DEFAULT), "3.11.0", f"built with {DEFAULT} 3.11.0, which is now {built.version}"),
        (str(tmp_path / "python"), "3.11.0", f"{tmp_path}/python 3.11.0, which is gone"),
        ("/bin/sh", "3.11.0", f"but its interpreter is now {DEFAULT}"),
    ):
        changed = {**manifest, "interpreter": interpreter, "version": version}
        (other / "manifest.json").write_text(json.dumps(changed))
        with pytest.raises(StartError) as raised:
            store.built("one", ONE, DEFAULT)
        assert words in str(raised.value)
        assert "run `proctor env build one`" in str(raised.value)


@pytest.mark.slow
def test_prune_removes_the_unused_and_nothing_of_others(
    store: EnvironmentStore, wheels: Path
) -> None:
    write_wheel(wheels, "proctortest_two", {"proctortest_two.py": ""})
    two = Environment(requirements=("proctortest-two",))
    kept, removed = build(store, ONE), build(store, two)
    assert kept.folder is not None
    part = store.folder / f"{'1' * 32}.abc.part"
    foreign = [store.folder / "notes", store.folder / "locks" / "notes"]
    for each in (part, *foreign):
        each.mkdir()
    used = store.used_keys([ONE, Environment()], DEFAULT)
    assert used == {kept.folder.name}
    assert {each.folder for each in store.prune(used, dry_run=True)} == {removed.folder, part}
    assert len(folders(store)) == 4
    assert {each.folder for each in store.prune(used)} == {removed.folder, part}
    assert folders(store) == sorted([kept.folder.name, "notes"])
    assert all(each.is_dir() for each in foreign)
    assert store.built("one", ONE, DEFAULT) == kept
    assert EnvironmentStore(store.folder / "missing").prune(()) == []


def test_an_environment_without_its_interpreter_keeps_its_packages(
    store: EnvironmentStore, wheels: Path
) -> None:
    built = build(store, ONE)
    assert built.folder is not None
    gone = Environment(python="3.99", requirements=ONE.requirements)
    assert store.used_keys([gone], DEFAULT) == {built.folder.name}


@pytest.mark.slow
def test_an_environment_in_use_is_neither_removed_nor_replaced(
    store: EnvironmentStore, wheels: Path
) -> None:
    built = build(store, ONE)
    with store.in_use(built), store.in_use(built):
        assert [each.is_busy for each in store.prune(())] == [True]
        with pytest.raises(StartError, match="environment one is in use by a service"):
            store.build("one", ONE, DEFAULT, rebuild=True)
        assert store.built("one", ONE, DEFAULT) == built
        assert len(folders(store)) == 1
    assert [each.is_busy for each in store.prune(())] == [False]
    with pytest.raises(StartError, match="is not built"), store.in_use(built):
        pass


def test_the_default_folder_is_in_the_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor_service.features.environments.store import environments_folder

    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert environments_folder(Settings()) == Path("/state/proctor/environments")
    assert environments_folder(Settings(environments_folder=Path("/srv/e"))) == Path("/srv/e")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME")
    with pytest.raises(StartError, match="set PROCTOR_ENVIRONMENTS_FOLDER"):
        environments_folder(Settings())
