"""Names of languages, the table that the settings extend, and the class that a Scala program runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from proctor_service.features.languages.jvm_names import kotlin_main, scala_main
from proctor_service.features.languages.texts import texts_of
from proctor_service.judge.extract import extract
from proctor_service.settings import Settings
from proctor_service.settings.language_rows import KNOWN_LANGUAGES
from proctor_service.settings.languages import LANGUAGES, Language, language_named

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "graders.md"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("python", "python"), ("Py", "python"), ("python3", "python"), ("nodejs", "javascript"),
        ("C++", "cpp"), ("c#", "csharp"), ("R", "r"), ("GoLang", "go"), ("JavaScript", "javascript"),
        ("cobol", "cobol"), ("", ""), ("py ", "py "),
    ],
)  # fmt: skip
def test_a_language_by_another_name(name: str, expected: str) -> None:
    assert language_named(name, LANGUAGES) == expected


def test_no_name_is_that_of_two_languages() -> None:
    names = [name for each, found in KNOWN_LANGUAGES.items() for name in (each, *found.aliases)]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)


def test_the_documents_name_every_language() -> None:
    text = DOCUMENT.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for name, language in LANGUAGES.items():
        [row] = [row for row in rows if f"`{name}`" in row.split("|")[1]]
        assert all(f"`{alias}`" in row for alias in language.aliases), row


def test_settings_extend_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    example = DOCUMENT.read_text().partition("<!-- languages -->\n```json\n")[2].partition("```")[0]
    monkeypatch.setenv("PROCTOR_LANGUAGES", example)
    languages = Settings().languages
    assert set(languages) == {*KNOWN_LANGUAGES, "tcl"} - {"php"}
    assert language_named("TclSh", languages) == "tcl"
    assert languages["tcl"].needs == ("tclsh",)
    assert languages["ruby"] == LANGUAGES["ruby"]


@pytest.mark.parametrize("given", ["[]", "3", '{"x": {}}', '{"x": {"run": 3}}'])
def test_a_wrong_table_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("PROCTOR_LANGUAGES", given)
    with pytest.raises(ValidationError, match="languages"):
        Settings()


def test_a_fence_may_have_another_name() -> None:
    for fence, language in (("ts", "typescript"), ("c#", "csharp"), ("rb", "ruby")):
        assert extract(f"So:\n```{fence}\nx = 1\n```\n", "auto", texts_of(language)) == "x = 1"


def test_a_source_gets_the_opening_that_it_lacks() -> None:
    php = LANGUAGES["php"]
    assert php.whole("echo 1;") == "<?php\necho 1;"
    assert php.whole("<html><?php echo 1;") == "<html><?php echo 1;"
    assert php.whole("") == "<?php\n"
    for opened in (
        "<?PHP echo 1;",
        "<?= 1 ?>",
        "<p><?= 1 ?>",
        "<?\necho 1;",
        "#!/usr/bin/php\n\n<? echo 1;",
    ):
        assert php.whole(opened) == opened
    assert php.whole("echo '<?xml?>';") == "<?php\necho '<?xml?>';"
    assert Language(source="x", run=("x",), needs=()).whole("") == ""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("object Solution { def main(args: Array[String]): Unit = {} }", "Solution"),
        ("package a.b\nobject S extends App { println(1) }", "a.b.S"),
        ("object A { def f = 1 }\nobject B { def main(a: Array[String]): Unit = () }", "B"),
        ("case object A\nobject B extends Base with App {}", "B"),
        ("object A {\n  object Inner { def g = 1 }\n  def main(a: Array[String]) = () }", "A"),
        ("// object No extends App\nobject Yes extends App", "Yes"),
        ('object A { val s = "object B extends App" }', "A"),
        ("@main def run() = println(1)", "run"),
        ("I do not know", "Main"),
        ("", "Main"),
        ("object " * 20_000, "object"),
    ],
)
def test_the_class_of_a_scala_program(source: str, expected: str) -> None:
    assert scala_main(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("fun main() { println(1) }", "SolutionKt"),
        ("package a.b\n\nfun main(args: Array<String>) = println(1)", "a.b.SolutionKt"),
        ('@file:JvmName("Other")\npackage a\nfun main() { }', "a.Other"),
        ("object Main { @JvmStatic fun main(args: Array<String>) { } }", "Main"),
        (
            "class A { fun main() { } }\nobject B {\n @JvmStatic\n fun main(a: Array<String>) { } }",
            "B",
        ),
        (
            "class C { companion object { @kotlin.jvm.JvmStatic fun main(a: Array<String>) { } } }",
            "C",
        ),
        ("object A { @JvmStatic fun main(a: Array<String>) { } }\nfun main() { }", "SolutionKt"),
        ("// object No { @JvmStatic fun main() { } }\nfun solve() { }", "SolutionKt"),
        ("I do not know", "SolutionKt"),
        ("", "SolutionKt"),
        ("object " * 20_000, "SolutionKt"),
        ("JvmStatic " * 20_000, "SolutionKt"),
    ],
)
def test_the_class_of_a_kotlin_program(source: str, expected: str) -> None:
    assert kotlin_main(source) == expected
