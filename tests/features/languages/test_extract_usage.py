"""Which of several blocks is the code in languages other than Python: usage examples are not."""

from __future__ import annotations

import pytest

from proctor_client.wire import Extract
from proctor_service.features.languages.texts import texts_of
from proctor_service.judge.extract import extract
from proctor_service.settings.languages import LANGUAGES

MODES: tuple[Extract, ...] = ("auto", "fence")
CODE = {
    "bash": "double() {\n  echo $((2 * $1))\n}",
    "javascript": "function double(n) { return 2 * n; }",
    "typescript": "const double = (n: number): number => 2 * n;",
    "jest": "function double(n) { return 2 * n; }",
    "c": "int double_it(int n)\n{\n    return 2 * n;\n}",
    "cpp": "template <class T>\nT twice(const std::vector<T>& v, int n = 0) {\n  return 2 * v[n];\n}",
    "csharp": "public static class Maths {\n  public static int Twice(int n) => 2 * n;\n}",
    "java": "class Solution {\n  public int twice(int n) { return 2 * n; }\n}",
    "junit": "class Solution {\n  static int twice(int n) { return 2 * n; }\n}",
    "kotlin": "fun twice(n: Int): Int = 2 * n",
    "scala": "object Solution {\n  def twice(n: Int): Int = 2 * n\n}",
    "go": "func Twice(n int) int {\n\treturn 2 * n\n}",
    "go_test": "func Twice(n int) int {\n\treturn 2 * n\n}",
    "rust": "pub fn twice(n: i64) -> i64 {\n    2 * n\n}",
    "ruby": "def twice(n)\n  2 * n\nend",
    "php": "<?php\nfunction twice(int $n): int { return 2 * $n; }",
    "perl": "sub twice { return 2 * $_[0]; }",
    "lua": "local function twice(n)\n  return 2 * n\nend",
    "r": "twice.it <- function(n) {\n  2 * n\n}",
}
USAGE = {
    "bash": ["double 4  # 8", 'result=$(double 4)\necho "$result"', '[ "$(double 4)" = 8 ] || exit 1',
             "if double 4 > out; then echo ok; fi", "source ./solution.sh\ndouble 4 | wc -l"],
    "javascript": ["console.log(double(4)); // 8", "const x = double(4);\nconsole.log(x);",
                   "const { double } = require('./double');\n\nconsole.log(double(4));",
                   "import { double } from './double.js';\n\nconsole.log(double(4));",
                   "for (const n of [1, 2]) {\n  console.log(`${n}: ${double(n)}`);\n}",
                   "if (double(4) === 8) {\n  console.log('ok');\n}", "// a function is called\ndouble(4);"],
    "typescript": ["const x: number = double(4);\nconsole.log(x);"],
    "jest": ["console.log(double(4));"],
    "c": ['printf("%d\\n", double_it(4)); // 8',
          "int x = double_it(4);\nif (double_it(x)) {\n  puts(\"1\");\n}"],
    "cpp": ["std::cout << twice(std::vector<int>{1, 2}); // 2", "auto x = twice<int>(v);\n/* class X */"],
    "csharp": ["Console.WriteLine(Maths.Twice(4)); // 8", "using System;\nvar x = Maths.Twice(4);"],
    "java": ["System.out.println(new Solution().twice(4)); // 8",
             "Solution s = new Solution();\nint x = s.twice(4);", "assert new Solution().twice(4) == 8;"],
    "junit": ["int x = Solution.twice(4);"],
    "kotlin": ["println(twice(4)) // 8", "val x: Int = twice(4)\ncheck(x == 8)"],
    "scala": ["println(Solution.twice(4)) // 8", "import Solution._\nassert(twice(4) == 8)"],
    "go": ["fmt.Println(Twice(4)) // 8", "x := Twice(4)\nfor i := range x {\n\tfmt.Println(i)\n}"],
    "go_test": ["fmt.Println(Twice(4))"],
    "rust": ["assert_eq!(twice(4), 8);", 'let x: i64 = twice(4);\nprintln!("{}", x);'],
    "ruby": ["puts twice(4) # => 8", 'puts "#{twice(4)}"',
             "require_relative 'twice'\ntwice(4)"],
    "php": ["<?php\necho twice(4); // 8", "echo twice(4), PHP_EOL; # 8"],
    "perl": ["print twice(4), qq{\\n}; # 8", "use Solution;\nmy $x = twice(4);"],
    "lua": ["print(twice(4)) -- 8", "local x = twice(4)\nprint(x)"],
    "r": ["print(twice.it(4)) # 8", "x <- twice.it(4)\nx"],
}  # fmt: skip
BETTER = {
    "bash": ["double() { echo $(($1 + $1)); }\ndouble 4", "function double { echo 8; }\ndouble"],
    "javascript": ["const double = n => n + n;\ndouble(4);", "class A {\n  f() { return double(4); }\n}",
                   "var double = async function (n) { return n + n; }\ndouble(4)",
                   "const o = { async f(x = g()) { return double(x); } };",
                   "const double = Math.sqrt;\ndouble(4);"],
    "typescript": ["const double: (n: number) => number = (n) => n + n;\ndouble(4);",
                   "function double<T extends number>(n: T) { return n * 2; }\ndouble(4);"],
    "jest": ["const { double } = require('./x');\ntest('it', () => { expect(double(4)).toBe(8); });"],
    "c": ["static int\ndouble_it(int n) { return n + n; }\nint x = 1;",
          "int apply(int (*f)(int), int x) { return double_it(f(x)); }", "#define F(x) double_it(x)\nint y;"],
    "cpp": ["struct A {\n  int b = twice(4);\n};", "auto f = [](int n) { return twice(n); };",
            "int f(int n) noexcept { return twice(n); }", "A::A(int n) : x(twice(n)) {}"],
    "csharp": ["int Twice(int n) => n + n;\nConsole.WriteLine(Twice(4));",
               "record R(int N);\nvar x = Maths.Twice(4);"],
    "java": ["class Other {\n  int f() { return new Solution().twice(4); }\n}",
             "int f(int n) throws Exception {\n  return new Solution().twice(n);\n}"],
    "junit": ["class SolutionTest {\n  @Test void t() { assertEquals(8, Solution.twice(4)); }\n}"],
    "kotlin": ["fun twice(n: Int) = n + n\nprintln(twice(4))", "val f = { n: Int -> twice(n) }"],
    "scala": ["object S {\n  val x = Solution.twice(4)\n}", "val f = (n: Int) => Solution.twice(n)"],
    "go": ["func F(n int) int { return Twice(n) }",
           "type T struct{}\nfunc (t T) F() int { return Twice(1) }"],
    "go_test": ["func TestTwice(t *testing.T) {\n\tif Twice(4) != 8 { t.Fail() }\n}"],
    "rust": ["fn f(n: i64) -> i64 { twice(n) }", "impl T {\n  const X: i64 = twice(4);\n}"],
    "ruby": ["def twice(n) = n + n\nputs twice(4)", "twice = 8\nputs twice + 1",
             "class A\n  X = twice(4)\nend"],
    "php": ["<?php\nfunction twice($n) { return $n + $n; }\necho twice(4);", "$f = fn($n) => twice($n);"],
    "perl": ["sub twice { $_[0] + $_[0] }\nprint twice(4);", "my $f = sub { twice(@_) };"],
    "lua": ["function twice(n) return n + n end\nprint(twice(4))",
            "local f = function(n) return twice(n) end"],
    "r": ["twice.it = function(n) n + n\ntwice.it(4)", "f <- \\(n) twice.it(n)"],
}  # fmt: skip
WHOLE = {
    "bash": ["#!/bin/bash\ndouble 4", "double() ( echo 8 )\ndouble 4"],
    "javascript": ["process.stdin.on('data', n => console.log(double(+n)));",
                   "function main() { console.log(double(4)); }\nmain();"],
    "typescript": ["import * as fs from 'fs';\nconsole.log(double(+fs.readFileSync('/dev/stdin')));"],
    "jest": ["describe('double', () => { it('is', () => double(4)); });"],
    "c": ["#include <stdio.h>\nint main(void) {\n  printf(\"%d\", double_it(4));\n}"],
    "cpp": ["int main() {\n  int n;\n  std::cin >> n;\n  std::cout << twice(n);\n}"],
    "csharp": ["class P {\n  static void Main() { Maths.Twice(4); }\n}"],
    "java": ["public class Main {\n  public static void main(String[] a) { new Solution().twice(4); }\n}"],
    "junit": ["package a;\nimport b.C;\nint x = Solution.twice(4);"],
    "kotlin": ["fun main() {\n  println(twice(4))\n}"],
    "scala": ["@main def run() = println(Solution.twice(4))"],
    "go": ['package main\nimport "fmt"\nfunc main() { fmt.Println(Twice(4)) }'],
    "go_test": ["package a\nvar x = Twice(4)"],
    "rust": ['fn main() { println!("{}", twice(4)); }', "io::stdin().read_line(&mut s);\ntwice(4);"],
    "ruby": ["puts twice(STDIN.read.to_i)"],
    "php": ["<?php\necho twice((int) trim(fgets(STDIN)));"],
    "perl": ["my $n = <STDIN>;\nprint twice($n);", "my @chars = split //, <STDIN>;\nprint twice(@chars);"],
    "lua": ['for line in io.stdin:lines() do print(twice(line)) end'],
    "r": ['n <- as.integer(readLines("stdin"))\ncat(twice.it(n))'],
}  # fmt: skip
MORE = [
    ("javascript", "function make() { return {}; }", "const object = make();\nconst record = make();"),
    ("java", "int f(int n) throws IOException, E {\n  return n;\n}", "System.out.println(f(4));"),
    ("cpp", "class Solution {\npublic:\n  int f(int n) { return n; }\n};", "Solution s;\ncout << s.f(4);"),
    ("cpp", "class Stack {\n  std::vector<int> v;\n};", "Stack s{};\ns.push(4);"),
    ("c", "typedef struct {\n  int x;\n} Point;\nvoid move_by(Point *p) { p->x++; }", "Point p = {1};"),
    ("go", "type Stack struct{ items []int }", "s := &Stack{}\ns.Push(4)"),
    ("rust", "struct Solution;\nimpl Solution {\n  fn f(n: i32) -> i32 { n }\n}", "Solution::f(4);"),
    ("javascript", "class Stack {\n  push(x) {}\n}", "const s = new Stack();\ns.push(4);"),
    ("javascript", "exports.f = async (a, b = (1)) => a;", "f(1).then(console.log);"),
    ("typescript", "class Stack<T> {}", "const s: Stack<number> = new Stack<number>();"),
    ("kotlin", "data class P(val x: Int)", "val p = P(4)\nprintln(p)"),
    ("ruby", "class Stack\n  def push(x); end\nend", "s = Stack.new\ns.push(4)"),
    ("ruby", "def even?(n)\n  n % 2 == 0\nend", "puts even?(4)"),
    ("perl", "package Stack;\nsub new { bless {}, shift }\n1;", "my $s = Stack->new;\n$s->push(4);"),
    ("php", "class Stack { public function push($x) {} }", "$s = new Stack();\n$s->push(4);"),
    ("php", "$f = fn($n) => 2 * $n;", "echo $f(4);"),
    ("lua", "local M = {}\nfunction M.twice(n) return 2 * n end\nreturn M", "print(M.twice(4))"),
    ("r", 'Stack <- R6Class("Stack", list())', "s <- Stack$new()"),
    ("csharp", "int Twice(int n)\n{\n    return 2 * n;\n}", "Console.WriteLine(Twice(4));"),
    ("java", "static <T> List<T> f(List<? extends T> a) {\n  return a;\n}",
     "System.out.println(f(List.of(1)));"),
]  # fmt: skip
SEPARATE = [
    ("ruby", "def total(a) = a", "a = [1]\nputs a.total"),
    ("javascript", "function sum(a) { return a; }", "console.log('the sum is', 1 + 2);"),
    ("go", "func max(a, b int) int { return a }", "package main\nfunc main() { print(max(1, 2)) }"),
    ("javascript", "class Stack {\n  push(x) {}\n}", "const a = [];\na.push(1);\nconsole.log(a);"),
    ("javascript", "function f(n) { return n; }", "console.log(1 + 1);  // unlike f(1)"),
    ("javascript", "function sum(a) { return a; }", "let sum = 0;\nfor (const x of [1]) sum += x;"),
    ("bash", "double() { echo; }", "double=4\necho double"),
    ("ruby", "def count(n) = n", "count = 1\nputs count if count"),
    ("javascript", "function max(a) { return a[0]; }", "const [max, min] = [2, 1];\nlog(max);"),
    (
        "javascript",
        "const get = async (url) => fetch(url);",
        "(async () => {\n  log(await fetch('x'));\n})();",
    ),
    (
        "typescript",
        "type Pair = { k: string };",
        "const f = (pairs: Pair[]): Map<string, number> =>\n  new Map(pairs.map(p => [p.k, 1]));",
    ),
    (
        "typescript",
        "interface User { id: number }",
        "export const load = async (id: number): Promise<User> => {\n  return get(id) as User;\n};",
    ),
    ("javascript", "class Point {}", "const add = ({ x: a }, { x: b }) => new Point(a + b);"),
    (
        "javascript",
        "class Item {}",
        "const f = (\n  items = [new Item(1)],\n  { most = 3 } = {},\n) => items[0];",
    ),
    (
        "csharp",
        "record Item(int Price);",
        "List<Item> F(List<Item> a, int k) => a.OrderBy(i => i.Price).ToList();",
    ),
    ("csharp", "class Node { }", "int[] F(Node head) =>\n    Walk(head).ToArray();"),
    (
        "java",
        "class R { }",
        "static List<String> load(R r)\n        throws IOException {\n    return R.read(r);\n}",
    ),
    (
        "cpp",
        "template <typename T> struct Range { T lo; };",
        "template <typename T>\nauto f(const Range<T>& r) -> std::pair<T, T> {\n  return {r.lo, r.lo};\n}",
    ),
    ("cpp", "struct Counter { int n; };", "auto make = [c = Counter{}] mutable { return ++c.n; };"),
    ("perl", "sub add { 1 }", "my %f = ('+' => sub{ add(@_) });\nprint $f{'+'}->(1);"),
    ("perl", "sub count { 1 }", "my %count;\n$count{$_}++ for qw(a b);\nprint $count{a};"),
    ("lua", "local function sum(t) return 1 end", "local sum, n = 0, #t\nprint(sum / n)"),
    (
        "php",
        "function total($a) { return 1; }",
        "[$total, $n] = [array_sum([1]), 2];\necho $total / $n;",
    ),
    ("bash", "run() { make; }", "run() (\n  make\n)\nrun() ( run )"),
    (
        "bash",
        'log() { echo "$1"; }',
        '#!/bin/bash\nlog start\nfor f in ./*.txt; do\n  cat "$f"\ndone',
    ),
    ("javascript", "function memo(f) { return f; }", "const fib = memo((n) => n);"),
    (
        "javascript",
        "const compose = (f) => f;",
        "const slug = compose(trim);\nmodule.exports = slug;",
    ),
]


