"""The classes of a Java source that name its file and that run."""

from __future__ import annotations

import pytest

from proctor_service.features.languages.jvm_names import JavaNames, java_names

MAIN = "public static void main(String[] a) { }"


@pytest.mark.parametrize(
    ("source", "file", "main"),
    [
        ("", "Main", "Main"),
        (f"public class Solution {{ {MAIN} }}", "Solution", "Solution"),
        (f"class A {{ {MAIN} }}", "A", "A"),
        (f"public class A {{ }} class B {{ {MAIN} }}", "A", "B"),
        (f"class B {{ {MAIN} }} public class A {{ }}", "A", "B"),
        ("public class A { }", "A", "A"),
        (f"class A {{ public static class B {{ {MAIN} }} {MAIN} }}", "A", "A"),
        (f"// public class No {{\nclass A {{ {MAIN} }}", "A", "A"),
        (f"/* public class No {{ */ class A {{ {MAIN} }}", "A", "A"),
        (f'class A {{ String s = "}} public class No {{"; {MAIN} }}', "A", "A"),
        (f"class A {{ char c = '}}'; {MAIN} }}", "A", "A"),
        (f'class A {{ String s = """\n}} public class No {{""\n"""; {MAIN} }}', "A", "A"),
        (f"import public.x; class A {{ {MAIN} }}", "A", "A"),
        (f"public  final\nclass  A<T> {{ {MAIN} }}", "A", "A"),
        (f"public record P(int x) {{ {MAIN} }}", "P", "P"),
        (f"class {'x' * 200} {{ {MAIN} }}", "Main", "Main"),
        (f"class ../../x {{ {MAIN} }}", "Main", "Main"),
        (f"package x.y;\npublic class A {{ {MAIN} }}", "A", "x.y.A"),
        (f"// package no;\n/* or\nso */ package a\n . b ; class A {{ {MAIN} }}", "A", "a.b.A"),
        (f"package x;\npublic class A {{ }} class B {{ {MAIN} }}", "A", "x.B"),
        ("package x;", "Main", "x.Main"),
        (f"package ../x; class A {{ {MAIN} }}", "A", "A"),
        (f"import packages.x; class A {{ {MAIN} }}", "A", "A"),
        (f'class A {{ String s = "package x;"; {MAIN} }}', "A", "A"),
        (f"class Helper {{ {MAIN} }} public class Main {{ {MAIN} }}", "Main", "Main"),
        (f"class Helper {{ {MAIN} }} class Main {{ {MAIN} }}", "Main", "Main"),
        (f"class Main {{ {MAIN} }} public class A {{ {MAIN} }}", "A", "A"),
        (f"class A {{ {MAIN} }} class B {{ {MAIN} }}", "A", "A"),
        (f"class T {{ void main(int x) {{ }} }} class Main {{ {MAIN} }}", "Main", "Main"),
        (f"class T {{ void main(String x) {{ }} }} class B {{ {MAIN} }}", "B", "B"),
        (
            "class T { void main() { } } class B { static void main(final String ... a) { } }",
            "B",
            "B",
        ),
        ("class T { void main() { } } class B { static void main(String a[]) { } }", "B", "B"),
        ("class A { } class T { void main() { } }", "T", "T"),
        (f"public class Größe {{ {MAIN} }}", "Größe", "Größe"),
        (f"package größe.数; class 类 {{ {MAIN} }}", "类", "größe.数.类"),
    ],
)
def test_names(source: str, file: str, main: str) -> None:
    assert java_names(source) == JavaNames(file, main)


@pytest.mark.parametrize(
    "part",
    [
        "{",
        "}",
        "/*",
        '"',
        '"""',
        "'",
        "//",
        "public ",
        "class ",
        "void ",
        "void main(String ",
        "package ",
        "package x . ",
    ],
)
def test_any_source_has_names(part: str) -> None:
    assert java_names(part * 1_000_000) == JavaNames()
