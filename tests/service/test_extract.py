"""What counts as code in a completion: the contract's rules, and how models bend them."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor_client.wire import Extract
from proctor_service.judge.extract import MAX_MARKS, extract
from proctor_service.judge.recognition import MAX_PARSED_CHARACTERS

MODES: tuple[Extract, ...] = ("auto", "xml", "fence", "none")
CODE = "def f(x):\n    return x"

XML = {
    "alone": (f"<answer>{CODE}</answer>", CODE),
    "lines around it": (f"<answer>\n\n{CODE}\n\n</answer>\n", CODE),
    "the last of several": (f"<answer>a = 1</answer> no, <answer>{CODE}</answer>", CODE),
    "any case": (f"<Answer>{CODE}</ANSWER>", CODE),
    "a mention before": (f"I put it into <answer> tags. <answer>{CODE}</answer>", CODE),
    "a quoted mention after": (f"<answer>{CODE}</answer> See `<answer>` and `</answer>`.", CODE),
    "closed twice": (f"<answer>{CODE}</answer>\n</answer>", CODE),
    "opened twice": (f"<answer><answer>{CODE}</answer></answer>", CODE),
    "a tag in a string": (
        '<answer>\nprint("<answer>")\nprint("</answer>")\n</answer>',
        'print("<answer>")\nprint("</answer>")',
    ),
    "a fence inside": (f"<answer>\n```python\n{CODE}\n```\n</answer>", CODE),
    "a fence close to the tags": (f"<answer>```python\n{CODE}\n```</answer>", CODE),
    "prose around the fence inside": (f"<answer>Here:\n```py\n{CODE}\n```\nok</answer>", CODE),
    "an unclosed fence inside": (f"<answer>```python\n{CODE}\n</answer>", CODE),
    "a docstring that shows a fence": (
        '<answer>\ndef f():\n    """\n    ```\n    f()\n    ```\n    """\n</answer>',
        'def f():\n    """\n    ```\n    f()\n    ```\n    """',
    ),
    "indented as a whole": ("<answer>\n    def f(x):\n        return x\n</answer>", CODE),
    "a blank before the first line": ("<answer> a = 1\nb = 2</answer>", "a = 1\nb = 2"),
    "a blank before a block": (f"<answer> {CODE}</answer>", CODE.replace("    ", "   ")),
    "an empty one after": (f"<answer>{CODE}</answer><answer> </answer>", CODE),
    "unclosed": (f"<answer>{CODE}", None),
    "unclosed after a whole one": (f"<answer>{CODE}</answer> and <answer>a = 1", CODE),
    "closed, never opened": (f"{CODE}</answer>", None),
    "empty": ("<answer></answer>", None),
    "blank": ("<answer> \n </answer>", None),
    "no tags": (f"```python\n{CODE}\n```", None),
}

FENCE = {
    "python": (f"Here:\n```python\n{CODE}\n```\nDone.", CODE),
    "py": (f"```py\n{CODE}\n```", CODE),
    "no language": (f"```\n{CODE}\n```", CODE),
    "a capital": (f"```Python\n{CODE}\n```", CODE),
    "a version": (f"```python3\n{CODE}\n```", CODE),
    "a title": (f'```py title="x"\n{CODE}\n```', CODE),
    "a blank before the name": (f"``` python\n{CODE}\n```", CODE),
    "braces": (f"```{{.python}}\n{CODE}\n```", CODE),
    "the last of several": (f"```python\na = 1\n```\nBetter:\n```python\n{CODE}\n```", CODE),
    "another language after": (f"```python\n{CODE}\n```\n```json\n1\n```", CODE),
    "no language after": (f"```python\na = 1\n```\n```\n{CODE}\n```", CODE),
    "output before": (f"```text\n3\n```\n```python\n{CODE}\n```", CODE),
    "unclosed": (f"```python\n{CODE}\n", CODE),
    "unclosed last": (f"```python\na = 1\n```\n```python\n{CODE}", CODE),
    "the end forgotten": (f"```python\na = 1\n\n```python\n{CODE}\n```", CODE),
    "a stray fence after": (f"```python\n{CODE}\n```\n```\n", CODE),
    "an empty block after": (f"```python\n{CODE}\n```\n```python\n```", CODE),
    "windows lines": ("```python\r\na = 1\r\nb = 2\r\n```\r\n", "a = 1\r\nb = 2"),
    "longer": (f"````python\n{CODE}\n# ```\n````", f"{CODE}\n# ```"),
    "tildes": (f"~~~python\n{CODE}\n~~~", CODE),
    "tildes hold backticks": (f"~~~python\n{CODE}\n```\n~~~", f"{CODE}\n```"),
    "indented, as in a list": (
        "1. So:\n   ```python\n   def f(x):\n       return x\n   ```",
        CODE,
    ),
    "a fence deeper than its code": (
        "- It:\n  ```python\nclass A:\n  def f(self):\n    return 6\n\nprint(A().f())\n  ```",
        "class A:\n  def f(self):\n    return 6\n\nprint(A().f())",
    ),
    "a fence as deep as the first line alone": (
        "- It:\n  ```python\n  import math\ndef f():\n  return 6\n  ```",
        "import math\ndef f():\n  return 6",
    ),
    "a docstring that shows a fence": (
        '```python\ndef f():\n    """\n    ```\n    f()\n    ```\n    """\n```',
        'def f():\n    """\n    ```\n    f()\n    ```\n    """',
    ),
    "after text": (f"The code is: ```python\n{CODE}\n```", CODE),
    "closed behind the code": (f"```python\n{CODE}```\nThat is all.", CODE),
    "closed before a tag": (f"<answer>\n```python\n{CODE}\n```</answer>", CODE),
    "a comment that shows a fence": (
        f"```python\n# ```\n# f(1)\n# ```\n{CODE}\n```",
        f"# ```\n# f(1)\n# ```\n{CODE}",
    ),
    "a line that quotes fences": (
        f'```python\nx = "```".split("```")\n{CODE}\n```',
        f'x = "```".split("```")\n{CODE}',
    ),
    "inside markdown": (f"```markdown\n# It\n```python\n{CODE}\n```\n```", CODE),
    "closed by a fence before a heading": (
        f"```python\n{CODE}\n```**Explanation**\nIt is f.",
        CODE,
    ),
    "closed by a fence before a full stop": (f"```python\n{CODE}\n```.\nDone.", CODE),
    "closed by a fence before mathematics": (f"$$\\boxed{{```python\n{CODE}\n```}}$$", CODE),
    "a string that ends behind a fence": (
        f'```python\ns = """\n```"""\n{CODE}\n```',
        f's = """\n```"""\n{CODE}',
    ),
    "a special token between blocks": (
        f"```python\n{CODE}\n```<|im_end|>\n```text\n1\n```",
        CODE,
    ),
    "inline": ("Use ```f(x)``` here.", None),
    "another language": ("```json\n1\n```", None),
    "empty": ("```python\n```", None),
    "none": (CODE, None),
}

