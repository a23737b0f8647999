"""Which completions are programs as they stand, and which of several blocks is the code."""

from __future__ import annotations

import pytest

from proctor_client.wire import Extract
from proctor_service.features.languages.texts import texts_of
from proctor_service.judge.extract import extract
from proctor_service.settings.languages import LANGUAGES

MODES: tuple[Extract, ...] = ("auto", "fence")
ONE_LINE = [
    "print(sum(map(int, input().split())))",
    "print(1)",
    "print (1)",
    "print(1);",
    "print(1)  # the answer",
    "print(f'{1 + 1}')",
    "x = 1",
    "a, b = map(int, input().split()); print(a + b)",
    "import math",
    "from math import gcd",
    "import sys; print(sys.stdin.read())",
    "def f(x): return x",
    "f = lambda x: x * 2",
    "lambda x: x * 2",
    "class A: pass",
    "for i in range(3): print(i)",
    "while True: pass",
    "if True: print(1)",
    "exec('print(1)')",
    "__import__('os').system('true')",
    "main()",
    "solve(input())",
    "sys.stdout.write('1')",
    "'\\n'.join(map(str, range(3)))",
    "[print(i) for i in range(3)]",
    "print(1) if input() else print(2)",
    "print(1), print(2)",
    "input() and print(1)",
    "(lambda: print(1))()",
    "(n := int(input())) and print(n)",
    "[*map(print, input().split())]",
    "*map(print, [1]),",
    "assert 1 + 1 == 2",
    "raise ValueError",
    "raise SystemExit(0)",
    "with open(0) as f: print(f.read())",
    "try: print(1)\nexcept ValueError: pass",
    "# a comment\nprint(1)",
    "print('Sorry, I cannot.')",
    "print('日本'); print(1)",
    "async def f(): return 1",
    "@staticmethod\ndef f(): return 1",
    "Solution().solve()",
    "x: int = 1",
    "x += 1",
]
NO_PROGRAM = [
    "Sorry, I cannot.",
    "I don't know",
    "I can not",
    "None",
    "True",
    "yes",
    "Yes",
    "42",
    "3.14",
    "-1",
    "'yes'",
    '"""yes"""',
    "...",
    "x",
    "e.g",
    "Yes, sure",
    "yes; no",
    "yes\nno",
    "not sure",
    "yes or no",
    "yes if possible else no",
    "Answer: 42",
    "Answer: print(42)",
    "answer == 42",
    "[1, 2, 3]",
    "{'a': 1}",
    "(1, 2)",
    "a - b",
    "x[0]",
    "pass",
    "return",
    "return 42",
    "break",
    "continue",
    "global warming",
    "del monte",
    "print",
    "help",
    "`x`",
    "print(1",
    "The answer is print(1)",
    "print the sum",
    "await",
    "# print(1)",
]


@pytest.mark.parametrize("text", ONE_LINE)
def test_one_line_is_a_program(text: str) -> None:
    assert extract(text, "auto") == text
    assert extract(text + "\n", "auto") == text


@pytest.mark.parametrize("text", NO_PROGRAM)
def test_a_word_a_value_and_prose_are_no_program(text: str) -> None:
    assert extract(text, "auto") is None


@pytest.mark.parametrize("text", [" print(1)", "\n\n    print(1)\n", "  x = 1\n  y = 2"])
def test_what_stands_around_a_program_is_taken_off(text: str) -> None:
    code = extract(text, "auto")
    assert code is not None
    compile(code, "", "exec")


