"""Tests that replace a language's own functions, or test a function with the name of one.

Right submissions pass them, and what a submission replaces does not reach the tests.
"""

from __future__ import annotations

from typing import Any

import pytest
from harness import Service
from installed import are_installed, is_language_here
from judging import judge

LIMITS = {"cpu_seconds": 30, "wall_seconds": 30, "memory_mb": 2048, "processes": 64, "disk_mb": 512}

_JEST_TESTS = {
    "spied.test.js": """
const { roll, report, ranked } = require('./solution');
afterEach(jest.restoreAllMocks);
test('random', () => {
  const spy = jest.spyOn(Math, 'random').mockReturnValue(0.5);
  expect(roll()).toBe(4);
  expect(spy).toHaveBeenCalledTimes(1);
});
test('printed', () => {
  const log = jest.spyOn(console, 'log').mockImplementation(() => {});
  const text = jest.spyOn(JSON, 'stringify');
  report({ a: 1 });
  expect(text).toHaveBeenCalledWith({ a: 1 });
  expect(log).toHaveBeenCalledWith('{"a":1}');
});
test('sorted', () => {
  const sort = jest.spyOn(Array.prototype, 'sort');
  expect(ranked([2, 1])).toEqual([1, 2]);
  expect(sort).toHaveBeenCalled();
});
test('restored', () => {
  expect(jest.isMockFunction(Math.random) || jest.isMockFunction([].sort)).toBe(false);
  expect(JSON.stringify([1])).toBe('[1]');
});
""",
    "assigned.test.js": """
const { roll } = require('./solution');
const { random } = Math;
const RealMath = global.Math;
afterEach(() => { Math.random = random; global.Math = RealMath; });
test('assigned', () => {
  Math.random = jest.fn(() => 0.5);
  expect(roll()).toBe(4);
  expect(Math.random).toHaveBeenCalledTimes(1);
});
test('other Math', () => {
  const mathematics = Object.create(global.Math);
  mathematics.random = () => 0;
  global.Math = mathematics;
  expect(roll()).toBe(1);
});
test('as it was', () => {
  expect(Math.random).toBe(random);
  expect(Math).toBe(RealMath);
});
""",
}
_JEST_RIGHT = (
    "const roll = () => 1 + Math.floor(6 * Math.random());\n"
    "const report = (it) => console.log(JSON.stringify(it));\n"
    "const ranked = (list) => [...list].sort();\n"
    "module.exports = { roll, report, ranked };"
)
_JEST_WRONG = _JEST_RIGHT.replace("6 *", "8 *")


def _rolling(body: str, more: str = "") -> str:
    rest = _JEST_RIGHT.partition("\n")[2]
    return f"const roll = () => {{ {body} return 9; }};\n{rest}\n{more}"


_JEST_HACKS = (
    # Each would pass if its function replaced the one that the tests use.
    _rolling("Math.random = () => 4;"),
    _rolling("", "Object.is = () => true;"),
    _rolling("Object.is = () => true;"),
    _rolling("jest.spyOn(Object, 'is').mockReturnValue(true);"),
)
_JEST_KEPT = (
    "const { f } = require('./solution');\n"
    "test('kept', () => { expect(Math.max(f(), 1)).toBe(2); expect(JSON.stringify(f())).toBe('2'); });"
)
_JEST_REPLACES = (
    "Math.max = () => 2; JSON.stringify = () => '2';",
    "Math = { max: () => 2 }; JSON = { stringify: () => '2' };",
    "jest.spyOn(Math, 'max').mockReturnValue(2); jest.spyOn(JSON, 'stringify').mockReturnValue('2');",
    "Reflect.set(Math, 'max', () => 2); Reflect.set(JSON, 'stringify', () => '2');",
    "eval(\"Math.max = () => 2; JSON.stringify = () => '2';\");",
    "for (const [owner, key, value] of [[Math, 'max', 2], [JSON, 'stringify', '2']])\n"
    "  try { Object.defineProperty(owner, key, { value: () => value }); } catch {}",
)


def _rewards(
    service: Service, language: str, grader: dict[str, Any], *programs: str
) -> list[float]:
    items = [{"completion": text, "language": language} for text in programs]
    results = judge(service, *items, grader=grader, limits=LIMITS)
    return [result["reward"] for result in results]


def _need(language: str) -> None:
    here = are_installed(("node", "jest")) if language == "jest" else is_language_here(language)
    if not here:
        pytest.skip(f"{language} is not installed")


def test_tests_of_jest_replace_built_in_functions(service: Service) -> None:
    _need("jest")
    grader = {"kind": "command", "runner": "jest", "files": _JEST_TESTS}
    programs = (_JEST_RIGHT, f'"use strict";\n{_JEST_RIGHT}', _JEST_WRONG, *_JEST_HACKS)
    assert _rewards(service, "javascript", grader, *programs) == [1.0, 1.0, *[0.0] * 5]