def two(language: str, first: str, second: str) -> str:
    return f"Here:\n```{language}\n{first}\n```\nExample: it gives 8.\n```{language}\n{second}\n```\nOk."


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(language, text) for language, texts in table.items() for text in texts]


def test_the_tables_have_every_language() -> None:
    assert set(CODE) == set(USAGE) == set(BETTER) == set(WHOLE) == set(LANGUAGES)


@pytest.mark.parametrize(("language", "usage"), pairs(USAGE))
def test_an_example_behind_the_code_is_not_the_code(language: str, usage: str) -> None:
    text, code = two(language, CODE[language], usage), CODE[language]
    assert extract(text, "auto", texts_of(language)) == code
    assert (
        extract(
            text.replace(usage, f"{usage}\n```\nAnd:\n```{language}\n{usage}"),
            "auto",
            texts_of(language),
        )
        == code
    )
    assert extract(f"<answer>\n{text}\n</answer>", "auto", texts_of(language)) == code
    assert extract(text, "fence", texts_of(language)) == code


@pytest.mark.parametrize(("language", "usage"), pairs(USAGE))
def test_an_example_in_a_fence_without_a_name(language: str, usage: str) -> None:
    text = f"```{language}\n{CODE[language]}\n```\nExample:\n```\n{usage}\n```\n"
    assert extract(text, "auto", texts_of(language)) == CODE[language]


