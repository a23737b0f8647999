"""Patches that git refuses, and that have one reading; and patches that have none, or several."""

from __future__ import annotations

import json

import pytest
from repository_files import Files, files_of, state_of
from shared_data import shared_data

from proctor_service.features.repositories.change import Change, FileState
from proctor_service.features.repositories.patches import PatchFailed, read_patch

CORE = "".join(f"line {number}\n" for number in range(1, 31))
FIXED = CORE.replace("line 12\n", "line twelve\n")
BODY = " line 9\n line 10\n line 11\n-line 12\n+line twelve\n line 13\n line 14\n line 15\n"
HEAD = "diff --git a/src/core.py b/src/core.py\n--- a/src/core.py\n+++ b/src/core.py\n"
PLAIN = HEAD + "@@ -9,7 +9,7 @@\n" + BODY
READINGS = {
    "as git writes it": (PLAIN, ()),
    "no final newline": (PLAIN[:-1], ("final_newline",)),
    "blank lines behind": (PLAIN + "\n\n  \n", ()),
    "a fence around": (f"```diff\n{PLAIN}```\n", ()),
    "a mail": (f"From 12ab\nSubject: fix\n---\n src/core.py | 2 +-\n\n{PLAIN}-- \n2.39.5\n\n", ()),
    "a mail without counts": (
        f"{HEAD}@@ -1,3 +1,3 @@\n{BODY}-- \n2.39.5\n\n",
        ("counts", "offset"),
    ),
    "prose behind": (f"{PLAIN}\nThis changes:\n- one line\n", ()),
    "lines with CRLF": (PLAIN.replace("\n", "\r\n"), ("line_ends",)),
    "hunks with CRLF": (HEAD + "@@ -9,7 +9,7 @@\n" + BODY.replace("\n", "\r\n"), ("line_ends",)),
    "other numbers": (PLAIN.replace("-9,7", "-20,7"), ("offset",)),
    "numbers beyond the file": (PLAIN.replace("-9,7", "-900,7"), ("offset",)),
    "counts that are too small": (PLAIN.replace("-9,7 +9,7", "-9,3 +9,3"), ("counts",)),
    "counts that are too large": (PLAIN.replace("-9,7 +9,7", "-9,9 +9,9"), ("counts",)),
    "a head without numbers": (PLAIN.replace("@@ -9,7 +9,7 @@", "@@ def f():"), ("counts",)),
    "no prefix": (PLAIN.replace("a/src", "src").replace("b/src", "src"), ("prefix",)),
    "the folder of the image": (
        PLAIN.replace("a/src", "/testbed/src").replace("b/src", "/testbed/src"),
        ("prefix",),
    ),
    "below src": (PLAIN.replace("/src/core", "/core"), ("folder src/",)),
    "below src, no prefix": (
        PLAIN.replace("a/src/core", "core").replace("b/src/core", "core"),
        ("folder src/",),
    ),
    "times behind names": (
        PLAIN.replace("--- a/src/core.py", "--- a/src/core.py\t2024-02-29 10:00:00.0 +0000"),
        (),
    ),
    "diff -u of a copy": (
        "--- src/core.py.orig\t2024-02-29 10:00:00\n+++ src/core.py\t2024-02-29\n@@ -9,7 +9,7 @@\n"
        + BODY,
        ("prefix",),
    ),
    "one other line of context": (PLAIN.replace(" line 9\n", " line nine\n"), ("fuzz 1",)),
    "two other lines of context": (
        PLAIN.replace(" line 9\n line 10\n", " nine\n ten\n"),
        ("fuzz 2",),
    ),
    "the same twice, as two commits": (
        PLAIN.replace("+line twelve", "+line XII")
        + PLAIN.replace("-line 12", "-line XII"),
        (),
    ),
    "hunks in another order": (
        HEAD
        + "@@ -20,3 +20,3 @@\n line 20\n-line 21\n+line 21\n line 22\n@@ -9,7 +9,7 @@\n"
        + BODY,
        (),
    ),
    "a removed line that looks like a head": (
        HEAD + "@@ -12,2 +12,1 @@\n-line 12\n-line 13\n+line twelve\n@@ -14 +13,2 @@\n+line 13\n line 14\n",
        (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READINGS)
def test_a_patch_with_one_reading_is_applied(name: str) -> None:
    text, how = READINGS[name]
    base = files_of({"src/core.py": CORE, "README.md": "read\n"})
    applied = read_patch(text.encode()).applied(base)
    assert applied.change == Change({b"src/core.py": state_of(FIXED)})
    assert applied.how == how


def test_a_patch_takes_the_line_ends_of_its_file() -> None:
    base = files_of({"src/core.py": CORE.replace("\n", "\r\n")})
    applied = read_patch(PLAIN.encode()).applied(base)
    assert applied.change.files[b"src/core.py"] == state_of(FIXED.replace("\n", "\r\n"))
    assert applied.how == ("line_ends",)


def test_blanks_at_the_ends_of_context_stay_as_in_the_file() -> None:
    base = files_of({"src/core.py": CORE.replace("line 10\n", "line 10  \t\n")})
    applied = read_patch(PLAIN.encode()).applied(base)
    expected = FIXED.replace("line 10\n", "line 10  \t\n")
    assert applied.change.files[b"src/core.py"] == state_of(expected)
    assert applied.how == ("blanks",)


def test_a_last_line_without_newline_is_not_joined_with_an_added_one() -> None:
    base = files_of({"a.py": "one\ntwo"})
    text = b"--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,3 @@\n one\n two\n+three\n"
    applied = read_patch(text).applied(base)
    assert applied.change.files[b"a.py"] == state_of("one\ntwo\nthree\n")


TWICE = "".join(f"{line}\n" for line in ("def f():", "    x = 1", "    return x", "") * 2)
NEW = "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+new\n"
REFUSED = {
    "no diff": ("hello", "no diff"),
    "another file": (PLAIN.replace("core.py", "other.py"), "no file"),
    "another context": (PLAIN.replace("line 12", "line 99"), "fits nowhere"),
    "two places": (
        "--- a/twice.py\n+++ b/twice.py\n@@ -70,2 +70,2 @@\n def f():\n-    x = 1\n+    x = 2\n",
        "several places",
    ),
    "no place": ("--- a/twice.py\n+++ b/twice.py\n@@ -70,0 +71 @@\n+x\n", "names no place"),
    "a file that exists": (NEW.replace("new.py", "twice.py"), "already has"),
    "a hunk without a file": ("@@ -1 +1 @@\n-a\n+b\n", "without the name"),
    "changed lines outside of hunks": (
        PLAIN.replace("-9,7 +9,7", "-9,3 +9,3").replace(" line 10\n", "line 10\n"),
        "outside of a hunk",
    ),
    "a merge": (
        "diff --cc core.py\n--- a/core.py\n+++ b/core.py\n@@@ -1,2 -1,2 +1,2 @@@\n++x\n",
        "merge",
    ),
    "the same lines twice": (
        HEAD + "@@ -12 +12 @@\n-line 12\n+a\n@@ -12 +12 @@\n-line 12\n+b\n",
        "same lines",
    ),
    "a file below a file": (NEW.replace("new.py", "twice.py/new.py"), "below the file"),
    "a removal of other lines": (
        "--- a/src/core.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-line 1\n-line 2\n",
        "not all of its lines",
    ),
    "damaged binary data": (
        "diff --git a/x b/x\nnew file mode 100644\nGIT binary patch\nliteral 3\nDcmZ\n\n",
        "damaged data",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_patch_without_a_reading_is_refused_whole(name: str) -> None:
    text, reason = REFUSED[name]
    base = files_of({"src/core.py": CORE, "twice.py": TWICE})
    for whole in (text, text if "diff" not in text else PLAIN + text, text + NEW):
        if name == "no diff" and whole != text:
            continue
        with pytest.raises(PatchFailed) as failed:
            read_patch(whole.encode()).applied(base)
        if whole == text:
            assert reason in failed.value.message


def test_a_failure_names_file_and_hunk() -> None:
    text = HEAD + "@@ -1,2 +1,2 @@\n line 1\n-line 2\n+x\n@@ -9,2 +9,2 @@\n line 9\n-line X\n+x\n"
    with pytest.raises(PatchFailed) as failed:
        read_patch(text.encode()).applied(files_of({"src/core.py": CORE}))
    assert (failed.value.file, failed.value.hunk) == ("src/core.py", 2) or (
        failed.value.file,
        failed.value.hunk,
    ) == ("b/src/core.py", 2)


def test_a_patch_below_several_folders_is_refused() -> None:
    base = files_of({"one/core.py": CORE, "two/core.py": CORE})
    text = PLAIN.replace("/src/core", "/core").encode()
    with pytest.raises(PatchFailed, match="several folders"):
        read_patch(text).applied(base)
    base.files[b"two/core.py"] = state_of("other\n")
    assert read_patch(text).applied(base).how == ("folder one/",)


def test_a_file_that_the_caller_leaves_out_need_not_fit() -> None:
    text = (PLAIN + PLAIN.replace("src/core.py", "tests/t.py").replace("line 12", "x")).encode()
    base = files_of({"src/core.py": CORE, "tests/t.py": CORE})
    with pytest.raises(PatchFailed):
        read_patch(text).applied(base)
    applied = read_patch(text).applied(base, lambda path: path.startswith(b"tests/"))
    assert applied.change == Change({b"src/core.py": state_of(FIXED)})
    assert [(each.path, each.reason) for each in applied.left_out] == [("tests/t.py", "protected")]


def test_what_no_file_can_be_is_left_out() -> None:
    text = (
        "diff --git a/lib b/lib\nnew file mode 120000\n--- /dev/null\n+++ b/lib\n@@ -0,0 +1 @@\n+/etc\n"
        "\\ No newline at end of file\n"
        "--- /dev/null\n+++ b/lib/x.py\n@@ -0,0 +1 @@\n+x\n"
        "--- /dev/null\n+++ b/../up.py\n@@ -0,0 +1 @@\n+x\n"
        "diff --git a/sub b/sub\nnew file mode 160000\nindex 0000000..1234567\n--- /dev/null\n+++ b/sub\n"
        "@@ -0,0 +1 @@\n+Subproject commit 1234567\n"
        "diff --git a/logo.png b/logo.png\nindex 1234567..2345678 100644\n"
        "Binary files a/logo.png and b/logo.png differ\n"
    )
    applied = read_patch(text.encode()).applied(files_of({"logo.png": "base64:AAEC"}))
    assert applied.change == Change({b"lib": FileState("link", b"/etc")})
    assert {each.path: each.reason for each in applied.left_out} == {
        "lib/x.py": "below_a_link",
        "../up.py": "outside",
        "sub": "submodule",
        "logo.png": "binary_without_data",
    }


def test_all_patches_of_the_shared_cases_apply() -> None:
    for line in shared_data("repositories.jsonl").read_text().splitlines():
        case = json.loads(line)
        if not case.get("patch"):
            continue
        base: Files = files_of(case["repository"])
        change = read_patch(case["patch"].encode()).applied(base).change
        if case["kind"] == "honest" and len(case["gold"]) == 1:
            (path,) = case["gold"]
            made = base.after(change).get(path.encode())
            is_other = case["id"].split("-")[2] in ("same_file_twice", "new_file", "rename", "path")
            assert is_other or "atexit" in case["id"] or made == state_of(case["gold"][path])