AUTO = {
    "an answer outranks a fence": (f"```python\na = 1\n```\n<answer>{CODE}</answer>", CODE),
    "a fence outranks a code tag": (f"<code>a = 1</code>\n```\n{CODE}\n```", CODE),
    "a code tag": (f"So: <code>{CODE}</code>.", CODE),
    "an unclosed answer with a fence": (f"<answer>\n```python\n{CODE}\n```", CODE),
    "an empty answer ends the search": (f"```python\n{CODE}\n```\n<answer></answer>", None),
    "a whole program": (f"import math\n\n{CODE}\n", f"import math\n\n{CODE}\n"),
    "a program that holds a fence": (f's = """\n```\na\n```\n"""\n{CODE}',) * 2,
    "a program that holds tags": (f'def f(x):\n    return f"<answer>{{x}}</answer>"\n{CODE}',) * 2,
    "a program of two calls": ("print(input())\nprint(1)",) * 2,
    "a bare expression": ("f(1) + 2", None),
    "one word": ("Yes", None),
    "a word a line": ("Yes\nNo", None),
    "an annotation": ("Answer: 42", None),
    "a comment": ("# nothing", None),
    "prose": ("I cannot solve this.", None),
    "empty": ("", None),
    "a null byte": ("x = 1\0", None),
    "a lone surrogate": ("x = '\ud800'", None),
    "windows lines": ("a = 1\r\nb = 2",) * 2,
}


@pytest.mark.parametrize("name", XML)
def test_xml(name: str) -> None:
    text, code = XML[name]
    assert extract(text, "xml") == code


@pytest.mark.parametrize("name", FENCE)
def test_fence(name: str) -> None:
    text, code = FENCE[name]
    assert extract(text, "fence") == code


@pytest.mark.parametrize("name", AUTO)
def test_auto(name: str) -> None:
    text, code = AUTO[name]
    assert extract(text, "auto") == code


@pytest.mark.parametrize("table", [XML, FENCE], ids=["xml", "fence"])
def test_auto_finds_what_the_single_rules_find(table: dict[str, tuple[str, str | None]]) -> None:
    for text, code in table.values():
        if code is not None:
            assert extract(text, "auto") in {code, text}


