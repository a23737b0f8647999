"""Recognition of usage examples and excerpts in languages other than Python, without a parser.

An example calls what an earlier block defines, so it cannot run alone, and it defines nothing. The
signs of a definition are those of all languages together: in doubt a text is no example, and the last
block stays the code. An excerpt repeats lines of a longer block, and defines nothing either.

Texts come from a policy, so every pattern takes linear time: names are matched from their beginning,
and other repetitions are bounded or possessive.
"""

from __future__ import annotations

import re

__all__ = ["defined_names", "is_excerpt", "is_usage"]

_COMMENT_OR_STRING = re.compile(
    r"""(?P<comment>//[^\n]*+|(?<![\w.*/}"'])/\*(?s:.*?)(?:\*/|\Z)"""
    r"|(?<!\S)--(?:\[\[(?s:.*?)(?:\]\]|\Z)|(?=\s)[^\n]*+)"
    r"|(?<![^\s;])#(?![\[!]|[ \t]{0,20}(?:define|import|include)\b)[^\n]*+)"
    r"""|"(?:[^"\\\n]++|\\.)*+"?|'(?:[^'\\\n]++|\\.)*+'?"""
)
_INTERPOLATED = re.compile(r"[$#][{(] {0,20}\w++\(?")

# Words before a parenthesis and a body that name no function.
_CONTROL = (
    r"(?:catch|do|elif|else|elseif|elsif|for|foreach|if|lock|match|switch|synchronized|try|unless|until"
    r"|using|when|while|with)\b"
)
_KEYWORD = (
    r"(?:class|concept|def|define|enum|fn|fun|func|function|impl|interface|macro_rules|mod|module|namespace"
    r"|object|package|record|struct|sub|trait|type|typealias|typedef|union)\b"
)
_ARGUMENTS = r"\((?:[^(){};]{1,300}+|\([^(){};]{0,100}+\)){0,20}+\)"
_BEFORE_BODY = r"(?: throws [^(){};=\n]{1,80}+|[^(){};,=\n]){0,80}+\n?"
_FUNCTION_VALUE = (
    rf"(?:async |move |static )?(?:\{{ ?)?(?:(?:{_KEYWORD}|lambda\b|proc\b|Proc\.new|R6Class|setRefClass)"
    rf"|(?:Class|Data|Module|Struct)\.|\\\(|\||->"
    rf"|(?:{_ARGUMENTS}|\w{{1,60}}+)(?: ?: ?\w{{1,60}}+)? ?(?:=>|-> ))"
)
# Behind a keyword; before a body; as a value; behind the body of a structure in C.
_DEFINITIONS = (
    re.compile(
        rf"\b{_KEYWORD}[!&* ]{{1,3}}(?:class |<[^<>\n]{{0,80}}+> ?|\([^()\n]{{0,100}}+\) ?)?"
        r"(?!(?:in|of)\b)([\w.]++[?!]?)"
    ),
    re.compile(
        rf"(?<![\w.$>-])(?!{_CONTROL}|(?:async|await|case|default|fn|function|return)\b)([\w.-]++)"
        rf"(?:<[\w, ]{{1,60}}+>)? ?{_ARGUMENTS}{_BEFORE_BODY}(?:\{{|=>)"
    ),
    re.compile(
        rf"(?<![\w.])([\w.]++) ?(?::[^\n]{{1,120}}? )?(?:=(?![=>])|:=|<-|:) ?{_FUNCTION_VALUE}"
    ),
    re.compile(r"\} ?(\w++) ?;|\btypedef [^;{}]{1,120} (\w++) ?;"),
)
_DEFINES = re.compile(
    rf"(?m)\b{_KEYWORD}(?:[!&* ]{{1,3}}(?!(?:in|of)\b|\w++ ?\*? ?\w++ ?[=;,\[])[\w{{<]|<)"
    r"|\b(?:fn|fun|func|function|sub) ?[({]|\\\("
    r"|\b(?:async|constexpr|exports?|given|lambda|operator|proc|return|static|template|yield)\b"
    r"|[\w)>\]] ?=>|\s->\s|\) ?->|= ?(?:move )?\||= ?->|= ?\[[^\[\]\n]{0,80}+\] ?[({m]"
    r"|^[\w-]++ ?\(\) ?[({=]|\bget\(\) ?="
    rf"|^(?!(?:[^\w\n]{{1,5}}+)?(?:else )?{_CONTROL})(?:[^\n]{{0,500}}\){_BEFORE_BODY}\{{|[^\n]{{0,500}}\{{$)"
)
_IS_PROGRAM = re.compile(r"(?mi)stdin|^#!|^\s{0,20}#\s{0,20}include|^package\b")
_CALLED = re.compile(r"(?<![\w.>:])\$?(\w[\w.]*+[?!]?)(?=(?:<[\w, ]{1,60}+>)? ?\()")
_COMMANDS = re.compile(
    r"(?m)(?:^|[;|&`({!]|\b(?:do|elif|else|if|then|time|until|while)\b) ?"
    r"(?!(?:do|elif|else|if|then|time|until|while)\b)([\w-]++)(?=$|[ ;)'\"`])"
)
_TYPES = re.compile(r"(?<![\w.$>:])([A-Z]\w*+)(?=\.|::|\$|->|[<{\[(;]| \*?\w++ ?[;={(\[])")
_ASSIGNED = re.compile(
    r"(?<![\w.])([\w.]++) ?(?:[-+*/|&^%]?=(?![=>~])|:=|<-)(?! ?(?:await )?require\b)"
)


def defined_names(text: str) -> frozenset[str]:
    """Return the functions and types that a text defines; of a name with dots, its parts, too."""
    plain = _plain(text)
    found = (
        name
        for form in _DEFINITIONS
        for each in form.finditer(plain)
        for name in each.groups()
        if name
    )
    return frozenset(part for name in found for part in (name, *name.split(".")))


def is_usage(text: str, names: frozenset[str], *, commands: bool = False) -> bool:
    """Tell whether a text only shows how to call one of `names`, which other texts define.

    `commands`: a function is called as a command of a shell is, without a parenthesis.
    """
    plain = _plain(text)
    if _IS_PROGRAM.search(text) or _DEFINES.search(plain):
        return False
    calls = (_COMMANDS if commands else _CALLED).findall(plain)
    used = {part for name in calls for part in (name, name.rstrip("!"), name.partition(".")[0])}
    used.update(_TYPES.findall(plain))
    return not names.isdisjoint(used.difference(_ASSIGNED.findall(plain)))


def is_excerpt(text: str, whole: str) -> bool:
    """Tell whether every line of a text is one of `whole`, at least twice as long, and none defines a name.

    A function that a text repeats from a program may be the answer.
    """
    lines, others = _lines(text), _lines(whole)
    if 2 * len(lines) > len(others) or not set(lines) <= set(others):
        return False
    return _DEFINES.search(_plain(text).replace("return ", "")) is None


def _lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.splitlines()) if line]


def _plain(text: str) -> str:
    """Return the text without comments, and of each string only the names that it interpolates."""

    def rest(found: re.Match[str]) -> str:
        return " " if found["comment"] else f"'{' '.join(_INTERPOLATED.findall(found[0]))}'"

    lines = (" ".join(line.split()) for line in _COMMENT_OR_STRING.sub(rest, text).splitlines())
    return "\n".join(line for line in lines if line)
