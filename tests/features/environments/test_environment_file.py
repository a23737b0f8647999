"""The file of the environments: what it may hold, and the words for what it may not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proctor_service.errors import StartError
from proctor_service.settings.environments import read_environments

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "environments.md"
WRONG = {
    "[environments.a]\nrequirement = ['x']": "environments.a.requirement: Extra inputs",
    "[environment.a]": "environment: Extra inputs",
    "[environments.A]": "environments: 'A': a name has small letters",
    "[environments.default]": "PROCTOR_SANDBOX_PYTHON",
    "[environments.a]\nrequirements = 'x'": "environments.a.requirements: ",
    "[environments.a]\nrequirements = ['-r x.txt']": "'-r x.txt' is no requirement",
    "[environments.a]\nrequirements = ['./x']": "'./x' is no absolute path",
    "[environments.a]\nrequirements = ['']": "environments.a.requirements.0: ",
    '[environments.a]\nrequirements = ["x\\ny"]': "is no requirement",
    "[environments.a]\npreload = ['os; x']": "'os; x' is no name of a module",
    "[environments.a]\npaths = ['data']": "data is no absolute path",
    "[environments.a]\nenv = {HOME = '/x'}": "HOME is set by the sandbox",
    "[environments.a]\nenv = {'A=B' = 'x'}": "'A=B' is no name of a variable",
    "[environments.a]\nenv = {A = 1}": "environments.a.env.A: ",
    "[environments.a.limits]\ncpu = 1": "environments.a.limits.cpu: Extra inputs",
    "[environments.a.limits]\nmemory_mb = 0": "environments.a.limits.memory_mb: ",
    "[environments.a]\n[environments.a]": "line 2",
    "environments = 3": "environments: ",
    "\ufffd = ": "line 1",
}


def test_no_file_has_no_environments() -> None:
    assert read_environments(None) == {}


def test_all_fields_are_read(tmp_path: Path) -> None:
    file = tmp_path / "environments.toml"
    file.write_text(
        "[environments.science]\n"
        "python = '3.12'\n"
        "requirements = ['numpy==2.2.1', 'scipy']\n"
        "preload = ['numpy']\n"
        "env = {OMP_NUM_THREADS = '1'}\n"
        "paths = ['/srv/data']\n"
        "languages = ['cpp']\n"
        "limits = {memory_mb = 2048}\n"
        "[environments.'plain-3.13']\n"
    )
    found = read_environments(file)
    assert list(found) == ["science", "plain-3.13"]
    science = found["science"]
    assert (science.python, science.requirements) == ("3.12", ("numpy==2.2.1", "scipy"))
    assert (science.preload, science.env) == (("numpy",), {"OMP_NUM_THREADS": "1"})
    assert (science.paths, science.languages) == ((Path("/srv/data"),), ("cpp",))
    assert (science.limits.memory_mb, science.limits.cpu_seconds) == (2048, None)
    assert (found["plain-3.13"].python, found["plain-3.13"].preload) == ("", None)


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_an_error_names_the_file_and_the_field(text: str, tmp_path: Path) -> None:
    file = tmp_path / "environments.toml"
    file.write_text(text)
    with pytest.raises(StartError) as raised:
        read_environments(file)
    assert str(raised.value).startswith(f"PROCTOR_ENVIRONMENTS {file}: ")
    assert WRONG[text] in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="No such file"):
        read_environments(tmp_path / "missing.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(StartError, match=r"bytes\.toml"):
        read_environments(tmp_path / "bytes.toml")


def test_the_files_of_the_document_are_valid(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        assert read_environments(file)
