"""Texts in other languages than Python, told by signs of all languages together, in linear time."""

from __future__ import annotations

import re

from proctor_service.judge.fences import first_end

# "#!/bin/sh", "#include <a>", "<?php", "package main", "import a.b;", 'import "fmt"', "use std::io;".
_ONLY_CODE = re.compile(
    r"(?m)\s*+(?:#!|#include\b|<\?php|package [\w.]++;?$|(?:import|using|use) [^\n]{0,9999}[;\"'(]$)"
)
# The first line, but for comments: "It is so.", "**Solution**:", "To double n, I use x;", "$ node a.js".
_PROSE = re.compile(
    r"(?m)\s*+(?:(?:#(?!!|include\b)|//|--|/?\*)[^\n]*+(?:\s++|\Z))*+(?:[^\n]{0,9999}[\w)`*][.!?]$"
    r"|[^\n\w]{0,99}[A-Z](?:[^\n]{0,9999}:$|[\w']*+,? [a-z']++,? [a-z]+\b)|(?:\$|%|>>>) |\Z)"
)
_SIGN = re.compile(r"[(){}\[\]=;$<>@\"|]|\b(?:echo|print|puts) ")  # "f(x)", "puts 1"
_COMMENT_OR_STRING = re.compile(
    r"""(?P<comment>//[^\n]*+|(?<![\w.*/}"'])/\*(?s:.*?)(?:\*/|\Z)|(?<!\S)--(?=\s)[^\n]*+"""
    r"|(?<![^\s;])#(?![\[!]|[ \t]{0,20}(?:define|include)\b)[^\n]*+)"
    r"""|"(?:[^"\\\n]++|\\.)*+"?|'(?:[^'\\\n]++|\\.)*+'?"""
)
_KEYWORD = (
    r"\b(?:class|def|define|enum|fn|fun|func|function|impl|interface|module|namespace|object|package"
    r"|record|struct|sub|trait|type|union)\b"
)
_ARGUMENTS = r"\((?:[^(){};]{1,300}+|\([^(){};]{0,100}+\)){0,20}+\)"
# "def twice", "func (t T) Twice"; "int twice(int n)\n{"; "twice = async (n) =>"; "struct {…} Point;".
_DEFINITION = re.compile(
    rf"{_KEYWORD}[!&* ]{{1,3}}(?:class |<[^<>\n]{{0,80}}+> ?|\([^()\n]{{0,100}}+\) ?)?"
    r"(?!(?:in|of)\b)([\w.]++[?!]?)"
    r"|(?<![\w.$>-])(?!(?:catch|else|elsif|for|foreach|function|if|switch|unless|until|while|with)\b)"
    rf"([\w.-]++)(?:<[\w, ]{{1,60}}+>)? ?{_ARGUMENTS}"
    r"(?: throws [^(){};=\n]{1,80}+|[^(){};,=\n]){0,80}+\n?(?:\{|=>)"
    rf"|(?<![\w.])([\w.]++) ?(?::[^\n]{{1,120}}? )?(?:=(?![=>])|:=|<-|:) ?(?:(?:async |move )?(?:{_KEYWORD}"
    rf"|R6Class|lambda\b|\\\(|\||->|(?:{_ARGUMENTS}|\w{{1,60}}+)(?: ?: ?\w{{1,60}}+)? ?=>))|\}} ?(\w++) ?;"
)
# Other signs of code that is no example: a function without a name, a result, the begin of a file.
_IS_CODE = re.compile(
    r"(?m)=>|\) ?->|= ?\[[^\[\]\n]{0,80}+\] ?[({m]|\bsub ?\{|^[\w-]++ ?\(\) ?\(|\{ ?\w++ ?:[^\n]{1,80} ->"
    r"|\b(?:exports?|return|std::cin|template)\b|^#!|^ ?# ?include|^package\b|\bmain ?\("
)
# "twice(4)", "twice<int>(4)"; "Stack::new"; "double 4" of a shell.
_USED = re.compile(
    r"(?m)(?<![\w.>:])\$?(\w[\w.]*+[?!]?)(?=(?:<[\w, ]{1,60}+>)? ?\()|(?<![\w.$>:])([A-Z]\w*+)"
    r"|(?:^|[;|&`{!]|\$\(|\b(?:do|elif|if|then|until|while)\b) ?(?!(?:if|while)\b)([\w-]++)(?=$|[ ;)'\"`])"
)
_ASSIGNED = re.compile(r"(?<![\w.])([\w.]++) ?(?:[-+*/|&^%]?=(?![=>~])|:=|<-)(?! ?require\b)")
_RUNS_A_SCRIPT = re.compile(r"[^\n]*(?:\bchmod\b|\./[\w./-]+|\b(?:ba)?sh[ \t]+[\w./-]+\.sh\b)")


def is_program(text: str) -> bool:
    """Tell whether the first line of a text is one that only code has, and no fence closes the text."""
    return _ONLY_CODE.match(text) is not None and first_end(text) is None


def begins_as_code(text: str) -> bool:
    """Tell whether a text is code or prose, by its first line and its signs."""
    has_signs = not _PROSE.match(text) and _SIGN.search(text, 0, 256 * 1024)
    return bool(_ONLY_CODE.match(text) or has_signs)


def defined_names(block: str) -> frozenset[str]:
    """Return the functions and types that a block defines; of a name with dots, its parts, too."""
    found = ("".join(names) for names in _DEFINITION.findall(_plain(block)))
    return frozenset(part for name in found for part in (name, *name.split(".")))


def is_example(block: str, known: frozenset[str], *, is_named: bool) -> bool:
    """Tell whether a block is an output, runs a script, or only calls one of the names `known`."""
    plain, is_code = _plain(block), is_named or begins_as_code(block)
    if not is_code or all(map(_RUNS_A_SCRIPT.match, plain.splitlines())):
        return True
    if "stdin" in block.lower() or _IS_CODE.search(plain) or _DEFINITION.search(plain):
        return False
    calls = ("".join(names) for names in _USED.findall(plain))
    used = {part for name in calls for part in (name, name.rstrip("!"), name.partition(".")[0])}
    return not known.isdisjoint(used.difference(_ASSIGNED.findall(plain)))


def _plain(text: str) -> str:
    """Return the text without comments, and without strings that name nothing."""

    def rest(found: re.Match[str]) -> str:
        return found[0] if found["comment"] is None and re.search(r"[$#][{(]", found[0]) else " '' "

    lines = (" ".join(line.split()) for line in _COMMENT_OR_STRING.sub(rest, text).splitlines())
    return "\n".join(line for line in lines if line)