CODE = "def add(a, b):\n    return a + b"
READS = "print(sum(map(int, input().split())))"
USAGE = "Run it like this:\n"
BEHIND = {
    "a session of a shell": f"{USAGE}```\n$ echo 1 2 3 | python solution.py\n6\n```",
    "a shell, named": f"{USAGE}```bash\necho 1 2 3 | python solution.py\n```",
    "a shell, not named": f"{USAGE}```\necho 1 2 3 | python solution.py\n```",
    "a console": f"{USAGE}```console\n$ python solution.py\n6\n```",
    "text": "Output:\n```text\n6\n```",
    "json": 'Output:\n```json\n{"sum": 6}\n```',
    "output": "Output:\n```\n6\n```",
    "output of several lines": "Output:\n```\n1 2\n6\n```",
    "output that is words": "Output:\n```\nHello, World!\n```",
    "output that is one word": "Output:\n```\nYES\n```",
    "output that is a list": "Output:\n```\n[1, 2, 3]\n```",
    "output that is a dict": 'Output:\n```\n{"a": 1}\n```',
    "output with labels": "```\nInput: 3\nOutput: 6\n```",
    "input and output": "```\nInput:\n1 2 3\nOutput:\n6\n```",
    "a session named pycon": "```pycon\n>>> add(1, 2)\n3\n```",
    "installing": "```\npip install numpy\n```",
    "a command of one word": "```\nmake\n```",
    "a traceback": '```\nTraceback (most recent call last):\n  File "a.py", line 1\nValueError\n```',
    "a prompt with a name": "```\nme@here:~$ python a.py\n6\n```",
    "a table": "```\n| a | b |\n|---|---|\n| 1 | 2 |\n```",
    "an output block in tildes": "~~~\n6\n~~~",
    "usage and then output": "```bash\npython a.py\n```\nprints\n```\n6\n```",
    "two outputs": "```\n6\n```\nor\n```\n7\n```",
    "unclosed output": "Output:\n```\n6",
    "output that names python": "```python\n6\n```",
}
USES = {
    "a session": "```\n>>> add(1, 2)\n3\n```",
    "a session, named": "```python\n>>> add(1, 2)\n3\n```",
    "calls": "```python\nprint(add(1, 2))  # 3\n```",
    "calls, not named": "```\nprint(add(1, 2))\n```",
    "asserts": "```python\nassert add(1, 2) == 3\n```",
    "a bare call": "```python\nadd(1, 2)\n```",
    "a loop": "```python\nfor a, b in [(1, 2)]:\n    print(add(a, b))\n```",
    "an import": "```python\nfrom solution import add\n\nprint(add(1, 2))\n```",
    "a test": "```python\nfrom solution import add\n\ndef test_add():\n    assert add(1, 2) == 3\n```",
    "twice": "```python\nadd(1, 2)\n```\nand\n```python\nadd(3, 4)\n```",
}


@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize("fence", ["python", "py", ""])
@pytest.mark.parametrize("code", [CODE, READS])
def test_output_and_usage_behind_the_code_are_not_the_code(
    name: str, fence: str, code: str
) -> None:
    text = f"Here it is:\n```{fence}\n{code}\n```\n{BEHIND[name]}"
    if name == "output that names python" and not fence:
        return  # then the block that names it is taken
    assert extract(text, "auto") == code
    assert extract(f"<answer>\n{text}\n</answer>", "auto") == code
    assert extract(text + "\nThat is all.", "auto") == code or "unclosed" in name


@pytest.mark.parametrize("name", USES)
def test_a_block_that_uses_the_code_is_not_the_code(name: str) -> None:
    assert extract(f"```python\n{CODE}\n```\nUsage:\n{USES[name]}", "auto") == CODE


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"```python\n{READS}\n```\nBetter:\n```python\n{CODE}\n```", CODE),
        (f"```python\n{READS}\n```\nNot:\n```\n{CODE}\n```", READS),
        (f"```\n{READS}\n```\nBetter:\n```\n{CODE}\n```", CODE),
        (f"```\n6\n```\n```python\n{CODE}\n```", CODE),
        (f"```python\n{CODE}\n```\n```python\n{READS}\n```", READS),
        (f"```python\n{CODE}\n```\nNo:\n```python\n{CODE}\nprint(add(1, 2))\n```", None),
        (f"```python\n{CODE}\n```\nNo:\n```python\ndef add(a, b) return\n```", "def add(a, b) return"),
        (f"```\n{CODE}\n```\nNo:\n```python\ndef add(a, b) return\n```", "def add(a, b) return"),
        ("```\n6\n```", "6"),
        ("```\n$ python a.py\n```\n```\n6\n```", "6"),
        ("```python\nx = (\n```\n```\n6\n```", "x = ("),
    ],
)  # fmt: skip
def test_the_last_block_that_is_code_is_taken(text: str, code: str | None) -> None:
    assert extract(text, "auto") == (code or f"{CODE}\nprint(add(1, 2))")


OTHER = {
    "bash": ("read a b; echo $((a + b))", ["echo 1 2 | bash solution.sh", "chmod +x a.sh && ./a.sh"]),
    "c": ('#include <stdio.h>\nint main(void) { puts("1"); return 0; }', ["gcc a.c && ./a.out"]),
    "cpp": ("#include <iostream>\nint main() { std::cout << 1; }", ["g++ a.cpp && ./a.out"]),
    "java": (
        "public class A {\n  public static void main(String[] a) { System.out.println(1); }\n}",
        ["javac A.java && java A"],
    ),
    "javascript": ("console.log(1 + 1);", ["node solution.js"]),
    "go": ('package main\nimport "fmt"\nfunc main() { fmt.Println(1) }', ["go run a.go"]),
    "rust": ('fn main() { println!("1"); }', ["cargo run", "rustc a.rs && ./a"]),
}  # fmt: skip


