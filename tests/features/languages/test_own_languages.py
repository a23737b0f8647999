"""Languages that are rows of a TOML file: by PROCTOR_LANGUAGES, of an environment, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import proctor
from harness import Service, running_service
from judging import ask, judge
from visible_folder import visible_folder

import proctor_service.composition
from proctor_service.errors import StartError
from proctor_service.features.languages.texts import texts_of
from proctor_service.judge.extract import extract
from proctor_service.sandbox.interface import MachineCheck
from proctor_service.settings import Settings
from proctor_service.settings.environments import read_environments
from proctor_service.settings.language_rows import KNOWN_LANGUAGES
from proctor_service.settings.languages import LANGUAGES, language_named

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "languages.md"
ROWS = {name: row for name, row in KNOWN_LANGUAGES.items() if name not in LANGUAGES}
TCL = '[languages.tcl]\nsource = "solution.tcl"\nrun = ["tclsh", "solution.tcl"]\n'
WRONG = {
    TCL
    + 'alias = ["x"]': "line 4: languages.tcl.alias: no field of a language; did you mean aliases?",
    TCL
    + 'launcher = "ruby"': "line 4: languages.tcl.launcher: no field of a language; only: source,",
    '[languages.tcl]\nsource = "a"': "line 1: languages.tcl.run: Field required",
    TCL.replace(
        "solution.tcl", "../x", 1
    ): "line 2: languages.tcl.source: '../x' is no name of a file",
    TCL.replace('"tclsh", ', "3, "): "line 3: languages.tcl.run.0: ",
    TCL + "compile = []": "line 4: languages.tcl.compile: ",
    TCL + 'paths = ["opt"]': "line 4: languages.tcl.paths: 'opt' is no absolute path of a folder",
    TCL
    + 'aliases = [".tcl"]': "line 4: languages.tcl.aliases: '.tcl' is no name that a fence can have",
    TCL + 'aliases = ["JS"]': "line 4: languages.tcl.aliases: JS is a name of javascript already",
    TCL + 'aliases = ["py"]': "line 4: languages.tcl.aliases: py is a name of python already",
    TCL.replace("tcl", "python", 1): "line 1: languages.python: python is a name of python already",
    TCL.replace("tcl", "golang", 1): "line 1: languages.golang: golang is a name of go already",
    TCL.replace("tcl", "Tcl", 1): "line 1: languages.Tcl: a name has small letters",
    TCL.replace("tcl", "ruby", 1): "line 1: languages.ruby: known already; without = ['ruby']",
    TCL.replace("tcl", "haskell", 1): "line 1: languages.haskell: known already; without",
    "without = ['cobol']": "line 1: without: no language 'cobol' is known",
    "without = 'ruby'": "line 1: without: no list of names",
    "without = [['ruby']]": "line 1: without: no list of names",
    "[language.tcl]": "language: only without and tables such as [languages.tcl]",
    "languages = 3": "line 1: languages: no table of languages by name",
    "[languages]\ntcl = 'x'": "line 2: languages.tcl: no table with source and run",
    TCL + TCL: "line 4",
    "\ufffd = ": "line 1",
}


def _block(mark: str, kind: str) -> str:
    """Return the block of the document behind a mark."""
    found = re.search(
        rf"<!-- {mark} -->\n```{kind}\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found is not None
    return found[1]


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_told_with_file_line_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "languages.toml"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("PROCTOR_LANGUAGES", str(file))
    with pytest.raises(StartError) as refused:
        Settings()
    assert str(refused.value).startswith(f"PROCTOR_LANGUAGES {file}")
    assert WRONG[text] in str(refused.value)


def test_a_missing_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_LANGUAGES", "/nowhere/languages.toml")
    with pytest.raises(
        StartError, match=r"PROCTOR_LANGUAGES /nowhere/languages\.toml: .*No such file"
    ):
        Settings()
    said = proctor("doctor", PROCTOR_LANGUAGES="/nowhere/languages.toml")
    assert (said.exit_code, "No such file" in said.output) == (2, True)


def test_a_file_adds_and_replaces_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "languages.toml"
    file.write_text(f"without = ['php', 'ruby']\n{TCL}{TCL.replace('tcl', 'ruby', 1)}")
    monkeypatch.setenv("PROCTOR_LANGUAGES", f" {file}\n")
    languages = Settings().languages
    assert set(languages) == {*KNOWN_LANGUAGES, "tcl"} - {"php"}
    assert languages["ruby"] == languages["tcl"]
    assert languages["tcl"].needs == ("tclsh",)
    assert language_named("rb", languages) == "rb"
    monkeypatch.delenv("PROCTOR_LANGUAGES")
    config = tmp_path / "proctor.toml"
    monkeypatch.setenv("PROCTOR_CONFIG", str(config))
    for text in (f"languages = '{file}'", f"[programs]\nlanguages = '{file}'"):
        config.write_text(text)
        assert Settings().languages == languages
    config.write_text(TCL)  # rows in the settings themselves
    assert set(Settings().languages) == {*KNOWN_LANGUAGES, "tcl"}


def test_rows_as_json_are_checked_for_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"source": "x", "run": ["x"], "aliases": ["hs"]}
    monkeypatch.setenv("PROCTOR_LANGUAGES", json.dumps({"mine": row}))
    with pytest.raises(ValueError, match=r"mine\.aliases: hs is a name of haskell already"):
        Settings()
    monkeypatch.setenv("PROCTOR_LANGUAGES", json.dumps({"mine": row, "haskell": None}))
    assert language_named("HS", Settings().languages) == "mine"


def test_doctor_asks_for_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [
        MachineCheck("language mine", True, "/bin/sh"),
        MachineCheck("language silent", True, "/bin/true"),
        MachineCheck("language c", True, "gcc"),
        MachineCheck("language gone", False, "needs x"),
    ]
    monkeypatch.setattr(proctor_service.composition, "doctor", lambda settings: checks)
    row = {"source": "a", "run": ["sh", "a"]}
    versions = {
        "mine": ["sh", "-c", "echo mine 1.0 >&2; echo more"],
        "silent": ["true"],
        "gone": ["no-such-program"],
    }
    rows = {name: {**row, "version": command} for name, command in versions.items()}
    monkeypatch.setenv("PROCTOR_LANGUAGES", json.dumps(rows))
    found = json.loads(proctor("doctor", "--versions", "--json").stdout)["machine"]
    assert [each["detail"] for each in found] == [
        "/bin/sh: mine 1.0",
        "/bin/true",
        "gcc",
        "needs x",
    ]
    assert "/bin/sh: mine 1.0" in proctor("doctor", "--versions").stdout
    assert "Languages: python, mine, silent, c. Not installed: gone." in proctor("doctor").stdout


def test_programs_are_those_of_both_commands() -> None:
    expected = {"verilog": ("iverilog", "vvp"), "haskell": ("ghc",), "racket": ("racket",)}
    assert {name: KNOWN_LANGUAGES[name].needs for name in expected} == expected


def test_the_document_names_every_row() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    for name, language in ROWS.items():
        [row] = [row for row in rows if f"`{name}`" in row.split("|")[1]]
        assert all(f"`{alias}`" in row for alias in language.aliases), row


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("D_ut", "d_ut"), ("Verilog", "verilog"), ("racket", "racket"), ("julia", "julia"),
        ("swift", "swift"), ("adb", "ada"), ("clj", "clojure"), ("d", "d"), ("elixir", "elixir"),
        ("hs", "haskell"), ("jl", "julia"), ("m", "octave"), ("ml", "ocaml"), ("rkt", "racket"),
    ],
)  # fmt: skip
def test_names_of_other_services_and_data_sets(alias: str, name: str) -> None:
    assert language_named(alias, KNOWN_LANGUAGES) == name


@pytest.mark.parametrize(
    ("fence", "language"),
    [("haskell", "haskell"), ("hs", "haskell"), ("F90", "fortran"), ("fortran", "fortran"),
     ("f95", "fortran"), ("ada2012", "ada"), ("common-lisp", "common_lisp"), ("lisp", "common_lisp"),
     ("matlab", "octave"), ("SystemVerilog", "verilog"), ("elixir", "elixir")],
)  # fmt: skip
def test_a_fence_names_a_row(fence: str, language: str) -> None:
    text = f"So:\n```{fence}\nx = 1\n```\nAn output:\n```\n2\n```\n"
    assert extract(text, "auto", texts_of(language)) == "x = 1"


# ---------------------------------------------------------------- a service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Run a service with the document's language, and one in an environment."""
    folder = tmp_path_factory.mktemp("own")
    languages, environments = folder / "languages.toml", folder / "environments.toml"
    languages.write_text(_block("a language", "toml"))
    environments.write_text(
        f"{_block('in an environment', 'toml')}\n[environments.bare]\nlanguages = []\n"
    )
    settings = Settings(languages=str(languages), environments=environments, workers="0")
    with running_service(settings, judge=None) as running:
        yield running


