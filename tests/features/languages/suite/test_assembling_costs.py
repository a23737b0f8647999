"""The work of putting a completion together with its task grows with its length, whatever is in it."""

from __future__ import annotations

import time

import pytest

from proctor_service.features.languages.texts import texts_of
from proctor_service.judge.extract import Around, assembled

PIECES = [
    " ", "\n", " x ", "x\n", "    x\n", "const\n", "const f : ", "const {", "import {", "import (\n", "f(",
    "f( \n",
    "a f(", "int f(a)\n", "/*", '"\\', '\\"', "'", "{", "}\n", "from __future__ import (\n", "use std::x\n",
    "#![a]\n", "<? ", "?> ", "def f", "def f\n", "@a\n", "class A\n", 'const a = require("a")\n',
    "package a;\n",
    "```\n",
]  # fmt: skip
LANGUAGES = [
    "python",
    "cpp",
    "csharp",
    "go",
    "java",
    "javascript",
    "kotlin",
    "php",
    "rust",
    "scala",
]
LENGTH = 240_000
MOST_GROWTH = 10
"""Of the time for four times the length: linear work takes 4 times as long, quadratic 16 times."""
LEAST_SECONDS = 0.1
"""Shorter times are noise, and count as this."""


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_completions_take_linear_time(language: str) -> None:
    for piece in PIECES:
        quarter = cpu_seconds(piece, LENGTH // 4, language)
        assert cpu_seconds(piece, LENGTH, language) < MOST_GROWTH * quarter, piece


def cpu_seconds(piece: str, length: int, language: str) -> float:
    prompt = "def f(x):\n" if language == "python" else "import x;\nclass A {\n  int f(int n) {\n"
    prelude = 'import (\n"a"\n)\nuse std::a;\nconst a = require("a")\n'
    text = (piece * length)[:length]
    begun = time.process_time()
    for suffix in ("", "    return x\n"):
        assembled(text, texts_of(language), Around(prelude, prompt, suffix, "f"))
    return max(time.process_time() - begun, LEAST_SECONDS)
