"""Rows of HumanEval-X, MBXP and MultiPL-E: a function in any of many languages, and its test program.

Their harnesses run prompt, completion and test as a single program. Here the test is a source of its
own, so that a completion cannot end the program before the test ends. Imports shared with the prompt are
added to the test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from proctor_client.tasks.fields import optional_text, text_of
from proctor_client.tasks.statements import prompt_code_of
from proctor_client.tasks.task import Row, Task

_LANGUAGES_OF_IDS: Mapping[str, str] = MappingProxyType(
    {"CPP": "cpp", "Go": "go", "Java": "java", "JavaScript": "javascript", "Python": "python"}
)
"""HumanEval-X: the beginning of a row's task_id, and the language."""

_IMPORTS = re.compile(r"^(?:#include\b.*|using\s.*;|import\s.*;|use\s.*;)[ \t]*$", re.MULTILINE)
"""Lines such as `#include <vector>`, `using namespace std;`, `import java.util.*;` and `use std::fmt;`."""
_GO_IMPORTS = re.compile(r"^import\s*(?:\((.*?)\)|(\"[^\"]+\"))[ \t]*$", re.MULTILINE | re.DOTALL)
"""Go's `import "fmt"`, and `import (…)` with a package in each line."""
_MODULE = re.compile(r"^import\b.*\bfrom\s+['\"]([^'\"]+)['\"]", re.MULTILINE)
"""The module in `import * as fs from 'fs'`."""
_GO_PACKAGE = re.compile(r"^package\s+\w+[ \t]*$", re.MULTILINE)
"""The line `package main`."""
_JAVATUPLES = re.compile(r"^import org\.javatuples\..*\n", re.MULTILINE)
"""The line `import org.javatuples.*;`."""
_CLOSING = re.compile(r"\A[ \t]*\}[ \t]*\n")
"""The end of the function, before the tests of MultiPL-E: `}` and a line break."""
_LAST_DEFINED = re.compile(
    r"\b(?:function|func|fn|def|sub)\s+(\w+)|^(\w+)\s*(?:<-\s*function\b|\(\)\s*\{)", re.MULTILINE
)
"""The definition of a function in many languages: `def f`, `f <- function`, `f() {`."""
_OPEN_FUNCTION = re.compile(r"^[ \t]*(?:local[ \t]+)?(?:def|function)\b[^\n]*\)\s*\Z", re.MULTILINE)
"""A prompt of Ruby or Lua that ends with `def f(x)` or `local function f(x)`."""
_NODE_MODULES = frozenset({"assert", "util", "fs", "path", "crypto"})
_TYPED_NAME = re.compile(r"(\w+)\s*\([^()]*\)[^()]*\Z")
"""The end of a prompt in a language with types: `int f(int x) {`."""
_TYPED = frozenset({"cpp", "java"})
_NAMES: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "go": re.compile(r"^func\s+(\w+)\s*\(", re.MULTILINE),
        "javascript": re.compile(r"^(?:const|function)\s+(\w+)", re.MULTILINE),
        "python": re.compile(r"^def\s+(\w+)\s*\(", re.MULTILINE),
    }
)
"""Definitions at the top level: `func add(a int) int {`, `const add = (a) => {`, `def add(a):`."""
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
        prefixes = ", ".join(_LANGUAGES_OF_IDS)
        raise ValueError(f"task_id: {row['task_id']!r} begins with none of {prefixes}")
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


def multiple(row: Row, place: str) -> Task:
    """MultiPL-E: HumanEval and MBPP in many languages.

    The tests begin with the end of the function, which the judge adds where a completion lacks it.
    """
    name = text_of(row, "language")
    language = _LANGUAGES_OF_MULTIPLE.get(name)
    if language is None:
        raise ValueError(f"language: {name!r} is none that is judged here")
    prompt, test = text_of(row, "prompt"), text_of(row, "tests")
    defined = _TYPED_NAME if language in _TYPED else _LAST_DEFINED
    names = [next(filter(None, found.groups())) for found in defined.finditer(prompt)]
    if not names:
        raise ValueError("prompt: it ends with no function")
    task = _SPLIT[language](names[-1], prompt, _CLOSING.sub("", test, count=1))
    text = optional_text(row, "prompt")
    return task.with_fields({"id": str(row["name"]), "place": place, "text": text})


def _task(row: Row, place: str, language: str, name: str, prompt: str, test: str) -> Task:
    """Return the task of a function `name`."""
    _refuse_packages(prompt)
    if language == "python":
        grader: Mapping[str, Any] = {"kind": "asserts", "tests": [test], "entry_point": name}
        task = Task(grader=grader, prompt_code=prompt_code_of(row))
    elif language == "go":
        task = _go(name, prompt, test)
    elif language == "scala":
        task = _scala(name, prompt, test)
    else:
        tests = "\n".join((*_imports(prompt), test))
        task = _exec(language, name, prompt, tests)
    origin = {
        "id": str(row.get("task_id") or place.rpartition(":")[2]),
        "place": place,
        "reference": row.get("canonical_solution"),
        "text": optional_text(row, "prompt"),
    }
    return task.with_fields(origin)


