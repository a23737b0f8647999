"""Where the code of a completion is: tags, fences, thoughts, markers, and how models bend them."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor_client.wire import Extract, ExtractRule
from proctor_service.judge.extract import PYTHON_TEXTS, extract, read_program
from proctor_service.judge.python_source import MOST_PARSED, PART_CHARACTERS

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
    "unclosed": (f"<answer>{CODE}", CODE),
    "unclosed, in a fence": (f"<answer>\n```python\n{CODE}\n", CODE),
    "unclosed after a whole one": (f"<answer>a = 1</answer> and <answer>{CODE}", CODE),
    "unclosed and empty": (f"<answer>{CODE}</answer> <answer>\n", CODE),
    "cut within the closing tag": (f"<answer>{CODE}\n</answ", CODE),
    "cut at the begin of the closing tag": (f"<answer>\n```\n{CODE}\n```\n</", CODE),
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
    "no language after": (f"```python\n{CODE}\n```\n```\na = 1\n```", CODE),
    "output before": (f"```text\n3\n```\n```python\n{CODE}\n```", CODE),
    "unclosed": (f"```python\n{CODE}\n", CODE),
    "unclosed last": (f"```python\na = 1\n```\n```python\n{CODE}", CODE),
    "the end forgotten": (f"```python\na = 1\n\n```python\n{CODE}\n```", CODE),
    "a stray fence after": (f"```python\n{CODE}\n```\n```\n", CODE),
    "an empty block after": (f"```python\n{CODE}\n```\n```python\n```", CODE),
    "windows lines": ("```python\r\na = 1\r\nb = 2\r\n```\r\n", "a = 1\nb = 2"),
    "versions of the language": (f"```py3.11\na = 1\n```\n```Python3.12\n{CODE}\n```", CODE),
    "a number for a name": (f"```1\na = 1\n```\n```python\n{CODE}\n```", CODE),
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
    "a code tag": (f"So: <code>{CODE}</code>.", None),
    "an unclosed answer with a fence": (f"<answer>\n```python\n{CODE}\n```", CODE),
    "an empty answer": (f"```python\n{CODE}\n```\n<answer></answer>", CODE),
    "a whole program": (f"import math\n\n{CODE}\n", f"import math\n\n{CODE}"),
    "a program that holds a fence": (f's = """\n```\na\n```\n"""\n{CODE}',) * 2,
    "a program that holds tags": (f'def f(x):\n    return f"<answer>{{x}}</answer>"\n{CODE}',) * 2,
    "a program of two calls": ("print(input())\nprint(1)",) * 2,
    "a bare name": ("x + 2", None),
    "one word": ("Yes", None),
    "a word a line": ("Yes\nNo", None),
    "an annotation": ("Answer: 42", None),
    "a comment": ("# nothing", None),
    "prose": ("I cannot solve this.", None),
    "empty": ("", None),
    "a null byte": ("x = 1\0", None),
    "a lone surrogate": ("x = '\ud800'", None),
    "windows lines": ("a = 1\r\nb = 2", "a = 1\nb = 2"),
    "a tag that the prompt opened": (f"{CODE}\n</answer>", CODE),
    "a tag that the prompt opened, around a block": (f"```\n{CODE}\n```\n</answer>", CODE),
    "prose before a closing tag": ("I cannot solve this.\n</answer>", None),
    "a closing tag in a string": ('print("</answer>")',) * 2,
    "a role in a string": ('print("<|im_start|>assistant")',) * 2,
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
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"
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
    "a block before a section": (f"```python\n{CODE}\n```\n<think>Right?</think>\nDone.", None),
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
    "thoughts within an answer": (f"<answer><think>a</think>\n{CODE}\n</answer>", CODE),
    "a role before the section": (f"<|im_start|>assistant\n<think>a</think>{CODE}", CODE),
    "a channel of thoughts": (f"<|channel|>analysis<|message|>\n{DRAFT}{FINAL}{CODE}", CODE),
    "a block behind a channel": (f"<|message|>\n{DRAFT}{FINAL}```python\n{CODE}\n```", CODE),
    "an unclosed draft in a channel": (f"{DRAFT[:-3]}{FINAL}```python\n{CODE}\n```", CODE),
    "a channel of thoughts before prose": (f"{DRAFT}{FINAL}I don't know.", None),
    "a block that holds a role": (
        'So:\n```python\nT = """\n<|im_start|>assistant\n"""\n```',
        'T = """\n<|im_start|>assistant\n"""',
    ),
    "a role in quotes behind a block": (f"```\n{CODE}\n```\nNo `<|im_start|>assistant`.", CODE),
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


MARKERS = {
    "MBPP": f"[BEGIN]\n{CODE}\n[DONE]",
    "MBPP, the begin in the prompt": f"{CODE}\n[DONE]",
    "MBPP, and the next task": f"{CODE}\n[DONE]\n\nYou are an expert.\n[BEGIN]\nx = 1\n[DONE]",
    "Code Llama": f"[PYTHON]\n{CODE}\n[/PYTHON]",
    "Code Llama, in a sentence": f"Here it is:\n[PYTHON]\n{CODE}\n[/PYTHON]\nIt returns x.",
    "a byte order mark": f"\ufeff{CODE}",
    "a byte order mark behind thoughts": f"<think>So.</think>\n\ufeff{CODE}",
    "a marker on the line of the code": f"[PYTHON] {CODE}[/PYTHON]",
    "a special token before": f"<|assistant|>\n{CODE}",
    "the begin of the text": f"<s>{CODE}</s>",
    "a fence in the prompt": f"python\n{CODE}",
    "a block between markers": f"[BEGIN]\n```python\n{CODE}\n```\n[DONE]",
    "thoughts before a marker": f"<think>a</think>\n[PYTHON]\n{CODE}\n[/PYTHON]",
    "indented markers": f"  [BEGIN]\n{CODE}\n  [DONE]",
    "a role": f"<|im_start|>assistant\n{CODE}",
    "a role between tokens": f"<|start_header_id|>assistant<|end_header_id|>\n\n{CODE}",
    "a token for the role": f"<|user|>\nDo it.<|assistant|>\n{CODE}",
    "a channel": f"<|channel|>final<|message|>{CODE}",
    "the prompt and a role": f"<|im_start|>user\nx = 1<|im_end|>\n<|im_start|>assistant\n{CODE}",
}


@pytest.mark.parametrize("name", MARKERS)
def test_markers_of_prompts_are_no_code(name: str) -> None:
    assert extract(MARKERS[name], "auto") == CODE


@pytest.mark.parametrize("name", MARKERS)
def test_lines_may_end_as_on_windows(name: str) -> None:
    assert extract(MARKERS[name].replace("\n", "\r\n"), "auto") == CODE


@pytest.mark.parametrize("code", ["states = [DONE]\nprint(states)", "x = [\n    DONE]\nprint(x)"])
def test_a_list_is_no_marker(code: str) -> None:
    assert extract(code, "auto") == code


TWO = f"```python\na = 1\n```\nBetter:\n```python\n{CODE}\n```"
RULES: dict[str, tuple[ExtractRule, str, str | None]] = {
    "a tag": (ExtractRule(tags=["solution"]), f"<solution>\n{CODE}\n</solution>", CODE),
    "a tag, unclosed": (ExtractRule(tags=["solution"]), f"So: <solution>{CODE}", CODE),
    "a tag, a fence inside": (ExtractRule(tags=["code"]), f"<code>{TWO}</code>", CODE),
    "one of two tags": (ExtractRule(tags=["a", "b"]), f"<a>x = 1</a> <b>{CODE}</b>", CODE),
    "another tag": (ExtractRule(tags=["solution"]), f"<answer>{CODE}</answer>", None),
    "a tag of signs": (ExtractRule(tags=["a.b"]), f"<a.b>{CODE}</a.b> <axb>x</axb>", CODE),
    "a tag, the text in it": (
        ExtractRule(tags=["a"], fence="none"),
        f"<a>```\n{CODE}\n```</a>",
        f"```\n{CODE}\n```",
    ),
    "the last block": (ExtractRule(), TWO, CODE),
    "the first block": (ExtractRule(fence="first"), TWO, "a = 1"),
    "the first named block": (ExtractRule(fence="first"), f"```\n6\n```\n{TWO}", "a = 1"),
    "the first block in a tag": (ExtractRule(tags=["a"], fence="first"), f"<a>{TWO}</a>", "a = 1"),
    "no block": (ExtractRule(), CODE, None),
    "the whole text": (ExtractRule(fence="none"), f" {TWO}\n", f" {TWO}\n"),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_where_the_code_is(name: str) -> None:
    rule, text, code = RULES[name]
    assert extract(text, rule) == code


CONTINUED = {
    "a body": ("    return 2 * n\n", "    return 2 * n\n"),
    "a body that is a program": (
        "    x = 1\n    return f(x)\n\n",
        "    x = 1\n    return f(x)\n\n",
    ),
    "behind thoughts": ("<think>a</think>    return n", "    return n"),
    "in a block": ("Go on:\n```python\n    return n\n```\n", "    return n\n"),
    "blank": (" \n", None),
    "windows lines": ("    x = n\r\n    return x\r\n", "    x = n\n    return x\n"),
    "before a closing tag": ("    return n\n</answer>", "    return n\n"),
}


@pytest.mark.parametrize("name", CONTINUED)
def test_what_goes_on_with_code_of_the_prompt_keeps_its_blanks(name: str) -> None:
    text, code = CONTINUED[name]
    assert extract(text, "auto", continues=True) == code


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
    "</s><unk><unk>",
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
    try:
        ast.parse(text)
    except (SyntaxError, MemoryError, RecursionError):
        assert extract(text, "auto") is None
    else:
        assert extract(text, "auto") == text


LONG = {
    "a long statement": f"T = [{'1, ' * PART_CHARACTERS}]\n{CODE}",
    "a long statement in lines": "T = [\n" + "1,\n" * PART_CHARACTERS + f"]\n{CODE}",
    "a statement beyond all bounds": f"T = [{'1, ' * MOST_PARSED}]\n{CODE}",
    "many statements": f"{CODE}\n\n" * PART_CHARACTERS,
    "comments": "# x\n" * PART_CHARACTERS + CODE,
    "a long text in quotes": 's = """\n' + "It is so.\n" * PART_CHARACTERS + f'"""\n{CODE}',
    "branches": "if x:\n    f()\nelse:\n    g()\n" * PART_CHARACTERS + CODE,
    "a fence in a docstring": f'def g():\n    """\n```\n1\n```\n"""\n{CODE}\n' * 1_000,
}


WRAPPED = [
    "```python\n{}\n```",
    "It is so.\n```python\n{}\n```\nThat is all.",
    "<think>It is so.</think>\n{}",
    "<answer>\n{}\n</answer>",
    "{}\n```\nThat is all.",
    "[BEGIN]\n{}\n[DONE]",
]


@pytest.mark.parametrize("name", LONG)
def test_a_long_program_is_one(name: str) -> None:
    assert extract(LONG[name], "auto") == LONG[name].strip()


@pytest.mark.parametrize("name", sorted(LONG.keys() - {"a fence in a docstring"}))
def test_a_block_behind_a_long_text_is_found(name: str) -> None:
    padding = "Yes, it is so.\n" * PART_CHARACTERS
    assert extract(padding, "auto") is None
    assert extract(f"{padding}```python\n{LONG[name]}\n```", "auto") == LONG[name].strip()
    assert extract(f"{CODE}\n{padding}", "auto") is None


@pytest.mark.parametrize("name", sorted(LONG.keys() - {"a fence in a docstring"}))
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_what_is_around_a_long_program_is_cut(name: str, wrapped: str) -> None:
    for code in (LONG[name].strip(), f"{CODE}\n{LONG[name].removesuffix(CODE).strip()}"):
        assert extract(wrapped.format(code), "auto") == code


async def test_a_long_text_is_read_in_a_thread() -> None:
    for text in (CODE, LONG["many statements"], LONG["comments"]):
        assert await read_program(text, "auto", PYTHON_TEXTS) == text.strip()


HOSTILE = {
    "opening tags": "<answer>" * 50_000,
    "closing tags": "</answer>" * 50_000,
    "pairs of tags": "<answer></answer>" * 25_000,
    "half tags": "<answer" * 50_000,
    "angles": "<" * 400_000,
    "fences": "```\n" * 50_000,
    "named fences": "```python\n" * 40_000,
    "one long fence": "`" * 400_000,
    "one long fence and a word": "`" * 400_000 + "x\n",
    "fences in one line": "``` " * 100_000,
    "both marks in one line": "```~~~" * 70_000,
    "deeper and deeper fences": "\n".join(" " * n + "```" for n in range(2_000)),
    "blank lines": "```\n" + "\n" * 400_000 + "x",
    "blanks": "```\n" + " " * 400_000 + "x",
    "indented lines": "```\n" + " x\n" * 100_000,
    "special tokens": "<|a|>\n" * 50_000,
    "sections of thoughts": "<think></think>" * 20_000,
    "thoughts in lines": " <think>\n</think>\n" * 20_000 + "```",
    "ends of thoughts in blocks": "</think>\n```\n" * 20_000,
    "blanks before a word": " " * 400_000 + "x",
    "blanks in each line": ("  " * 1_000 + "x\n") * 200,
    "markers": "[BEGIN]\n[DONE]\n" * 20_000,
    "calls": "x = f(1)\n" * 20_000 + "x = (",
    "quotes": 'x = """\n' * 20_000,
    "blanks before thoughts": "\n".join(" " * 2_000 for _ in range(500)),
    "roles": "<|a|>assistant\n" * 20_000,
    "headers": "<|a|>x" * 50_000,
    "begins of closing tags": "</" * 200_000,
    "digits": "```" + "1" * 400_000,
    "marks of two kinds": "```\n~~~\n" * 20_000,
    "a fence for each tag": "<answer>```python\nx = 1\n```</answer>\n" * 10_000,
}


@pytest.mark.parametrize("mode", ["auto", "xml", "fence"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_come_to_an_end(name: str, mode: Extract) -> None:
    extract(HOSTILE[name], mode)


PIECES = st.sampled_from(
    [
        "<answer>",
        "</answer>",
        "<think>",
        "</think>",
        "<code>",
        "</code>",
        "[BEGIN]",
        "[DONE]",
        "\ufeff",
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
