"""Blocks of search and replace in the forms that models write, and those that have no reading."""

from __future__ import annotations

import pytest
from repository_files import files_of, state_of

from proctor_service.features.repositories.extraction import diff_of, edits_of
from proctor_service.features.repositories.patches import PatchFailed, read_edits

CODE = "import os\n\n\ndef f(x):\n    return x\n\n\ndef g(x):\n    return 2 * x\n"
FIXED = CODE.replace("return 2 * x", "return 3 * x")
BLOCK = "<<<<<<< SEARCH\ndef g(x):\n    return 2 * x\n=======\ndef g(x):\n    return 3 * x\n>>>>>>> REPLACE\n"
FORMS = {
    "path before the fence": f"app/core.py\n```python\n{BLOCK}```\n",
    "path in the fence": f"```python\napp/core.py\n{BLOCK}```\n",
    "path as a heading": f"```python\n### app/core.py\n{BLOCK}```\n",
    "path in bold": f"**app/core.py**\n\n```\n{BLOCK}```\n",
    "path with a word": f"File: `app/core.py`\n```\n{BLOCK}```\n",
    "path in the info of the fence": f"```python app/core.py\n{BLOCK}```\n",
    "without a fence": f"Here is the fix.\n\napp/core.py\n{BLOCK}",
    "absolute path": f"/testbed/app/core.py\n```\n{BLOCK}```\n",
    "below a folder": f"core.py\n```\n{BLOCK}```\n",
    "other markers": "app/core.py\n" + BLOCK.replace("<" * 7, "-" * 7).replace(">" * 7, "+" * 7),
    "CRLF": f"app/core.py\n{BLOCK}".replace("\n", "\r\n"),
    "blanks at the ends of lines": f"app/core.py\n{BLOCK.replace('2 * x', '2 * x  ')}",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_block_is_applied(name: str) -> None:
    base = files_of({"app/core.py": CODE, "README.md": "x\n"})
    text = edits_of(f"<think>I could use <<<<<<< SEARCH\n</think>\n{FORMS[name]}")
    change = read_edits(text.encode()).applied(base).change
    assert dict(change.files) == {b"app/core.py": state_of(FIXED)}


def test_blocks_follow_one_another_and_make_files() -> None:
    text = (
        f"app/core.py\n{BLOCK}\nAnd now once more:\n"
        f"{BLOCK.replace('3 * x', '4 * x').replace('2 * x', '3 * x')}\n"
        "app/new.py\n<<<<<<< SEARCH\n=======\nNEW = 1\n>>>>>>> REPLACE\n"
    )
    applied = read_edits(text.encode()).applied(files_of({"app/core.py": CODE}))
    assert applied.change.files == {
        b"app/core.py": state_of(CODE.replace("2 * x", "4 * x")),
        b"app/new.py": state_of("NEW = 1\n"),
    }


def test_a_heading_of_seven_signs_is_no_divider() -> None:
    old, new = "Old one\n=======\n\ntext\n", "New one\n=======\n\ntext\n"
    text = f"a.rst\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"
    base = files_of({"a.rst": old})
    applied = read_edits(text.encode()).applied(base)
    assert applied.change.files == {b"a.rst": state_of(new)}


REFUSED = {
    "no block": "hello",
    "no end": "app/core.py\n<<<<<<< SEARCH\ndef g(x):\n=======\nx\n",
    "no divider": "app/core.py\n<<<<<<< SEARCH\ndef g(x):\n>>>>>>> REPLACE\n",
    "no path": BLOCK,
    "no file": f"other/core.py\n{BLOCK}",
    "not there": f"app/core.py\n{BLOCK.replace('2 * x', '9 * x')}",
    "twice there": "app/core.py\n<<<<<<< SEARCH\n\n\n=======\nx\n>>>>>>> REPLACE\n",
    "two places": "app/core.py\n<<<<<<< SEARCH\n    return x\n=======\n>>>>>>> REPLACE\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_edits_without_a_reading_are_refused_whole(name: str) -> None:
    code = CODE + "\ndef h(x):\n    return x\n"
    base = files_of({"app/core.py": code, "b.py": "1\n"})
    for text in (
        REFUSED[name],
        f"b.py\n<<<<<<< SEARCH\n1\n=======\n2\n>>>>>>> REPLACE\n{REFUSED[name]}",
    ):
        if text != REFUSED[name] and name in ("no block",):
            continue
        with pytest.raises(PatchFailed):
            read_edits(text.encode()).applied(base)


DIFF = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+2\n"
OLD = DIFF.replace("+2", "+3")
README = "--- a/R.md\n+++ b/R.md\n@@ -1,4 +1,4 @@\n ```diff\n ```\n-old\n+new\n ```\n"
COMPLETIONS = {
    "a fence": (f"Here:\n```diff\n{DIFF}```\nDone.", DIFF),
    "the last fence": (f"```diff\n{OLD}```\nNo, better:\n```patch\n{DIFF}```\n", DIFF),
    "an open fence": (f"```diff\n{DIFF}", DIFF),
    "a longer fence": (f"````diff\n{DIFF}````\n", DIFF),
    "an indented fence": ("1. Fix:\n   ```diff\n   " + DIFF.replace("\n", "\n   ") + "```\n", DIFF),
    "a fence without a name": (f"```\n{DIFF}```\nDone.", DIFF),
    "no fence": (f"I change this.\n\n{DIFF}", DIFF),
    "behind thoughts": (f"<think>\n```diff\n{OLD}```\n</think>\n```diff\n{DIFF}```", DIFF),
    "fences in the diff": (README, README),
    "no diff": ("I do not know.", ""),
    "only headings": ("--- a rule\ntext\n", ""),
}


@pytest.mark.parametrize("name", COMPLETIONS)
def test_the_diff_of_a_completion_is_found(name: str) -> None:
    completion, expected = COMPLETIONS[name]
    assert diff_of(completion) == expected


def test_a_text_without_blocks_has_no_edits() -> None:
    assert edits_of("def f(): pass") == ""