DRAFT = "```python\ndraft = 1\n```"
THOUGHTS = {
    "bare code behind": (f"<think>\nEasy.\n</think>\n\n{CODE}\n", CODE),
    "code directly behind": (f"<think>Easy.</think>{CODE}", CODE),
    "a block directly behind": (f"<think>Easy.</think>```python\n{CODE}\n```", CODE),
    "a draft before bare code": (f"<think>\n{DRAFT}\n</think>\n\n{CODE}", CODE),
    "a draft before a block": (f"<think>\n{DRAFT}\n</think>\n```python\n{CODE}\n```", CODE),
    "an unclosed draft": (f"<think>\n{DRAFT[:-3]}</think>\n```\n{CODE}\n```", CODE),
    "a draft before prose": (f"<think>\n{DRAFT}\n</think>\nI don't know.", None),
    "a draft in tags before prose": ("<think><answer>a = 1</answer></think>\nSorry.", None),
    "a draft before nothing": (f"<think>\n{DRAFT}\n</think>\n", None),
    "the section's begin in the prompt": (f"Easy.\n{DRAFT}\n</think>\n\n{CODE}", CODE),
    "two sections": (f"<think>a</think>\n<think>\n{DRAFT}\n</think>\n{CODE}", CODE),
    "closed twice": (f"<think>a</think>\n{DRAFT}\n</think>\n{CODE}", CODE),
    "a mention in the section": (f"<think>\nThen `</think>`.\n{DRAFT}\n</think>\n{CODE}", CODE),
    "text before the section": (f"Hm.\n<think>\n{DRAFT}\n</think>\n{CODE}", CODE),
    "a block before a section": (f"```python\n{CODE}\n```\n<think>Right?</think>\nDone.", CODE),
    "an answer before a section": (f"<answer>\n<think>a</think>\n```\n{CODE}\n```</answer>", CODE),
    "a program that names the tags": ('"""Remove <think>…</think>."""\nx = 1',) * 2,
    "a block that splits at the tag": (
        "<think>a</think>\n```python\nt = input().split('</think>')\n```",
        "t = input().split('</think>')",
    ),
    "a block that holds a template": (
        'So:\n```python\nT = """\n<think>\n{}\n</think>\n"""\n```',
        'T = """\n<think>\n{}\n</think>\n"""',
    ),
    "an unclosed section": (f"<think>\nSo:\n```python\n{CODE}\n```\nOr", CODE),
}


@pytest.mark.parametrize("name", THOUGHTS)
def test_the_answer_is_behind_the_thoughts(name: str) -> None:
    text, code = THOUGHTS[name]
    found = extract(text, "auto")
    assert (found and found.strip()) == code


@pytest.mark.parametrize("mode", ["xml", "fence"])
def test_a_draft_in_the_thoughts_is_code_in_no_mode(mode: Extract) -> None:
    draft = f"<think>\n{DRAFT}\n<answer>a = 1</answer>\n</think>\n"
    assert extract(f"{draft}I don't know.", mode) is None
    assert extract(f"{draft}<answer>\n```\n{CODE}\n```\n</answer>", mode) == CODE


SPECIAL_TOKENS = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "<|return|>",
    "</s>",
    "<|end▁of▁sentence|>",
    "<｜end▁of▁sentence｜>",
    "<|im_end|>\n<|endoftext|>\n",
]


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_special_tokens_at_the_end_are_no_code(token: str) -> None:
    fenced = f"```python\n{CODE}\n```"
    for text in (CODE, fenced, f"```python\n{CODE}\n", f"<answer>{CODE}</answer>"):
        assert extract(text + token, "auto") == CODE
    assert extract(fenced + token, "fence") == CODE
    assert extract(CODE + token, "none") == CODE + token


def test_a_special_token_in_a_string_is_code() -> None:
    assert extract('print("</s>")', "auto") == 'print("</s>")'


def test_none_takes_the_text_as_it_is() -> None:
    text = f"  ```python\n{CODE}\n```  \n"
    assert extract(text, "none") == text


def test_a_blank_text_holds_no_code_in_any_mode() -> None:
    assert [extract(" \r\n\t", mode) for mode in MODES] == [None] * 4