@pytest.mark.parametrize("language", OTHER)
def test_other_languages(language: str) -> None:
    code, commands = OTHER[language]
    for command in commands:
        for behind in (f"```\n{command}\n```", f"```console\n$ {command}\n6\n```", "```\n6\n```",
                       f"```\n$ {command}\n```", "```text\n6\n```", '```json\n{"a": 1}\n```'):  # fmt: skip
            for fence in (language, ""):
                text = f"Here:\n```{fence}\n{code}\n```\nRun it:\n{behind}"
                assert extract(text, "auto", texts_of(language)) == code, text
    if language == "bash":
        text = f"```bash\n{code}\n```\n```bash\n{commands[0]}\n```"
        assert extract(text, "auto", texts_of(language)) == code
    better = f"```{language}\nold\n```\nBetter:\n```{language}\n{code}\n```"
    assert extract(better, "auto", texts_of(language)) == code


BARE = {
    **{language: [code] for language, (code, _) in OTHER.items()},
    "typescript": ["const n: number = Number(require('fs').readFileSync(0, 'utf8'));\nconsole.log(2 * n);",
                   "interface P { x: number }\nconst p: P = { x: 1 };\nconsole.log(p.x);",
                   "import * as fs from 'fs';\n\nfunction main(): void {\n  console.log(1);\n}\n\nmain();"],
    "kotlin": ["fun main() {\n    val n = readLine()!!.toInt()\n    println(2 * n)\n}",
               "import java.util.Scanner\n\nfun main(args: Array<String>) = println(1)"],
    "scala": ["object Main extends App {\n  println(scala.io.StdIn.readInt() * 2)\n}",
              "import scala.io.StdIn.readInt\n\nobject Main {\n  def main(args: Array[String]): Unit = {\n"
              "    println(2 * readInt())\n  }\n}",
              "@main def run(): Unit =\n  println(1)"],
    "csharp": ["using System;\n\nclass Program {\n    static void Main() {\n        f(1);\n    }\n}",
               "int n = int.Parse(Console.ReadLine());\nConsole.WriteLine(2 * n);",
               "public static class P\n{\n    public static void Main(string[] a)\n    {\n    }\n}"],
    "php": ["<?php\n$n = (int) fgets(STDIN);\necho 2 * $n;",
            "$n = intval(trim(fgets(STDIN)));\necho 2 * $n, \"\\n\";",
            "<?php\n\nfunction f($n) {\n    return 2 * $n;\n}\n\necho f(3);\n?>"],
    "ruby": ["n = gets.to_i\nputs n * 2\n", "puts gets.to_i * 2", "a, b = gets.split.map(&:to_i)\nputs a + b",
             "def double(n)\n  2 * n\nend\n\nputs double(gets.to_i)",
             "# Doubles n.\nn = gets.to_i\nputs \"#{2 * n}\"",
             "gets.to_i.times do |i|\n  puts i\nend", "require 'set'\nputs Set.new([1]).size",
             "class A\n  def f\n    1\n  end\nend\nputs A.new.f", "while line = gets\n  puts line\nend"],
    "perl": ["use strict;\nuse warnings;\nmy $n = <STDIN>;\nprint 2 * $n, \"\\n\";",
             "my $n = <>;\nprint $n * 2;",
             "#!/usr/bin/perl\nprint 1 + 1, \"\\n\";", "while (<STDIN>) {\n    print;\n    print $_;\n}"],
    "lua": ["local n = io.read('n')\nprint(2 * n)", "-- Doubles n.\nn = tonumber(io.read())\nprint(2 * n)",
            "function f(n)\n  return 2 * n\nend\nprint(f(3))",
            "for line in io.lines() do\n  io.write(line)\nend",
            "print(2 * io.read('n'))"],
    "r": ["n <- as.integer(readLines('stdin'))\ncat(2 * n)", "n = scan('stdin')\nprint(2 * n)",
          "f <- function(n) {\n  2 * n\n}\ncat(f(3), '\\n')", "# Doubles n.\nlibrary(stats)\ncat(1)",
          "cat(1 + 1)"],
}  # fmt: skip
PROSE = [
    *[
        "Sorry, I cannot.",
        "I don't know",
        "None",
        "yes",
        "Yes",
        "42",
        "-1",
        "'yes'",
        "yes\nno",
        "a - b",
    ],
    *["not sure", "pass", "return 42", "Answer: 42", "global warming", "e.g", "...", "# nothing"],
    "The answer is print(1)",
    "For all n, it holds.",
    "If n = 2, the program prints 4.",
    "n = 2 puts 4 into the list.",
    "# Answer\n\nIt reads n and prints (2 * n); `puts` does so.",
    "using a loop over Console.ReadLine(), Main() reads n.",
    "import the module with fun main() and run it.",
    "object orientation: it extends App, as said.",
    "To double n (an int), I return 2 * n:",
    "**Solution** (short):",
    "Here is the function; it returns x",
]