def test_a_submission_replaces_nothing_in_the_tests_of_jest(service: Service) -> None:
    _need("jest")
    files = {"kept.test.js": _JEST_KEPT}
    grader = {"kind": "command", "runner": "jest", "files": files}
    right = "module.exports = { f: () => 2 };"
    early = [f"{text}\nmodule.exports = {{ f: () => 1 }};" for text in _JEST_REPLACES]
    late = [f"module.exports = {{ f: () => {{ {text} return 1; }} }};" for text in _JEST_REPLACES]
    late.append(
        "module.exports = { f: new Function(\"Math.max = () => 2; JSON.stringify = () => '2';\") };"
    )
    rewards = _rewards(service, "javascript", grader, right, *early, *late)
    assert rewards == [1.0] + [0.0] * (len(early) + len(late))


_JS_TESTS = """
const assert = require('assert');
const logs = [];
const { log } = console;
console.log = (...a) => logs.push(a.join(' '));
const { random } = Math;
Math.random = () => 0.5;
(async () => {
  main();
  await null;
  console.log = log;
  Math.random = random;
  assert.deepStrictEqual(logs, ['rolled 4']);
  assert.strictEqual(Math.max(...logs.map((line) => line.length)), 8);
  assert.notStrictEqual(Math.random(), 0.5);
})();
"""
_JS_RIGHT = "function main() { console.log('rolled', 1 + Math.floor(6 * Math.random())); }"
_JS_NONE = "function main() {{ {} }}"
_JS_HACKS = (
    "assert = { deepStrictEqual() {}, strictEqual() {}, notStrictEqual() {} };",
    "require('assert').deepStrictEqual = () => {};",
    "Math.max = () => 8; require('assert').deepStrictEqual = () => {};",
    "console.log = () => {}; console = { log() {} };",
)


@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_tests_capture_what_a_program_prints(service: Service, language: str) -> None:
    _need(language)
    tests = (
        _JS_TESTS
        if language == "javascript"
        else _JS_TESTS.replace("const assert =", "import assert =")
    )
    strict = f'"use strict";\n{_JS_RIGHT}'
    wrong = _JS_RIGHT.replace("6 *", "8 *")
    hacks = [_JS_NONE.format(text) for text in _JS_HACKS] + [
        f"{text}\n{_JS_NONE.format('')}" for text in _JS_HACKS
    ]
    rewards = _rewards(
        service, language, {"kind": "exec", "tests": tests}, _JS_RIGHT, strict, wrong, *hacks
    )
    assert rewards == [1.0, 1.0, 0.0] + [0.0] * len(hacks)


def test_the_setup_captures_what_a_program_prints(service: Service) -> None:
    _need("javascript")
    setup = (
        "function printed(f) {\n  const logs = [], old = console;\n"
        "  console = { ...old, log: (x) => logs.push(x) };\n"
        "  try { f(); } finally { console = old; }\n  return logs.join();\n}"
    )
    grader = {
        "kind": "exec",
        "setup": setup,
        "tests": "if (printed(f) !== '2') throw new Error('no');",
    }
    programs = (
        "const f = () => console.log(2);",
        "const f = () => console.log(1);",
        "const f = () => console.log(1); console.log = () => 2; console = { log: () => 2 };",
    )
    assert _rewards(service, "javascript", grader, *programs) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("tail", ["", "0;"])
def test_a_failure_counts_without_the_functions_that_end_a_process(
    service: Service, tail: str
) -> None:
    _need("javascript")
    tests = f"(async () => {{ await null; require('assert').strictEqual(f(), 2); }})(); {tail}"
    ends = "process.exit = process.abort = process.reallyExit = () => {};"
    calls = "Function.prototype.call = () => [process.listeners('uncaughtException')[0]];"
    programs = (
        "const f = () => 2;",
        f"{ends} const f = () => 1;",
        f"const f = () => {{ {ends} setTimeout(() => {{}}, 10); return 1; }};",
        f"{ends} {calls} console.error = () => {{ throw 1; }}; const f = () => 1;",
    )
    rewards = _rewards(service, "javascript", {"kind": "exec", "tests": tests}, *programs)
    assert rewards == [1.0, 0.0, 0.0, 0.0]


