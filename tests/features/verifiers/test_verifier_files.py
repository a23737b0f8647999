"""Verifiers by name: their files, and the parameters that a task gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from proctor_client.wire import Limits, VerifierGrader
from proctor_service.errors import InvalidRequest, StartError
from proctor_service.features.verifiers.named_verifiers import SHIPPED, named_verifiers
from proctor_service.settings.environments import read_environments
from proctor_service.settings.verifiers import read_verifiers

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "named-verifiers.md"

SOURCE = "def verify(completion):\n    return 1.0\n"
TOML = f"description = 'x'\nsource = '''{SOURCE}'''\n"
WRONG = {
    "source = 'x'": "description: Field required",
    "description = 'x'": "either a source or a file",
    TOML + "file = 'x.py'": "either a source or a file",
    "description = 'x'\nsource = 'def f(): pass'": "there is no function verify",
    "description = 'x'\nsource = 'def verify(:'": "invalid syntax",
    "description = 'x'\nfile = 'missing.py'": "file: ",
    "description = 'x'\nfile = '../x.py'": "file: '../x.py' is no path below",
    "description = 'x'\nfile = '/x.py'": "file: '/x.py' is no path below",
    TOML + "limit = 1": "limit: Extra inputs",
    TOML + "[limits]\ncpu = 1": "limits.cpu: Extra inputs",
    TOML + "[limits]\nmemory_mb = 0": "limits.memory_mb: ",
    TOML + "[params.a]\ntype = 'text'": "params.a.type",
    TOML + "[params.a]\ndescription = 'x'": "params.a.type: Field required",
    TOML + "[params.'a b']\ntype = 'string'": "params: 'a b' is no name",
    TOML + "[params.a]\ntype = 'integer'\ndefault = 'x'": "params.a: 'x' is no integer",
    TOML + "[params.a]\ntype = 'integer'\ndefault = true": "params.a: True is no integer",
    TOML + "[params.a]\ntype = 'string'\nchoices = ['b', 1]": "params.a: 1 is no string",
    TOML + "[params.a]\ntype = 'string'\nchoices = ['b']\ndefault = 'c'": "'c' is none of: b",
    TOML + "[params.a]\n[params.a]": "line 6",
    "\ufffd = ": "line 1",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: WRONG[text])
def test_a_start_tells_the_file_and_the_mistake(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(StartError) as told:
        read_verifiers(tmp_path)
    assert str(told.value).startswith(f"PROCTOR_VERIFIERS {tmp_path}/mine.toml: ")
    assert WRONG[text] in str(told.value)


def test_a_folder_that_is_missing_and_a_wrong_name(tmp_path: Path) -> None:
    assert read_verifiers(None) == {}
    with pytest.raises(StartError, match=r"PROCTOR_VERIFIERS .*: No such file"):
        read_verifiers(tmp_path / "missing")
    (tmp_path / "Mine.toml").write_text(TOML)
    with pytest.raises(StartError, match=r"Mine\.toml: a name has small letters"):
        read_verifiers(tmp_path)


def test_all_fields_are_read(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        "description = 'Mine.'\n"
        "file = 'mine.py'\n"
        "environment = 'science'\n"
        "limits = {cpu_seconds = 3, memory_mb = 100}\n"
        "[params.count]\n"
        "type = ['integer', 'string']\n"
        "description = 'How many.'\n"
        "[params.kind]\n"
        "type = 'string'\n"
        "choices = ['a', 'b']\n"
        "default = 'b'\n"
        "[params.note]\n"
        "type = 'object'\n"
        "required = false\n"
    )
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "notes.txt").write_text("beside them")
    [mine] = read_verifiers(tmp_path).values()
    assert (mine.name, mine.description, mine.source) == ("mine", "Mine.", SOURCE)
    assert (mine.language, mine.environment) == ("python", "science")
    assert (mine.limits.cpu_seconds, mine.limits.memory_mb) == (3, 100)
    assert [(name, each.types, each.is_required, each.default) for name, each in mine.params.items()] == [
        ("count", ("integer", "string"), True, None),
        ("kind", ("string",), False, "b"),
        ("note", ("object",), False, None),
    ]  # fmt: skip
    (tmp_path / "mine.py").write_text(SOURCE + "# changed\n")
    assert read_verifiers(tmp_path)["mine"].digest != mine.digest


def test_the_ready_ones_are_there_and_a_folder_replaces_them(tmp_path: Path) -> None:
    ready = named_verifiers(None, ["math"])
    assert list(ready.by_name) == ["exact", "json_schema", "math", "regex", "sql"]
    assert read_verifiers(SHIPPED).keys() == ready.by_name.keys()
    (tmp_path / "exact.toml").write_text(TOML)
    (tmp_path / "words.toml").write_text(TOML)
    both = named_verifiers(tmp_path, ["math"])
    assert list(both.by_name) == ["exact", "json_schema", "math", "regex", "sql", "words"]
    assert both.by_name["exact"].source == SOURCE
    changed = {name for name in ready.digests if ready.digests[name] != both.digests[name]}
    assert changed == {"exact"}
    assert {name for name, each in both.by_name.items() if both.missing(each)} == {"json_schema"}


def grader(name: str, **params: Any) -> VerifierGrader:
    return VerifierGrader(kind="verifier", name=name, params=params)


REFUSED = (
    (grader("exakt", answer="a"), "grader.name: no verifier 'exakt' here; did you mean exact?; GET"),
    (grader("zzz"), "grader.name: no verifier 'zzz' here; GET /verifiers lists them"),
    (grader("exact"), "grader.params.answer: exact needs it"),
    (grader("exact", answr="a"), "grader.params: exact has no parameter 'answr'; did you mean answer?"),
    (grader("exact", answer="a", zzz=1), "grader.params: exact has no parameter 'zzz'"),
    (grader("exact", answer=1), "grader.params.answer: 1 is no string or array"),
    (grader("exact", answer=None), "grader.params.answer: None is no string or array"),
    (grader("exact", answer="a", ignore_case=1), "grader.params.ignore_case: 1 is no boolean"),
    (grader("sql", gold="a", seconds=True), "grader.params.seconds: True is no number"),
    (grader("sql", gold="a", compare="birds"), "'birds' is none of: rows, spider, bird"),
    (grader("math", answer="1"), "needs the environment math, which this service lacks: define it"),
    (grader("exact", answer="a").model_copy(update={"files": {"a": "b"}}), "grader.files: "),
)  # fmt: skip


@pytest.mark.parametrize(("refused", "why"), REFUSED, ids=lambda each: str(each)[:50])
def test_a_refusal_names_the_parameter(refused: VerifierGrader, why: str) -> None:
    with pytest.raises(InvalidRequest) as told:
        named_verifiers(None, []).resolved(refused, "grader")
    assert why in told.value.message


def test_a_name_becomes_a_source_with_all_parameters() -> None:
    named = named_verifiers(None, ["math", "mine"])
    found = named.resolved(grader("math", answer="1"), "grader")
    assert found.source == named.by_name["math"].source
    assert (found.name, found.environment) == (None, "math")
    assert found.params == {"answer": "1", "form": "any"}
    assert found.verifier_limits == Limits(cpu_seconds=10, memory_mb=1024)
    own = {"environment": "mine", "verifier_limits": Limits(cpu_seconds=1)}
    found = named.resolved(grader("math", answer="1").model_copy(update=own), "grader")
    assert found.environment == "mine"
    assert found.verifier_limits == Limits(cpu_seconds=1, memory_mb=1024)
    VerifierGrader.model_validate(found.model_dump())


def blocks(language: str) -> list[str]:
    """Blocks of the document."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE
    )


