"""Rows of HumanEval-X and MBXP: a function in one of many languages, and a program that tests it.

Their harnesses run prompt, completion and test as one program. Here the test is a source of its
own, so that a completion cannot end the program before the test ends. What the test took from the
prompt, such as imports, is added to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from proctor_client.tasks.fields import Row, optional_text, text_of
from proctor_client.tasks.task import Beginning, Stub, Task

_LANGUAGES_OF_IDS: Mapping[str, str] = MappingProxyType(
    {"CPP": "cpp", "Go": "go", "Java": "java", "JavaScript": "javascript", "Python": "python"}
)
"""HumanEval-X: the beginning of a row's task_id, and the language."""

_IMPORTS = re.compile(r"^(?:#include\b.*|using\s.*;|import\s.*;|use\s.*;)[ \t]*$", re.MULTILINE)
_GO_IMPORTS = re.compile(r"^import\s*(?:\((.*?)\)|(\"[^\"]+\"))[ \t]*$", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(r"^import\b.*\bfrom\s+['\"]([^'\"]+)['\"]", re.MULTILINE)
_NODE_MODULES = frozenset({"assert", "util", "fs", "path", "crypto"})
_KEYWORDS = r"(?:function|fun|func|def|sub)\s+"
_ARROW = r"\s*(?::[^=]+)?=\s*(?:async\s*)?(?:function\b|\([^()]*\)[^=\n]*=>|\w+\s*=>)"
_TYPED = r"^[ \t]*+(?!return\b|else\b|throw\b|new\b)[\w:<>,\[\]&*.? \t]*[\w>\]&*][ \t&*]+"
_TYPED_NAME = re.compile(r"(\w+)\s*\([^()]*\)[^()]*\Z")
_NAMES: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "go": re.compile(r"^func\s+(\w+)\s*\(", re.MULTILINE),
        "javascript": re.compile(r"^(?:const|function)\s+(\w+)", re.MULTILINE),
        "python": re.compile(r"^def\s+(\w+)\s*\(", re.MULTILINE),
    }
)
_TYPED_LANGUAGES = frozenset({"cpp", "java"})

# Equality as lodash and Data::Compare have it: the packages are rarely installed.
_LODASH = (
    "const _ = (() => { const same = require('util').isDeepStrictEqual; const plain = (x) => "
    "Array.isArray(x) ? x.map(plain) : x === 0 ? 0 : x; "
    "return { isEqual: (a, b) => same(plain(a), plain(b)) }; })();"
)
_DATA_COMPARE = r"""
sub Compare {
    my ($x, $y) = @_;
    return !defined $x && !defined $y if !defined $x || !defined $y;
    return 0 if ref $x ne ref $y;
    return $x eq $y if !ref $x;
    if (ref $x eq 'ARRAY') {
        return 0 if @$x != @$y;
        for my $i (0 .. $#$x) { return 0 if !Compare($x->[$i], $y->[$i]); }
        return 1;
    }
    if (ref $x eq 'HASH') {
        return 0 if keys %$x != keys %$y;
        for my $k (keys %$x) { return 0 if !exists $y->{$k} || !Compare($x->{$k}, $y->{$k}); }
        return 1;
    }
    return $x == $y;
}
"""
# Of testify, what the tests of HumanEval-X call.
_TESTIFY = """
type proctorAssert struct{ t *testing.T }
type proctorAsserts struct{}

var assert proctorAsserts

func (proctorAsserts) New(t *testing.T) proctorAssert { return proctorAssert{t} }
func (a proctorAssert) Equal(expected, actual interface{}, _ ...interface{}) {
	a.t.Helper()
	if !reflect.DeepEqual(expected, actual) {
		a.t.Errorf("not equal: %v and %v", expected, actual)
	}
}
func (a proctorAssert) True(value bool, _ ...interface{})  { a.t.Helper(); a.Equal(true, value) }
func (a proctorAssert) False(value bool, _ ...interface{}) { a.t.Helper(); a.Equal(false, value) }
func (a proctorAssert) Nil(value interface{}, _ ...interface{}) {
	a.t.Helper()
	if value != nil && !(reflect.ValueOf(value).Kind() == reflect.Ptr && reflect.ValueOf(value).IsNil()) {
		a.t.Errorf("not nil: %v", value)
	}
}
func (a proctorAssert) InDelta(expected, actual, delta float64, _ ...interface{}) {
	a.t.Helper()
	if !(math.Abs(expected-actual) <= delta) {
		a.t.Errorf("%v and %v", expected, actual)
	}
}
"""
_GO_PACKAGES = (
    *("bytes", "crypto/md5", "encoding/json", "fmt", "math", "math/rand", "reflect", "regexp"),
    *("sort", "strconv", "strings", "testing", "time", "unicode"),
)