@pytest.mark.parametrize("prose", PROSE)
def test_prose_is_no_program_of_any_language(prose: str) -> None:
    for language in LANGUAGES:
        assert extract(prose, "auto", texts_of(language)) is None, language


@pytest.mark.parametrize(
    ("language", "code"), [(n, code) for n, codes in BARE.items() for code in codes]
)
def test_programs_of_other_languages_without_marks(language: str, code: str) -> None:
    assert extract(code, "auto", texts_of(language)) == code.strip()
    assert extract(f"{code}<|im_end|>", "auto", texts_of(language)) == code.strip()
    for prose in ("Sorry, I cannot.", "I don't know", "None", "yes", "42", "For all n, it holds."):
        assert extract(prose, "auto", texts_of(language)) is None
        assert (
            extract(f"{prose}\n```{language}\n{code}\n```", "auto", texts_of(language))
            == code.rstrip()
        )


PROGRAMS_BEFORE_A_FENCE = {
    "a function": "def double(n):\n    return 2 * n",
    "a program": "n = int(input())\nprint(2 * n)",
    "a call": "print(2 * int(input()))",
    "an import": "import math\n\n\nclass Solution:\n    def f(self): return math.pi",
    "a docstring that shows a fence": 'def f(n):\n    """\n    ```\n    1\n    ```\n    """\n    return n',
    "a long one": "def double(n):\n    return 2 * n\n" + "x = [1, 2, 3]\n" * 2_000 + "y = 1",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS_BEFORE_A_FENCE)
def test_a_prompt_may_have_opened_the_fence(name: str) -> None:
    code = PROGRAMS_BEFORE_A_FENCE[name]
    behind = ["", "\n", "\nThis doubles it:\n\n- `2 * n` is right.\n", "**Note**\nIt is so.",
              "\n```\n6\n```", "\nOutput:\n```text\n6\n```", "\n```python\n```",
              "<|im_end|>", "\n\n```bash\npython a.py\n```\nOk."]  # fmt: skip
    for after in behind:
        for text in (f"{code}\n```{after}", f"python\n{code}\n```{after}"):
            assert extract(text, "auto") == code, text
            if "6" not in after:
                assert extract(text, "fence") == code, text
    assert extract(f"{code}```\nDone.", "auto") == code
    assert extract(f"<think>\nHm.\n</think>\n{code}\n```\nDone.", "auto") == code
    assert extract(f"<answer>\n{code}\n```</answer>", "auto") == code


@pytest.mark.parametrize("fence", ["python", ""])
def test_an_example_behind_code_whose_fence_the_prompt_has(fence: str) -> None:
    code, usage = PROGRAMS_BEFORE_A_FENCE["a function"], "print(double(3))"
    for closing in ("```\n", "```\nUsage:\n", "```\nUsage:\n\nIt takes a number.\n\n"):
        text = f"{code}\n{closing}```{fence}\n{usage}\n```\nDone."
        assert extract(text, "auto") == extract(text, "fence") == code
    better = "def double(n):\n    return n + n"
    assert extract(f"{code}\n```\nBetter:\n```{fence}\n{better}\n```", "auto") == better


@pytest.mark.parametrize(
    "prose",
    ["Sure", "Solution", "Solution:", "Here it is:", "Answer: 42", "x", "`double`", "6", "n = 3",
     "Sure, here you go.", "To double n (an int), I return 2 * n:", "- A function\n- `x => y`", "O(n)",
     "I'll use a.map(x => 2 * x)", "Code", "**Solution**", "A map; then a loop;\nthe sum (of all).",
     "The loop is: for (int i = 0; i < n; i++) s += i;", "import the module, then:", "I call f(n);"],
)  # fmt: skip
@pytest.mark.parametrize("language", ["python", "javascript", "cpp", "ruby", "bash", "r", "julia"])
def test_prose_before_a_fence_without_a_name(prose: str, language: str) -> None:
    for code in ("def double(n):\n    return 2 * n", "print(double(3))", "x = 1;"):
        for end in ("\n```", "\n```\nDone.", "", "```"):
            for mode in MODES:
                assert extract(f"{prose}\n```\n{code}{end}", mode, texts_of(language)) == code