@pytest.mark.parametrize("language", CODE)
def test_fences_in_bullets(language: str) -> None:
    lines = two(language, CODE[language], USAGE[language][0]).splitlines()
    text = "- It:\n" + "\n".join(f"  {line}" for line in lines)
    assert extract(text, "auto", texts_of(language)) == CODE[language]


@pytest.mark.parametrize(("language", "better"), pairs(BETTER))
def test_better_code_behind_the_code_is_the_code(language: str, better: str) -> None:
    assert extract(two(language, CODE[language], better), "auto", texts_of(language)) == better


@pytest.mark.parametrize(("language", "program"), pairs(WHOLE))
def test_a_program_behind_its_helper_is_the_code(language: str, program: str) -> None:
    assert extract(two(language, CODE[language], program), "auto", texts_of(language)) == program


@pytest.mark.parametrize(("language", "only"), [*pairs(USAGE), *CODE.items()])
def test_the_only_block_is_the_code(language: str, only: str) -> None:
    assert extract(f"Here:\n```{language}\n{only}\n```\n", "auto", texts_of(language)) == only


@pytest.mark.parametrize(("language", "code", "usage"), MORE)
def test_types_methods_and_functions_in_variables(language: str, code: str, usage: str) -> None:
    assert extract(two(language, code, usage), "auto", texts_of(language)) == code