_R_ALIAS = """
test_humaneval <- function() {{
  candidate <- {name}
  if (!identical(candidate(c(2, 3)), c(4, 6))) {{ quit('no', 1) }}
  if (!isTRUE(all.equal(sum(candidate(1)), 2))) {{ quit('no', 1) }}
}}
test_humaneval()
"""
_R_NAMES = ("solve", "unique", "merge", "double_it")
_R_HACKS = (
    "identical <- function(...) TRUE; stopifnot <- function(...) NULL; sum <- function(x) 2",
    "all.equal <- identical <- function(...) TRUE",
    "quit <- function(...) NULL; stop <- quit; isTRUE <- function(x) TRUE; stopifnot <- quit",
    "`if` <- function(...) NULL; `!` <- function(x) FALSE; `==` <- function(a, b) TRUE",
    "`==` <- function(a, b) TRUE; nchar <- function(x) 2",
    "all.equal.numeric <- function(...) TRUE; `for` <- function(...) NULL",
    "eval <- function(...) NULL; as.list <- function(...) list(); as.list.expression <- as.list",
)


@pytest.mark.parametrize("name", _R_NAMES)
def test_a_function_has_the_name_of_one_of_r(service: Service, name: str) -> None:
    _need("r")
    grader = {"kind": "exec", "tests": _R_ALIAS.format(name=name)}
    right = f"{name} <- function(x) 2 * x"
    hacks = [f"{name} <- function(x) 0\n{text}" for text in _R_HACKS]
    rewards = _rewards(service, "r", grader, right, f"{name} <- function(x) x", "0", *hacks)
    assert rewards == [1.0] + [0.0] * (2 + len(hacks))


def test_other_functions_that_the_tests_call_are_those_of_r(service: Service) -> None:
    _need("r")
    helped = "stopifnot(toupper(shout('a')) == 'A')"
    rewards = _rewards(
        service,
        "r",
        {"kind": "exec", "tests": helped},
        "shout <- function(x) x",
        "shout <- function(x) 'b'\ntoupper <- function(x) 'A'",
        "shout <- function(x) 'b'\ntoupper.default <- function(x) 'A'",
    )
    assert rewards == [1.0, 0.0, 0.0]


def test_methods_of_luas_strings_and_functions_in_its_tables(service: Service) -> None:
    _need("lua")
    grader = {
        "kind": "exec",
        "tests": 'assert(f("a"):upper() == "A")\nassert(table.sum({1, 2}) == 3)',
    }
    rest = "function table.sum(t) return t[1] + t[2] end"
    upper = "function() return 'A' end"
    programs = (
        f"function string.same(s) return s end function f(s) return s:same() end {rest}",
        f"function f(s) return 'b' end string.upper = {upper} {rest}",
        f"function f(s) return 'b' end getmetatable('').__index = {{ upper = {upper} }} {rest}",
        f"function f(s) getmetatable('').__index.upper = {upper} return 'b' end {rest}",
    )
    assert _rewards(service, "lua", grader, *programs) == [1.0, 0.0, 0.0, 0.0]


