"""The work of the extraction grows with the length of the blocks, whatever is in them."""

from __future__ import annotations

import time

import pytest

from proctor_service.features.languages.texts import texts_of
from proctor_service.judge.extract import extract
from proctor_service.settings.languages import LANGUAGES

HOSTILE = [
    "print ", "p ", "puts a", "class ", "static ", "static a", "extends ", "Main ", "def ", "# a\n",
    "--\n", "A a ",
    "a(", "a()", "a(b()", "x=(", "x=(()", "x: (a", "const x: ", "const x: a=>", "f<", "f<a,", "fun a<",
    "fun a.",
    "class a ", "class ", "typedef ", "typedef a ", "impl ", "impl a", "struct a ", "} a ", "def ",
    "function ",
    "func (", "func (a)", "let a", "let a|", "val a", "val a=>", "/*", "*/", "//", "--[[", '"', '\\"', "'",
    "'\\'",
    "`", "#", "a", "a.", ".a", "->a", "$", " ", "\n", " \n", "a\n", "a ", "a=", "a (", "a <- ", "if (a) ",
    "(", "((",
    "(\n", "{\n", "}\n", "=>\n", "if :", "= a: a ", "A ", "A *a ", "a{\n", "$(",
    ")", "a) ", "a()()", "a(()", "a( ", "setClass(", "record a(", "@", "# define ", "namespace ", "type a",
]  # fmt: skip


LENGTH = 16_000  # of a block that may be an example
MOST_GROWTH = 10
"""Of the time for four times the length: linear work takes 4 times as long, quadratic 16 times."""
LEAST_SECONDS = 0.05
"""Shorter times are noise, and count as this."""


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_hostile_blocks_take_linear_time(language: str) -> None:
    for piece in HOSTILE:
        quarter = cpu_seconds(piece, LENGTH // 4, language)
        assert cpu_seconds(piece, LENGTH, language) < MOST_GROWTH * quarter, piece


def cpu_seconds(piece: str, length: int, language: str) -> float:
    block = (piece * length)[:length]
    text = f"```{language}\nx\n```\n```{language}\nx {block}\n```\n"
    begun = time.process_time()
    extract(text, "auto", texts_of(language))
    extract(f"f = function(n) {{}};\n{block}\n}}\n```\n", "fence", texts_of(language))
    extract(f"{block}\n}}", "auto", texts_of(language))
    return max(LEAST_SECONDS, time.process_time() - begun)
