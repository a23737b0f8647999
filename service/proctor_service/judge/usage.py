"""Recognition of usage examples in languages other than Python, by common signs and without a parser.

An example uses a name that an earlier block defines, so it does not run alone. It defines no function
or type, reads no input, and has no frame of a program such as `#include`. The signs are those of all
languages together: in doubt a text is no example, and the last block stays the code.

Texts come from a policy, so every pattern takes linear time: names are matched from their beginning,
and other repetitions are bounded or possessive.
"""

from __future__ import annotations

import re

__all__ = ["defined_names", "is_usage"]

_COMMENT_OR_STRING = re.compile(
    r"(?P<comment>//[^\n]*+|/\*(?s:.*?)(?:\*/|\Z)|(?<!\S)--(?:\[\[(?s:.*?)(?:\]\]|\Z)|(?=\s)[^\n]*+)"
    r"|(?<![^\s;])#(?!\[|[ \t]{0,20}(?:define|import|include)\b)[^\n]*+)"
    r"""|"(?:[^"\\\n]++|\\.)*+"?|'(?:[^'\\\n]++|\\.)*+'?"""
)
_INTERPOLATED = re.compile(r"[$#][{(]? {0,20}[\w$@*#]++")

# Words before a parenthesis and a body that name no function.
_CONTROL = (
    r"(?:catch|do|elif|else|elseif|for|foreach|if|lock|match|switch|synchronized|try|unless|until|using|when"
    r"|while|with)\b"
)
_KEYWORD = (
    r"(?:class|concept|def|define|enum|fn|fun|func|function|impl|interface|macro_rules|mod|module|namespace"
    r"|object|package|record|struct|sub|trait|typealias|union)\b"
)
_ARGUMENTS = r"\((?:[^(){};]{1,300}+|\([^(){};]{0,100}+\)){0,20}+\)"
_BEFORE_BODY = r"(?: throws [^(){};=\n]{1,80}+|[^(){};,=\n]){0,80}+\n?"
_FUNCTION_VALUE = (
    rf"(?:async |move |static )?(?:\{{ ?)?(?:(?:{_KEYWORD}|lambda\b|proc\b|Proc\.new|R6Class|setRefClass)"
    rf"|(?:Class|Data|Module|Struct)\.|\\\(|\||->"
    rf"|(?:{_ARGUMENTS}|\w{{1,60}}+)(?: ?: ?\w{{1,60}}+)? ?(?:=>|-> ))"
)
# Behind a keyword; before a body; as a value; behind the body of a C structure, as a Go or TypeScript type.
_DEFINITIONS = (
    re.compile(
        rf"\b{_KEYWORD}[!&* ]{{1,3}}(?:class |<[^<>\n]{{0,80}}+> ?|\([^()\n]{{0,100}}+\) ?)?([\w.]++[?!]?)"
    ),
    re.compile(
        rf"(?<![\w.$>-])(?!{_CONTROL})([\w.-]++)(?:<[\w, ]{{1,60}}+>)? ?{_ARGUMENTS}{_BEFORE_BODY}(?:\{{|=>)"
    ),
    re.compile(
        rf"(?<![\w.])([\w.]++) ?(?::[^\n]{{1,120}}? )?(?:=(?![=>])|:=|<-|:) ?{_FUNCTION_VALUE}"
    ),
    re.compile(r"\} ?(\w++) ?;|\btypedef [^;{}]{1,120} (\w++) ?;|\btype (\w++)"),
)
_DEFINES = re.compile(
    rf"(?m)\b{_KEYWORD}(?:[!&* ]{{1,3}}[\w{{<]|<)|\b(?:fn|fun|func|function)\("
    rf"|\b(?:lambda|proc|typedef|type \w)|(?:(?<![=!<>])[=:]|<-) ?{_FUNCTION_VALUE}"
    r"|\b\w++ \w++ ?\([^()\n]{0,200}+\) ?=>"
    rf"|^(?!\W*(?:else )?{_CONTROL})[^\n]{{0,500}}\){_BEFORE_BODY}\{{"
)
_IS_PROGRAM = re.compile(
    r"(?mi)^# ?i(?:mport|nclude)|stdin"
    r"|\b(?:f|s)?scan(?:f|ln)?\b|\b(?:readall|readint|readln|read_?lines?|read)\b"
    r"|mapfile|readarray|\bf?gets\b|getline|getchar|\bfread\b|\bcin\b|\bscanner\b|\bsystem\.in\b|php://"
    r"|\bconsole\.(?:in|open|read)|readfilesync|\bprompt\b|\bio\.|\bargs\b|\barg[vf]\b|commandargs|\bcat\b"
    r"|__(?:data|end)__|\$<|<>|\$\{?[\d@*#]|\$_"
)
_WORD = re.compile(r"(?<![\w.])(\w++(?:\.\w++)*+[?!]?)")
_ASSIGNED = re.compile(r"(?<![\w.])(?<!: )([\w.]++) ?(?:[-+*/|&^%]?=(?![=>~])|:=|<-|\b(?:in|of)\b)")


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


def is_usage(text: str, names: frozenset[str]) -> bool:
    """Tell whether a text only shows how to use one of `names`, which other texts define."""
    plain = _plain(text)
    if _IS_PROGRAM.search(plain) or _DEFINES.search(plain):
        return False
    used = {part for name in _WORD.findall(plain) for part in (name, name.partition(".")[0])}
    return not names.isdisjoint(used.difference(_ASSIGNED.findall(plain)))


def _plain(text: str) -> str:
    """Return the text without comments, and of each string only the names that it interpolates."""

    def rest(found: re.Match[str]) -> str:
        return " " if found["comment"] else f"'{' '.join(_INTERPOLATED.findall(found[0]))}'"

    lines = (" ".join(line.split()) for line in _COMMENT_OR_STRING.sub(rest, text).splitlines())
    return "\n".join(line for line in lines if line)
