"""What pages show of hostile texts and of graders: readable, in bounds, and nothing unseen."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from proctor_client import wire
from proctor_service.features.journal.pages import graders, shown

ANY = st.text(st.characters(codec=None), max_size=300)


@given(ANY)
def test_a_text_holds_no_character_that_a_reader_cannot_see(value: str) -> None:
    seen = shown.text(value)
    assert not {unicodedata.category(each) for each in seen.replace("\n", "").replace("\t", "")} & {
        "Cc", "Cf", "Cs", "Zl", "Zp",
    }  # fmt: skip
    seen.encode()


@given(ANY)
def test_a_name_is_one_line_in_bounds(value: str) -> None:
    seen = shown.name(value, 20)
    assert "\n" not in seen
    assert 0 < len(seen) <= 20


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("\x00\x1b[31m", "␀␛[31m"),
        ("\ud800", "⟨U+D800⟩"),
        ("é\u0301" + "\u0301" * 50, "é" + "\u0301" * 4),
        ("line\n\tline", "line\n\tline"),
        ("\x7f\x85", "⟨U+007F⟩⟨U+0085⟩"),
    ],
)
def test_what_cannot_be_seen_is_named(value: str, seen: str) -> None:
    assert shown.text(value) == seen


def test_a_long_text_says_how_much_is_left_out() -> None:
    assert shown.text("x" * 25, 10) == "x" * 10 + "\n… 15 more characters"


@given(ANY, st.integers(0, 300), st.integers(0, 300))
def test_marked_code_is_escaped_on_both_sides(value: str, one: int, other: int) -> None:
    begin, end = sorted((one, other))
    seen = str(shown.marked(value, begin, end))
    assert seen.count("<") == 2
    assert seen.count("<mark>") == seen.count("</mark>") == 1


@pytest.mark.parametrize(
    ("given", "titles", "texts"),
    [
        ({"kind": "exec"}, ["Grader"], "exit with code 0"),
        (
            {"kind": "asserts", "tests": ["assert f(1)", "assert f(2)"], "setup": "import os"},
            ["Setup", "Tests"],
            "assert f(1)\nassert f(2)",
        ),
        (
            {
                "kind": "calls",
                "entry_point": "f",
                "cases": [{"args": [1, "a"], "kwargs": {"n": None}, "expected": [2]}],
            },
            ["Calls", "Options"],
            'f(1, "a", n=null) → [2]',
        ),
        (
            {"kind": "stdio", "cases": [{"stdin": "1", "stdout": "2"}]},
            ["Case 0: standard input", "Case 0: expected output", "Options"],
            "2",
        ),
        (
            {
                "kind": "stdio",
                "cases": [{"stdin": "1"}],
                "checker": {"source": "exit()", "files": {"a.h": "int"}, "convention": "icpc"},
                "subtasks": [{"points": 2, "cases": [0]}],
            },
            [
                *("Case 0: standard input", "Checker", "Checker: options", "Checker: file a.h"),
                *("Subtasks", "Options"),
            ],
            "exit()",
        ),
        (
            {
                "kind": "stdio",
                "cases": {
                    "generator": {"source": "print(1)"},
                    "seeds": [1, "2 a"],
                    "reference": {"source": "print(2)"},
                },
                "checker": "one_of",
            },
            [
                *("Seeds", "Generator", "Generator: options", "Reference", "Reference: options"),
                *("Checker", "Options"),
            ],
            "1\n2 a",
        ),
        (
            {"kind": "stdio", "cases": [{"stdin": "1"}], "interactor": {"source": "talk()"}},
            ["Case 0: standard input", "Interactor", "Interactor: options", "Options"],
            "talk()",
        ),
        ({"kind": "pytest", "files": {"test_a.py": "def"}}, ["File test_a.py"], "def"),
        ({"kind": "command", "argv": ["ls", "a b"]}, ["Command"], "ls 'a b'"),
    ],
)
def test_tests_are_shown_as_one_writes_them(
    given: dict[str, object], titles: list[str], texts: str
) -> None:
    # As the journal stores it: with all defaults.
    adapter: TypeAdapter[wire.Grader] = TypeAdapter(wire.Grader)
    stored = json.loads(adapter.dump_json(adapter.validate_python(given)))
    parts = graders.parts(stored)
    assert [title for title, _ in parts] == titles
    assert any(texts in text for _, text in parts)


def test_few_of_many_cases_are_shown() -> None:
    cases = [{"args": [n], "expected": n} for n in range(5000)]
    (title, text), *_ = graders.parts({"kind": "calls", "entry_point": "f", "cases": cases})
    assert title == "Calls, the first 100 of 5,000"
    assert len(text.splitlines()) == 100


def test_an_unknown_grader_is_shown_as_json() -> None:
    assert graders.parts({"kind": "new", "x": "é"}) == [("Grader", '{"kind": "new", "x": "é"}')]