def test_the_environments_of_the_document_have_the_tested_packages(tmp_path: Path) -> None:
    file = tmp_path / "environments.toml"
    file.write_text(blocks("toml")[0])
    found = read_environments(file)
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert [pin for each in found.values() for pin in each.requirements if pin not in pins] == []
    assert named_verifiers(None, found).by_name.keys() == named_verifiers(None, []).by_name.keys()
    assert not any(
        map(named_verifiers(None, found).missing, named_verifiers(None, []).by_name.values())
    )


def test_the_verifier_of_the_document_is_read(tmp_path: Path) -> None:
    (tmp_path / "words.toml").write_text(blocks("toml")[2])
    (tmp_path / "words.py").write_text(blocks("python")[0])
    named = named_verifiers(tmp_path, [])
    found = named.resolved(grader("words"), "grader")
    assert found.params == {"count": 4}
    space: dict[str, Any] = {}
    exec(found.source, space)
    assert space["verify"]("a b", found.params) == 0.5


def test_the_document_lists_the_ready_verifiers() -> None:
    text = DOCUMENT.read_text()
    for name, verifier in read_verifiers(SHIPPED).items():
        [row] = re.findall(rf"^\| `{name}` \| `([a-z_]+)` \|.*\| (.*) \|$", text, re.MULTILINE)
        assert row[0] == (verifier.environment or "default")
        named = set(re.findall(r"`([a-z_]+)`", row[1]))
        choices = {str(each) for param in verifier.params.values() for each in param.choices}
        assert named - choices == set(verifier.params)