# Tests, right programs, and programs that are wrong and change what the tests use or how they end.
Case = tuple[str, str, list[str], list[str]]
CASES: dict[str, Case] = {
    "bash, set -e": (
        "bash",
        'set -e\n[[ $(twice 4) == 8 ]]',
        ["twice() { echo $((2 * $1)); }", "set -u; twice() { false; echo $((2 * $1)); }"],
        ["twice() { echo 1; }; trap 'return 0' ERR", "set -E; twice() { echo 1; }; trap 'return 0' ERR",
         "twice() { echo 1; }; echo : > tests.sh"],
    ),
    "bash, helpers": (
        "bash",
        'assert_equals() { [[ $1 == "$2" ]] || exit 1; }\nassert_equals "$(twice 4)" 8',
        ["twice() { echo $((2 * $1)); }"],
        ["twice() { echo 1; }; assert_equals() { :; }; readonly -f assert_equals",
         "twice() { echo 1; }; set -T; trap '[[ $BASH_COMMAND == \"[[\"* ]] && return 0' DEBUG",
         "twice() { echo 1; }; declare -n POSIXLY_CORRECT=foo; unset() { :; }; exit() { :; }"],
    ),
    "bash, set -e in a substitution": (
        "bash", 'set -e\nr=$(count abc)\n[ "$r" = 0 ]',
        ["count() { echo $1 | grep -o x > l; [ -s l ]; wc -l < l | tr -d ' '; }"], [],
    ),
    "r, all.equal": (
        "r", "stopifnot(isTRUE(all.equal(twice(4), 8)))",
        ["twice <- function(n) 2 * n"],
        ["twice <- function(n) 0\nall.equal.double <- function(...) TRUE",
         "twice <- function(n) 0\nregisterS3method('all.equal', 'double', function(...) TRUE)"],
    ),
    "r, what the tests define": (
        "r", "most <- 3\nstopifnot(next_one() == 4)\ntotal <- 0\nadd(3)\nstopifnot(total == 3)",
        ["next_one <- function() most + 1\ntotal <- 1\nadd <- function(x) total <<- total + x"],
        ["next_one <- function() most\nadd <- function(x) total <<- 3"],
    ),
    "php, the file of the tests": (
        "php", "assert(twice(4) === 8);",
        ["function twice($n) { return 2 * $n; }"],
        ["file_put_contents('tests.php', '<?php '); function twice($n) { return 0; }",
         "set_exception_handler(function () { foreach (get_defined_functions()['user'] as $f) {"
         " try { $f(); } catch (Throwable $e) {} } }); function twice($n) { return 0; }"],
    ),
    "php, texts": (
        "php",
        "$text = <<<END\nassert(1)\nEND;\nassert(trim($text) === 'assert' . '(1)');\n"
        "class A { static function  assert($x) { return $x; } function f() { return self:: assert(8); } }\n"
        "assert((new A)->f() === twice(4)); // assert(0)\n\\assert(A::assert(true));",
        ["function twice($n) { return 2 * $n; }"], ["function twice($n) { return 0; }"],
    ),
    "lua, what the tests replace": (
        "lua",
        "os.time = function() return 4 end\nlocal out = {}\nprint = function(x) out[1] = x end\n"
        "show()\nassert(out[1] == 8)",
        ["function show() print(2 * os.time()) end"], ["function show() print(4) end"],
    ),
    "lua, variables of the tests": (
        "lua", "local expected = 8\nlocal got = twice(4)\nif got ~= expected then error('no') end",
        ["function twice(n) return 2 * n end"],
        ["function twice(n) local name, value = debug.getlocal(2, 1) return value end"],
    ),
    "perl": (
        "perl", "die 'no' unless twice(4) == 8;",
        ["sub twice { return 2 * $_[0]; }"],
        ["BEGIN { package Q; *main::die = sub { 1 }; }\nsub twice { return 0; }",
         "use subs qw(die exit);\nsub die { 1 }\nsub exit { 1 }\nsub twice { return 0; }",
         "package F; use overload 'bool' => sub { 0 }, fallback => 1;\npackage main;\n"
         "$SIG{__DIE__} = sub { CORE::die(bless {}, 'F') };\nsub twice { return 0; }"],
    ),
    "ruby, the file of the tests": (
        "ruby", "raise 'no' unless twice(4) == 8",
        ["def twice(n) = 2 * n"], ["File.write('tests.rb', '')\ndef twice(n) = 0"],
    ),
    "javascript, loops and patterns": (
        "javascript",
        "for (const [n, m] of [[4, 8]]) if (twice(n) !== m || !/^8$/.test(String(twice(n)))) throw n;",
        ["const twice = (n) => 2 * n;",
         "function Stack() {}\nStack.prototype = Object.create(Array.prototype);\n"
         "Stack.prototype.constructor = Stack;\nconst f = () => 2;\nf.toString = () => '2';\n"
         "const twice = (n) => f() * n;"],
        ["Object.getPrototypeOf([][Symbol.iterator]()).next = () => ({ done: true });",
         "RegExp.prototype.test = () => true; const twice = () => '8';"],
    ),
    "javascript, exits": (
        "javascript", "if (twice(4) !== 8) { process.exitCode = 1; process.exit(1); }",
        ["const twice = (n) => 2 * n;"],
        ["process.exit = () => {}; process.on('exit', () => { process.exitCode = 0; });"
         " const twice = () => 0;"],
    ),
    "javascript, modules": (
        "javascript",
        "const assert = require('node:assert');\nassert.deepEqual([twice(4)], [8]);\nsetTimeout(() => {\n"
        "  assert(twice(0) === 0);\n}, 1);",
        ["const assert = require('assert');\nconst twice = (n) => 2 * n;"],
        [f"{way} = () => new Proxy(() => {{}}, {{ get: () => () => {{}} }}); const twice = () => 8;"
         for way in ("const require", "require('module').prototype.require", "require('module')._load")]
        + [f"{way} const twice = (n) => n || 1;" for way in (
            "process.prependListener('uncaughtException', () => process.reallyExit(0));",
            "process.setUncaughtExceptionCaptureCallback(() => {});")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_decides_is_out_of_reach(service: Service, name: str) -> None:
    language, tests, right, wrong = CASES[name]
    _need(language)
    rewards = _rewards(service, language, {"kind": "exec", "tests": tests}, *right, *wrong)
    assert rewards == [1.0] * len(right) + [0.0] * len(wrong)


def test_set_e_of_the_setup_holds_in_the_tests(service: Service) -> None:
    _need("bash")
    tests = '[ "$(twice 4)" = 8 ]\n[ "$(twice 0)" = 0 ]'
    grader = {"kind": "exec", "setup": "set -e", "tests": tests}
    programs = ("twice() { echo $((2 * $1)); }", "twice() { echo 0; }")
    assert _rewards(service, "bash", grader, *programs) == [1.0, 0.0]