@pytest.mark.parametrize(
    ("fence", "language", "found"),
    [
        ("c++", "cpp", True),
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
    assert extract(text, "fence", language) == ("int x;" if found else None)


def test_a_python_program_is_none_of_another_language() -> None:
    assert extract("x = 1", "auto", "javascript") is None
    assert extract("print(1)", "auto", "cpp") is None


TOO_DEEP = {
    "signs": "x = " + "-" * 16_000 + "1",
    "negations": "x = " + "not " * 4_000 + "1",
    "attributes": "x = a" + ".b" * 8_000,
    "calls": "x = a" + "()" * 8_000,
    "sums": "x = " + "1+" * 8_000 + "1",
    "powers": "x = " + "2**" * 5_000 + "2",
    "brackets": "x = " + "(" * 16_000,
}


@pytest.mark.parametrize("name", TOO_DEEP)
def test_nesting_too_deep_for_the_parser_is_no_program(name: str) -> None:
    """How deep that is depends on the version of Python."""
    text = TOO_DEEP[name]
    assert len(text) <= MAX_PARSED_CHARACTERS
    try:
        ast.parse(text)
    except (SyntaxError, MemoryError, RecursionError):
        assert extract(text, "auto") is None
    else:
        assert extract(text, "auto") == text


def test_a_long_program_is_one_though_only_its_beginning_is_parsed() -> None:
    program = f"{CODE}\n" * MAX_PARSED_CHARACTERS
    assert extract(program, "auto") == program
    assert extract("Yes, it is so. " * MAX_PARSED_CHARACTERS, "auto") is None


def test_a_text_too_long_to_parse_still_has_marks() -> None:
    padding = "# x\n" * MAX_PARSED_CHARACTERS
    assert extract(padding + CODE, "auto") is None
    assert extract(f"{padding}<answer>{CODE}</answer>", "auto") == CODE
    assert extract(f"{padding}```python\n{CODE}\n```", "auto") == CODE


HOSTILE = {
    "opening tags": "<answer>" * 500_000,
    "closing tags": "</answer>" * 500_000,
    "pairs of tags": "<answer></answer>" * 250_000,
    "half tags": "<answer" * 500_000,
    "angles": "<" * 4_000_000,
    "fences": "```\n" * 1_000_000,
    "named fences": "```python\n" * 400_000,
    "one long fence": "`" * 4_000_000,
    "one long fence and a word": "`" * 4_000_000 + "x\n",
    "fences in one line": "``` " * 1_000_000,
    "both marks in one line": "```~~~" * 700_000,
    "deeper and deeper fences": "\n".join(" " * n + "```" for n in range(2_000)),
    "blank lines": "```\n" + "\n" * 4_000_000 + "x",
    "blanks": "```\n" + " " * 4_000_000 + "x",
    "indented lines": "```\n" + " x\n" * 1_000_000,
    "special tokens": "<|a|>\n" * 500_000,
    "sections of thoughts": "<think></think>" * 200_000,
    "thoughts in lines": " <think>\n</think>\n" * 200_000 + "```",
    "blanks before thoughts": "\n".join(" " * 2_000 for _ in range(500)),
    "a fence for each tag": "<answer>```python\nx = 1\n```</answer>\n" * 100_000,
}


@pytest.mark.parametrize("mode", ["auto", "xml", "fence"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_come_to_an_end(name: str, mode: Extract) -> None:
    extract(HOSTILE[name], mode)


def test_only_the_last_marks_are_looked_at() -> None:
    filler = "```text\n```\n" * MAX_MARKS
    assert extract(f"{filler}```python\n{CODE}\n```", "fence") == CODE
    assert extract(f"```python\n{CODE}\n```\n{filler}", "fence") is None


PIECES = st.sampled_from(
    [
        "<answer>",
        "</answer>",
        "<think>",
        "</think>",
        "<code>",
        "</code>",
        "```",
        "```python",
        "```json",
        "~~~",
        "````",
        *("\n", "    ", "\r\n", "x = 1", "prose", '"', "`", "#", "(", ""),
    ]
)


@given(st.lists(PIECES, max_size=30).map("".join), st.sampled_from(MODES))
def test_what_is_found_was_in_the_text_and_is_not_blank(text: str, mode: Extract) -> None:
    code = extract(text, mode)
    if code is not None:
        assert code.strip()
        assert "".join(code.split()) in "".join(text.split())


@given(st.text(), st.sampled_from(MODES))
def test_any_text_has_an_answer(text: str, mode: Extract) -> None:
    code = extract(text, mode)
    assert code is None or code.strip()


STATEMENTS = st.lists(
    st.sampled_from(
        ["x = 1", "import math", "def f(x):\n    return x", "for i in [1]:\n    print(i)"]
    ),
    min_size=1,
    max_size=5,
).map("\n".join)
PROSE = st.text(st.characters(exclude_characters="`~<>", exclude_categories=["Cs"]), max_size=40)


@given(STATEMENTS, PROSE, PROSE)
def test_a_program_survives_its_wrapping(code: str, before: str, after: str) -> None:
    answer = f"{before}\n<answer>\n{code}\n</answer>\n{after}"
    fence = f"{before}\n```python\n{code}\n```\n{after}"
    both = f"{before}\n<answer>\n```python\n{code}\n```\n</answer>\n{after}"
    assert extract(answer, "xml") == extract(both, "xml") == extract(fence, "fence") == code
    assert extract(answer, "auto") == extract(both, "auto") == extract(fence, "auto") == code
    assert extract(code, "auto") == code
    assert ast.parse(code)