EXEC = {"kind": "exec"}
SUM: dict[str, Any] = json.loads(_block("its request", "json"))["grader"]


@pytest.mark.slow
def test_a_language_in_ten_lines(service: Service) -> None:
    with service.client() as client:
        answer = client.post("/reward", json=json.loads(_block("its request", "json")))
    assert answer.json()["results"][0]["reward"] == 1.0, answer.text
    cases: dict[str, tuple[str, str, dict[str, Any], str]] = {
        "by another name": ("r9", "read read + print", SUM, "passed"),
        "without a name": ("", "read read + print", SUM, "passed"),
        "a wrong answer": ("rpn", "read print", SUM, "failed"),
        "exec": ("Polish", "2 3 + print", EXEC, "passed"),
        "a mistake": ("rpn", "read; read", EXEC, "syntax_error"),
        "an endless loop": ("rpn", "1 loop", EXEC, "timeout"),
    }
    items = [
        {"completion": f"So:\n```{fence}\n{text}\n```", "grader": grader, "language": "RPN"}
        for fence, text, grader, _ in cases.values()
    ]
    results = judge(service, *items, extract="auto", limits={"cpu_seconds": 1})
    found = {name: each["verdict"] for name, each in zip(cases, results, strict=True)}
    assert found == {name: verdict for name, (*_, verdict) in cases.items()}, results
    assert "solution.rpn:1: read; read" in results[4]["message"]
    assert [each["reward"] for each in results] == [1.0, 1.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.slow
def test_tests_apart_from_the_completion_are_refused(service: Service) -> None:
    item = {"completion": "1", "language": "polish", "grader": {"kind": "exec", "tests": "1 print"}}
    with service.client() as client:
        answer = client.post("/reward", json={"submissions": [item]})
    assert answer.status_code == 422
    assert "rpn takes no tests apart from the submission" in answer.text


@pytest.mark.slow
def test_routes_of_other_services_know_it(service: Service) -> None:
    with service.client() as client:
        body = {"code": "read read + print", "language": "Polish", "stdin": "2 3\n"}
        ran = client.post("/compat/run_code", json=body).json()
        assert (ran["status"], ran["run_result"]["stdout"]) == ("Success", "5\n"), ran
        broken = client.post("/compat/run_code", json={**body, "code": ";"}).json()
        assert (broken["status"], broken["compile_result"]["return_code"]) == ("Failed", 1), broken
        config = {
            "language": "rpn",
            "dataset_type": "CommonOJDataset",
            "provided_data": {"test": [{"input": {"stdin": "2 3"}, "output": {"stdout": "5"}}]},
        }
        completion = "```polish\nread read + print\n```"
        judged = client.post(
            "/compat/submit",
            json={"dataset": "x", "id": 1, "completion": completion, "config": config},
        ).json()
        assert judged["accepted"], judged


@pytest.mark.slow
def test_an_evaluation_knows_it(service: Service, tmp_path: Path) -> None:
    rows, completions, output = (tmp_path / name for name in ("rows", "completions", "results"))
    rows.write_text(
        json.dumps({"task_id": "a", "grader": SUM, "language": "polish", "prompt": "Add."})
    )
    texts = ("```polish\nread read + print\n```", "```rpn\nread print\n```")
    completions.write_text("".join(json.dumps({"id": "a", "completion": t}) + "\n" for t in texts))
    arguments: list[str | Path] = ["eval", rows, "--completions", completions, "--output", output]
    said = proctor(*arguments, PROCTOR_URL=service.url)
    assert output.exists(), said.output
    assert [json.loads(line)["reward"] for line in output.read_text().splitlines()] == [1.0, 0.0]


@pytest.mark.slow
def test_an_environment_has_languages_of_its_own(service: Service) -> None:
    grader = {"kind": "stdio", "cases": [{"stdin": "2 3\n", "stdout": "two 3"}]}
    item = {"completion": "s/2/two/", "language": "sed", "grader": grader}
    [result] = judge(service, item, environment="editors")
    assert (result["reward"], result["environment"]) == (1.0, "editors")
    with service.client() as client:
        environments = client.get("/environments").json()["environments"]
        listed = {each["name"]: each["languages"] for each in environments}
        names = {"default": False, "editors": True, "bare": False}
        assert {name: "sed" in found for name, found in listed.items()} == names
        assert ("rpn" in listed["default"], "rpn" in listed["editors"]) == (True, True)
        assert listed["bare"] == ["python"]
        for environment in ("default", "bare"):
            body = {"submissions": [item], "environment": environment}
            refused = client.post("/reward", json=body)
            assert (refused.status_code, "no 'sed' here" in refused.text) == (422, True)
        code = {"code": "s/2/two/", "language": "sed", "stdin": "2 3\n"}
        ran = client.post("/compat/run_code?environment=editors", json=code).json()
        assert ran["run_result"]["stdout"] == "two 3\n", ran
        assert client.post("/compat/run_code", json=code).json()["status"] == "SandboxError"


@pytest.mark.slow
def test_sandboxes_show_the_folders_of_a_language(tmp_path: Path) -> None:
    file = tmp_path / "languages.toml"
    with visible_folder() as folder:
        (folder / "word").write_text("seven\n")
        (folder / "word").chmod(0o644)
        file.write_text(
            f'[languages.seen]\nsource = "a"\nrun = ["cat", "{folder}/word"]\n'
            f'paths = ["{folder}", "/no/such/folder"]\n'
        )
        grader = {"kind": "stdio", "cases": [{"stdout": "seven"}]}
        with running_service(Settings(languages=str(file), workers="0"), judge=None) as service:
            [result] = judge(service, {"completion": "x", "language": "seen"}, grader=grader)
    assert result["verdict"] == "passed", result
    file.write_text('[languages.seen]\nsource = "a"\nrun = ["sh"]\npaths = ["/tmp"]\n')
    said = proctor("doctor", PROCTOR_LANGUAGES=str(file))
    assert "PROCTOR_LANGUAGES: the paths of seen: /tmp lies where sandboxes" in said.output


@pytest.mark.slow
def test_a_program_that_the_sandbox_lacks_is_no_verdict(tmp_path: Path) -> None:
    file = tmp_path / "languages.toml"
    file.write_text(
        '[languages.lost]\nsource = "a"\nrun = ["no-such-program", "a"]\nneeds = ["sh"]\n'
        '[languages.absent]\nsource = "a"\nrun = ["no-such-program", "a"]\n'
    )
    with running_service(Settings(languages=str(file), workers="0"), judge=None) as service:
        [found] = ask(service, {"completion": "x", "language": "lost"}, grader={"kind": "exec"})
        assert (found["reward"], found["error"]["reason"]) == (None, "judge_failed")
        with service.client() as client:
            body = {
                "submissions": [{"completion": "x", "language": "absent"}],
                "grader": {"kind": "exec"},
            }
            assert client.post("/reward", json=body).status_code == 422


def test_a_mistake_in_an_environment_is_told(tmp_path: Path) -> None:
    file = tmp_path / "environments.toml"
    start = "[environments.a.own_languages.tcl]\nsource = 'a'\n"
    for text, reason in {
        f"{start}runs = ['a']": "environments.a.own_languages: tcl.runs: no field of a language",
        start: "environments.a.own_languages: tcl.run: Field required",
    }.items():
        file.write_text(text)
        with pytest.raises(StartError, match=re.escape(reason)):
            read_environments(file)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (
            "[environments.a.own_languages.ruby]\nsource = 'a'\nrun = ['a']",
            "own_languages.ruby: the service has ruby",
        ),
        (
            "[environments.b.own_languages.tcl]\nsource = 'b'\nrun = ['a']",
            "another environment has another tcl",
        ),
        (
            "[environments.b.own_languages.x]\nsource = 'b'\nrun = ['a']\naliases = ['js']",
            "js is a name of javascript",
        ),
    ],
)
def test_a_name_stands_for_one_language_in_all_environments(
    tmp_path: Path, second: str, reason: str
) -> None:
    file = tmp_path / "environments.toml"
    file.write_text(f"[environments.a.own_languages.tcl]\nsource = 'a'\nrun = ['a']\n{second}")
    with (
        pytest.raises(StartError, match=re.escape(reason)),
        running_service(Settings(environments=file)),
    ):
        pass