def humanevalx(row: Row, place: str) -> Task:
    """HumanEval-X: C++, Go, Java, JavaScript and Python."""
    language = _LANGUAGES_OF_IDS.get(text_of(row, "task_id").partition("/")[0])
    if language is None:
        known = ", ".join(_LANGUAGES_OF_IDS)
        raise ValueError(f"task_id: {row['task_id']!r} begins with none of {known}")
    prompt, test = text_of(row, "prompt"), text_of(row, "test")
    names = _NAMES.get(language, _TYPED_NAME).findall(prompt)
    if not names:
        raise ValueError("prompt: it ends with no function")
    name = names[-1]
    if language == "javascript":
        test = test.replace("console.assert(", "require('assert').ok(")
    if language == "go":
        test = f"{_TESTIFY}\n{test}"
    return _task(row, place, language, name, prompt, test)


def mbxp(row: Row, place: str) -> Task:
    """MBXP and Multi-HumanEval of mxeval: the language is in the row."""
    language = text_of(row, "language")
    prompt, test = text_of(row, "prompt"), text_of(row, "test")
    test = test.replace('const _ = require("lodash")', _LODASH)
    test = test.replace("use Data::Compare;", _DATA_COMPARE)
    if language == "csharp" and "KellermanSoftware" in prompt:
        raise ValueError("the tests need the package CompareNETObjects")
    return _task(row, place, language, text_of(row, "entry_point"), prompt, test)


def _task(row: Row, place: str, language: str, name: str, prompt: str, test: str) -> Task:
    """Return the task of a function `name`; a trainer's completion is a whole program."""
    _refuse_packages(prompt)
    reference = row.get("canonical_solution")
    text = optional_text(row, "prompt")
    if language == "python":
        grader: Mapping[str, Any] = {"kind": "asserts", "tests": [test], "entry_point": name}
        stub = Stub(prompt, name)
        return Task(str(row["task_id"]), place, {"grader": grader}, reference, stub, text)
    make = _SOURCES.get(language, _plain_source)
    beginning, grader = make(language, name, prompt, test)
    fields = {"grader": grader, "language": language}
    return Task(str(row["task_id"]), place, fields, reference, beginning, text)


def _plain_source(
    language: str, name: str, prompt: str, test: str
) -> tuple[Beginning, Mapping[str, Any]]:
    imports = tuple(each.strip() for each in _IMPORTS.findall(prompt))
    tests = "\n".join((*imports, test))
    enclosing = re.search(r"^(?:public\s+)?class\s+\w+\s*\{", prompt, re.MULTILINE)
    beginning = Beginning(
        prompt,
        name,
        enclosing=enclosing[0] if enclosing and language == "java" else "",
        imports=imports,
        definition=_definition(language, name),
    )
    return beginning, {"kind": "exec", "tests": tests}


def _scala_source(
    language: str, name: str, prompt: str, test: str
) -> tuple[Beginning, Mapping[str, Any]]:
    """Split `object Main extends App`, which prompt and test share, into two objects."""
    opened = re.search(r"object\s+Main\s+extends\s+App\s*\{", prompt)
    if opened is None:
        raise ValueError("prompt: no object Main")
    enclosing = "object Solution {"
    beginning = Beginning(
        prompt.replace(opened[0], enclosing),
        name,
        enclosing=enclosing,
        ending="\n}\n",
        definition=_definition(language, name),
    )
    return beginning, {
        "kind": "exec",
        "tests": f"import Solution._\nobject Main extends App {{{test}",
    }


def _go_source(
    language: str, name: str, prompt: str, test: str
) -> tuple[Beginning, Mapping[str, Any]]:
    """Give each of the two files of the package the imports that it uses: Go refuses others."""
    body = _GO_IMPORTS.sub("", re.sub(r"^package\s+\w+[ \t]*$", "", prompt, flags=re.MULTILINE))
    beginning = Beginning(body, name, imports=_GO_PACKAGES, definition=_definition(language, name))
    tests = go_file(re.sub(r"^package\s+\w+[ \t]*$", "", test, flags=re.MULTILINE), _GO_PACKAGES)
    if "testing.T" in test:
        files = {"solution_test.go": tests}
        return beginning, {"kind": "command", "runner": "go_test", "files": files}
    return beginning, {"kind": "exec", "tests": tests}


_SOURCES: Mapping[str, Callable[[str, str, str, str], tuple[Beginning, Mapping[str, Any]]]] = (
    MappingProxyType({"go": _go_source, "scala": _scala_source})
)


def go_file(code: str, packages: tuple[str, ...]) -> str:
    """Return a file of package main that imports those of `packages` that `code` uses."""
    used = [each for each in packages if re.search(rf"\b{each.rpartition('/')[2]}\.", code)]
    lines = "".join(f'import "{each}"\n' for each in used)
    return f"package main\n\n{lines}\n{code}"


def _definition(language: str, name: str) -> re.Pattern[str]:
    """Return what the definition of a function looks like, in a completion that has it."""
    if language in _TYPED_LANGUAGES:
        return re.compile(rf"{_TYPED}{re.escape(name)}[ \t]*\(", re.MULTILINE)
    name = re.escape(name)
    return re.compile(rf"\b(?:{_KEYWORDS}{name}(?!\w)|(?:const|let|var)\s+{name}{_ARROW})")


def _refuse_packages(prompt: str) -> None:
    for module in _MODULE.findall(prompt):
        if module not in _NODE_MODULES:
            raise ValueError(f"the prompt imports the package {module}")