PROSE_AND_FENCE = (
    "### Approach\n\nRead the input and use the function parseInt.\n\n### Code\n\n```{}\n{}\n```",
    "# Solution\n\nThe function returns x.\n\n# Code\n\n```{}\n{}\n```\nIt is {}.",
    "Use import math\n\n```{}\n{}\n```\n\nIt is right.",
    "import math\n\n```{}\n{}\n```",
    "assert two_sum([2, 7], 9) == [0, 1]\n\n```{}\n{}\n```",
)
BLOCKS = {
    "javascript": "const n = parseInt(require('fs').readFileSync(0, 'utf8'));\nconsole.log(n * 2);",
    "ruby": "n = gets.to_i\nputs n * 2",
    "lua": "local n = io.read('n')\nprint(n * 2)",
    "python": "n = int(input())\nprint(n * 2)",
}


@pytest.mark.parametrize("language", BLOCKS)
@pytest.mark.parametrize("form", PROSE_AND_FENCE)
@pytest.mark.parametrize("named", [True, False])
def test_an_explanation_before_a_block_is_not_the_code(
    form: str, named: bool, language: str
) -> None:
    text = form.format(language if named else "", BLOCKS[language], "fast")
    assert extract(text, "auto", texts_of(language)) == BLOCKS[language]


LATER_TESTS = (
    "def run_test(nums):\n    assert two_sum(nums) == 1\n\nrun_test([1])",
    "import unittest\n\nclass SolutionTest(unittest.TestCase):\n    def test(self):\n        two_sum(1)",
    "def brute(nums):\n    return 1\n\nfor n in range(9):\n    assert two_sum([n]) == brute([n])",
)


@pytest.mark.parametrize("later", LATER_TESTS)
def test_tests_of_an_earlier_block_are_not_the_code(later: str) -> None:
    code = "def two_sum(nums):\n    return nums[0]"
    text = f"```python\n{code}\n```\nTests:\n```python\n{later}\n```\n"
    assert extract(text, "auto") == code


def test_the_nodes_of_a_list_stand_before_the_solution() -> None:
    nodes = "class ListNode:\n    def __init__(self, val=0):\n        self.val = val"
    code = (
        "class Solution:\n    def first(self, head: ListNode):\n        return ListNode(head.val)"
    )
    text = f"```python\n{nodes}\n```\n\n```python\n{code}\n```"
    assert extract(text, "auto") == code


@pytest.mark.parametrize(
    "form",
    [
        "```python\n{}\n# text behind </think> is the answer\n```",
        "```python\n{}\n```\nThe parser splits at </think> and strips.",
        "A draft:\n```python\nx = 1\n```\nNo.\n</think>\n\n```python\n{}\n```",
        "<think>\nA draft:\n```python\nx = 1\n```\n</think>\n{}",
    ],
)
def test_the_end_of_thoughts_is_a_line_of_its_own(form: str) -> None:
    code = "def double(n):\n    return 2 * n"
    found = extract(form.format(code), "auto")
    assert found is not None
    assert found.strip().startswith(code)


def test_many_words_of_kotlin_are_no_long_work() -> None:
    assert extract("class " * 2700, "auto", texts_of("kotlin")) is None


@pytest.mark.parametrize(
    ("fence", "language", "found"),
    [
        ("c++", "cpp", True),
        ("C++17", "cpp", True),
        ("cpp20", "cpp", True),
        ("c11", "cpp", False),
        ("cpp", "cpp", True),
        ("", "cpp", True),
        ("js", "javascript", True),
        ("sh", "bash", True),
        ("golang", "go", True),
        ("rs", "rust", True),
        ("java", "java", True),
        ("zig", "zig", True),
        ("python", "cpp", False),
        ("java", "javascript", False),
        ("c", "cpp", False),
    ],
)
def test_other_languages_have_their_own_fences(fence: str, language: str, found: bool) -> None:
    text = f"```{fence}\nint x;\n```"
    assert extract(text, "fence", texts_of(language)) == ("int x;" if found else None)