@pytest.mark.parametrize(("language", "first", "last"), SEPARATE)
def test_a_name_that_means_something_else_is_not_used(language: str, first: str, last: str) -> None:
    assert extract(two(language, first, last), "auto", texts_of(language)) == last


@pytest.mark.parametrize("language", CODE)
def test_a_prompt_may_have_opened_the_fence(language: str) -> None:
    code, usage = CODE[language], USAGE[language][0]
    for program in (code, *BETTER[language], *WHOLE[language]):
        for after in ("", "\nIt is so.", "<|im_end|>", "\nIt gives:\n```text\n8\n```\n"):
            for mode in MODES:
                assert extract(f"{program}\n```{after}", mode, texts_of(language)) == program
    for fence in (language, ""):
        text = f"{code}\n```\nFor example:\n```{fence}\n{usage}\n```\nDone."
        assert extract(text, "auto", texts_of(language)) == code
    for after in ("", "\nIt is so."):
        assert extract(f"{language}\n{code}\n```{after}", "auto", texts_of(language)) == code
    assert extract(f"Solution\n```\n{code}\n```", "auto", texts_of(language)) == code


@pytest.mark.parametrize(("language", "code"), CODE.items())
def test_a_function_without_a_fence_is_the_code(language: str, code: str) -> None:
    for text in (
        code,
        f"{code}\n",
        f"\n{code}",
        f"<think>\nHm.\n</think>\n{code}",
        f"{code}\n[DONE]",
    ):
        assert extract(text, "auto", texts_of(language)) == code


def test_a_function_of_a_program_may_be_the_answer() -> None:
    function = "function f(a) {\n  return a;\n}"
    program = f"const fs = require('fs');\n{function}\nconst a = fs.readFileSync(0);\nconsole.log(f(a));\n"
    assert extract(two("javascript", program, function), "auto", texts_of("javascript")) == function


def test_a_shorter_version_is_no_excerpt() -> None:
    code = "function f(a) {\n  console.log(a);\n  return a;\n}"
    shorter = code.replace("  console.log(a);\n", "")
    assert extract(two("javascript", code, shorter), "auto", texts_of("javascript")) == shorter


def test_a_language_of_the_settings_has_the_same_rule() -> None:
    code = "function f(x)\n  x\nend"
    for text in (code, two("julia", code, "println(f(4))"), f"<answer>{code}</answer>"):
        assert extract(text, "auto", texts_of("julia")) == code