def _exec(language: str, name: str, prompt: str, tests: str) -> Task:
    grader = {"kind": "exec", "tests": tests, "entry_point": name}
    return Task(
        grader=grader, language=language, prompt_code=prompt if _begins_function(prompt) else None
    )


def _begins_function(prompt: str) -> bool:
    """Return True for the beginning of a function; a prompt may also be in words."""
    return prompt.count("{") > prompt.count("}") or _OPEN_FUNCTION.search(prompt) is not None


def _imports(prompt: str) -> list[str]:
    return [each.strip() for each in _IMPORTS.findall(prompt)]


def _scala(name: str, prompt: str, test: str) -> Task:
    """Split `object Main extends App`, which prompt and test share, into two objects."""
    opened = re.search(r"object\s+Main\s+extends\s+App\s*\{", prompt)
    if opened is None:
        raise ValueError("prompt: no object Main")
    tests = f"import Solution._\nobject Main extends App {{{test}"
    begun = prompt.replace(opened[0], "object Solution {")
    return _exec("scala", name, begun, tests)


def _go(name: str, prompt: str, test: str) -> Task:
    """Make the test a file of its own, with its used imports only: Go refuses unused imports."""
    begun = _GO_PACKAGE.sub("", prompt, count=1).lstrip()
    tests = go_file(_GO_IMPORTS.sub("", _GO_PACKAGE.sub("", test)), _GO_PACKAGES)
    grader: Mapping[str, Any] = {"kind": "exec", "tests": tests, "entry_point": name}
    if "testing.T" in test:
        files = {"solution_test.go": tests}
        grader = {"kind": "command", "runner": "go_test", "files": files, "entry_point": name}
    return Task(grader=grader, language="go", prompt_code=f"package main\n\n{begun}")


def go_file(code: str, packages: tuple[str, ...]) -> str:
    """Return a file of package main with `code` and imports of the used `packages`."""
    used = [each for each in packages if re.search(rf"\b{each.rpartition('/')[2]}\.", code)]
    lines = "".join(f'import "{each}"\n' for each in used)
    return f"package main\n\n{lines}\n{code}"


def _refuse_packages(prompt: str) -> None:
    for module in _MODULE.findall(prompt):
        if module not in _NODE_MODULES:
            raise ValueError(f"the prompt imports the package {module}")


# ---------------------------------------------------------------- MultiPL-E


def _split_plain(language: str) -> Callable[[str, str, str], Task]:
    return lambda name, prompt, test: _exec(language, name, prompt, test)


def _split_cpp(name: str, prompt: str, test: str) -> Task:
    return _exec("cpp", name, prompt, "\n".join((*_imports(prompt), test)))


def _split_go(name: str, prompt: str, test: str) -> Task:
    return _go(name, prompt, test)


def _split_java(name: str, prompt: str, test: str) -> Task:
    """Move `main` out of the function's class `Problem` into a subclass."""
    without = _JAVATUPLES.sub("", prompt)
    if re.search(r"\b(?:Pair|Triplet|Quartet|Quintet)\b", without + test):
        raise ValueError("the tests need the package org.javatuples")
    tests = "\n".join((*_imports(without), f"class Tests extends Problem {{{test}"))
    return _exec("java", name, without, tests)


def _split_scala(name: str, prompt: str, test: str) -> Task:
    tests = "\n".join((*_imports(prompt), "object Tests {\n    import Problem._", test))
    return _exec("scala", name, prompt, tests)


def _split_php(name: str, prompt: str, test: str) -> Task:
    return _exec("php", name, prompt, f"<?php\n{test}")


def _split_perl(name: str, prompt: str, test: str) -> Task:
    deep = f"{_DATA_COMPARE}\nsub eq_deeply {{ return Compare(@_); }}\n"
    return _exec("perl", name, prompt, test.replace("use Test::Deep;", deep))


def _split_lua(name: str, prompt: str, test: str) -> Task:
    """Let the tests, a chunk of their own, see the function, and reach their end."""
    test = test.replace("os.exit(lu.LuaUnit.run())", "assert(lu.LuaUnit.run() == 0)")
    return _exec("lua", name, prompt.replace("local function", "function"), test)


_LANGUAGES_OF_MULTIPLE: Mapping[str, str] = MappingProxyType(
    {
        "cpp": "cpp",
        "go": "go",
        "go_test.go": "go",
        "java": "java",
        "js": "javascript",
        "lua": "lua",
        "php": "php",
        "pl": "perl",
        "r": "r",
        "rb": "ruby",
        "rs": "rust",
        "scala": "scala",
        "sh": "bash",
        "ts": "typescript",
    }
)
"""Languages by their names in MultiPL-E. The tests of C# (`Debug.Assert`) hold for anything."""
_SPLIT: Mapping[str, Callable[[str, str, str], Task]] = MappingProxyType(
    {
        **{each: _split_plain(each) for each in ("javascript", "typescript", "r", "ruby")},
        **{each: _split_plain(each) for each in ("rust", "bash")},
        "cpp": _split_cpp,
        "go": _split_go,
        "java": _split_java,
        "lua": _split_lua,
        "perl": _split_perl,
        "php": _split_php,
        "scala": _split_scala,
    }
)
