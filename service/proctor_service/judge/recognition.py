"""Recognition of programs, of sessions of a shell or an interpreter, and of usage examples.

Python is recognised by its parser: a text that parses and has an effect is a program. "Yes", "42"
and "Answer: 42" parse too, but have no effect. Programs in other languages are recognised by their
beginning and end. Parsing blocks the service: `MAX_PARSED_CHARACTERS` bounds the time to about
50 ms on a slow core.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType

from proctor_service.judge.syntax import syntax_tree

MAX_PARSED_CHARACTERS = 16 * 1024

MAX_LINE = 1000

_PARTS_CHARACTERS = (8192, 4096, 2048)  # their sum is below the limit for one parse
_BUILTINS = frozenset(vars(builtins))
_IDLE = (ast.Pass, ast.Break, ast.Continue, ast.Return, ast.Global, ast.Nonlocal, ast.Delete)
_IMPORT = (ast.Import, ast.ImportFrom)
_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LINE_END = re.compile(rb"\r\n|\r|\n")

_SESSION = re.compile(r"\s*(?:>>> |\$ |% |PS [^\n>]*> |In \[\d+\]: |[\w.-]+@[\w.-]+:[^\n]*?[$#] )")
_PYTHON = re.compile(
    r"^(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(|class[ \t]+\w+[^\n]*:[ \t]*$|import[ \t]+\w"
    r"|from[ \t]+[\w.]+[ \t]+import[ \t])",
    re.MULTILINE,
)
_C_LIKE = re.compile(
    r";[ \t]*(?://[^\n]*)?\r?$|=>|^[ \t]*(?:#include\b|package \w+\r?$|func |fn |function\b"
    r"|(?:public |final )*class \w|import [\w({\"']|use \w+::|console\.)",
    re.MULTILINE,
)
_SHELL = re.compile(
    r"\$[\w({]|^#!|(?:^|[;|&][ \t]*)(?:echo|printf|read|awk|sed|while|for|if|cat|local|let)[ \t]",
    re.MULTILINE,
)
# A word with a capital alone, before a word in a line without the end of a statement, or before two;
# or several words before a full stop or a colon.
_PROSE = re.compile(
    r"(?:[-*>] |\d{1,3}[.)] |\*\*)?(?:[A-Z][a-z'’]{1,40}+(?:[,.:!?]|\*\*)*$"
    r"|[A-Z][\w'’]{0,40}+[,.:!?]?[ \t](?:[ \t]*+[\w'’`(*-])(?![^\n]*[;{}][ \t]*$)"
    r"|(?:[A-Z][a-z'’]{1,40}+|I)[,.:!?]? [a-z'’]{1,40}+[,:]? [a-z]"
    r"|[A-Z][^\n;{}]{0,400}[.:!?]$|[a-z][\w'’]{0,40}+,? [\w'’]{1,40}+[,:;]? [^\n]*[.:]$)"
)
_RUNS_A_SCRIPT = re.compile(r"[^\n]*(?:\bchmod\b|\./[\w./-]+|\b(?:ba)?sh[ \t]+[\w./-]+\.sh\b)")

_JAVASCRIPT = (
    r"//|/\*|\(|\[|[\"']use strict|(?:const|let|var)\s+[\w${\[][^\n=]*=|class \w+[^\n]*\{"
    r"|(?:async\s+)?function\b[^\n]*\(|import\b[^\n]*['\"]|(?:for|while|if)\s*\("
    r"|(?:console|process|require)\b\s*[.(]"
)
_RUNS_JAVASCRIPT = re.compile(r"console\.|process\.|require\s*\(|=>|\bfunction\b|[;}]\s*\Z")
_COMMENTS = re.compile(r"\s*+(?:(?:#|--)[^\n]*+(?:\s++|\Z))*+")
_FENCE = re.compile(r"^[ \t]*+(?:```|~~~)", re.MULTILINE)
_PUTS = r"(?:puts|print|p)\b(?: ?[\"'(\[:$@#*]| [\w.?]+(?:$|[^\w\s.?]| [-+*/%<>=&|?]))"
_ASSIGNS = r"[a-z_]\w*(?:, ?[a-z_*]\w*)* ?=(?![=>~])[ \t]*[^\s=]"
_LOOPS = (
    r"(?:for|while|if|unless|until)\b *(?:\(|[\w$@!.]+(?: ?[-+*/%<>=!~]| in |[?.]?$))|loop do\b"
)

_WHOLE: Mapping[str, tuple[re.Pattern[str], re.Pattern[str]]] = MappingProxyType(
    {
        "c": (
            re.compile(r"#|//|/\*|(?:int|void|static|struct|typedef|long|char|double)\b"),
            re.compile(r"\bmain\s*\("),
        ),
        "cpp": (
            re.compile(
                r"#|//|/\*|(?:int|void|static|struct|class|using|template|auto|long|const)\b"
            ),
            re.compile(r"\bmain\s*\("),
        ),
        "java": (
            re.compile(r"//|/\*|@\w|(?:import|package|public|final|abstract|class|interface)\b"),
            re.compile(r"\bstatic\s[^\n;{}()]{0,200}\bmain\s*\("),
        ),
        "go": (re.compile(r"//|/\*|package\b"), re.compile(r"\bfunc\s+main\s*\(")),
        "rust": (
            re.compile(r"#|//|/\*|(?:use|fn|pub|struct|enum|mod|const|static|impl|type)\b"),
            re.compile(r"\bfn\s+main\s*\("),
        ),
        "javascript": (
            re.compile(_JAVASCRIPT),
            _RUNS_JAVASCRIPT,
        ),
        "typescript": (
            re.compile(
                rf"{_JAVASCRIPT}|(?:export|declare)\s+\w|(?:abstract class|enum|interface)\s\w+[^\n]*\{{"
                r"|type \w+[^\n=]*="
            ),
            _RUNS_JAVASCRIPT,
        ),
        "kotlin": (
            re.compile(
                r"//|/\*|@\w|(?:import|package)\s+[\w.*]+[ \t;]*$"
                r"|(?:const |private |lateinit )*va[lr]\s[^\n]*="
                r"|(?:inline |private |suspend |tailrec )*fun\b[^\n]*\("
                r"|(?:\w+ ){0,5}(?:class|interface|object)\s\w[^\n]*[({]|typealias\s[^\n]*=",
                re.MULTILINE,
            ),
            re.compile(r"\bfun\s+main\s*\("),
        ),
        "scala": (
            re.compile(
                r"//|/\*|@\w|(?:import|package)\s+[\w.{},* ]+$|(?:case |final |sealed |abstract )*"
                r"(?:object|class|trait|enum)\s\w|def\s\w[^\n]*=|va[lr]\s[^\n]*=",
                re.MULTILINE,
            ),
            re.compile(r"\bextends\s+App\b|\bdef\s+main\s*\(|@main\b"),
        ),
        "csharp": (
            re.compile(
                r"//|/\*|#\w|(?:global )?using\s[^\n]*;|namespace\s[\w.]+"
                r"|(?:\w+ ){0,5}(?:class|struct|record)\s\w"
                r"|Console\.|(?:var|int|long|string|double|bool|char)(?:\[\])?\s[^\n]*[=(]|\["
            ),
            re.compile(r"\bMain\s*\(|\bConsole\."),
        ),
        "php": (
            re.compile(
                r"<\?(?:php|=)|\$\w+\s*=|function\s+\w+\s*\(|(?:echo|print|printf)\b[^\n]*;"
                r"|(?:for|foreach|while|if)\s*\("
            ),
            re.compile(r";|<\?="),
        ),
        "ruby": (
            re.compile(
                r"=begin\b|require(?:_relative)?\s*['\"]|def\s+[\w.]+[?!=]?(?:\s*\(|\s*$|\s\w+\s*$)"
                r"|(?:class|module)\s+[A-Z][\w:]*\s*(?:<|$)|"
                rf"{_PUTS}|[$@]?{_ASSIGNS}|{_LOOPS}|[A-Z_]+ = "
                r"|(?:gets|ARGF|STDIN|\$stdin|\$<|[a-z]\w*)\.[a-z]",
                re.MULTILINE,
            ),
            re.compile(rf"\b{_PUTS}|\$stdout\b|STDOUT\b|\bprintf\b", re.MULTILINE),
        ),
        "perl": (
            re.compile(
                r"(?:use|no)\s+[\w:.]+[^\n]*;|(?:my|our)\s*[$@%(]|sub\s+\w+\s*\{"
                r"|(?:print|printf|say|chomp|local|foreach|push)\b[^\n]*[$@%<\"'(]|[$@%]\w+\s*=|"
                rf"{_LOOPS}"
            ),
            re.compile(r"\b(?:print|printf|say)\b[^\n]{0,200}[;}\"'$@%]"),
        ),
        "lua": (
            re.compile(
                r"local\s+(?:function\s+\w|\w+(?:, ?\w+)*\s*(?:=|$))|function\s+[\w.:]+\s*\("
                rf"|(?:print|io\.\w+|io\.stdout:\w+)\s*[(\"']|(?:for|while|if)\b[^\n]*\b(?:do|then)\b"
                rf"|{_ASSIGNS}",
                re.MULTILINE,
            ),
            re.compile(r"\bprint\s*[(\"']|\bio\.(?:write|stdout)\b"),
        ),
        "r": (
            re.compile(
                r"(?:library|require|suppress\w+|options|cat|print|writeLines|invisible|for|while|if)\s*\("
                rf"|[\w.]+ ?<-|[A-Za-z.][\w.]* = |{_ASSIGNS}"
            ),
            re.compile(r"\b(?:cat|print|writeLines|message|write)\s*\("),
        ),
        "bash": (
            re.compile(
                r"#!|(?:echo|printf|read|awk|sed|cat|while|for|if|declare|local|set|export|let)\s"
                r"|\w+=|[\w-]+\(\)\s*[({]"
            ),
            re.compile(r"[$|;<>\"']|^#!|\(\) ?[({]|\becho \w+\s*\Z"),
        ),
    }
)
"""Beginning and content of a program in each language; a program matches both patterns."""
_ENDS: Mapping[str, str] = MappingProxyType(
    {
        "c": "}/",
        "cpp": "}/;",
        "java": "}/",
        "go": "}/",
        "rust": "}/",
        "javascript": "});`'\"/",
        "typescript": "});`'\"/",
        "csharp": "};/",
        "php": "};>/",
    }
)


def parsed(text: str) -> ast.Module | None:
    """Return the syntax tree of a Python text; None if the text is invalid or too long."""
    if len(text) > MAX_PARSED_CHARACTERS:
        return None
    try:
        return syntax_tree(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def is_program(text: str, language: str = "python") -> bool:
    """Tell whether a text is a whole program; a Python text must be short enough to be parsed."""
    if language == "python":
        tree = parsed(text)
        return tree is not None and does_something(tree, text)
    if language not in _WHOLE:
        return False
    begins, holds = _WHOLE[language]
    start = len(text) - len(text.lstrip())
    comments = _COMMENTS.match(text)
    begin = begins.match(text, start) or (comments and begins.match(text, comments.end()))
    if begin is None or holds.search(text) is None:
        return False
    if _FENCE.search(text) or has_prose_around(text):
        return False
    ends = _ENDS.get(language)
    return ends is None or text.rstrip()[-1] in ends or text.rstrip().endswith("*/")


def begins_as_program(text: str) -> bool:
    """Tell whether a Python text that is too long to be parsed begins as a program."""
    for most in _PARTS_CHARACTERS:
        part = _first_statements(text, most)
        if part and is_program(part):
            return True
    return False


def _first_statements(text: str, most: int) -> str:
    """Return the lines before the last statement that starts within `most` characters."""
    end = most
    while (end := text.rfind("\n", 0, end)) > 0:
        if text[end + 1 : end + 2].strip(" \t\r\n)]}#"):
            return text[: end + 1]
    return ""


def is_session(text: str) -> bool:
    """Tell whether a text begins with the prompt of a shell or an interpreter."""
    return _SESSION.match(text) is not None


def looks_like_code(text: str, language: str) -> bool:
    """Tell whether a block without a language's name holds code of `language`, any but Python.

    Other blocks show output, or how to run the code.
    """
    if language == "bash":
        return _SHELL.search(text) is not None and not only_runs_scripts(text)
    return _C_LIKE.search(text) is not None


def looks_like_python(text: str) -> bool:
    """Tell whether an unparsable text has a line of Python: broken code is still code."""
    return _PYTHON.search(text) is not None


def begins_as_python(text: str) -> bool:
    """Tell whether an unparsable text begins with a line of Python, and is not prose."""
    return _PYTHON.match(text) is not None and not has_prose_around(text)


def has_prose_around(code: str) -> bool:
    """Tell whether the first or the last line of a text in any language but Python is prose."""
    begin, end = code.lstrip(), code.rstrip()
    first, last = begin.partition("\n")[0], end[end.rfind("\n") + 1 :]
    return any(_PROSE.match(line) for line in (first[:MAX_LINE], last[-MAX_LINE:].lstrip()))


def only_runs_scripts(text: str) -> bool:
    """Tell whether each line of a shell text runs another script."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return bool(lines) and all(_RUNS_A_SCRIPT.match(line) for line in lines)


# ---------------------------------------------------------------- usage


def defined_names(tree: ast.Module) -> frozenset[str]:
    """Return the functions and classes defined at the top level of a module."""
    return frozenset(each.name for each in tree.body if isinstance(each, _BLOCKS))


def uses(tree: ast.Module, names: frozenset[str]) -> bool:
    """Tell whether a module reads a name of `names` without defining or importing the name."""
    bound: set[str] = set()
    loaded: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (loaded if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, _BLOCKS):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, _IMPORT):
            told = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            known = isinstance(node, ast.Import) or _is_standard(node)
            (bound if known else loaded).update(told)
        elif not isinstance(node, ast.alias):  # an exception, a part of a pattern
            parts = (getattr(node, "name", None), getattr(node, "rest", None))
            bound.update(name for name in parts if isinstance(name, str))
    return bool((loaded - bound - _BUILTINS) & names)


def _is_standard(node: ast.ImportFrom) -> bool:
    return not node.level and (node.module or "").partition(".")[0] in sys.stdlib_module_names


# ---------------------------------------------------------------- effects


def does_something(tree: ast.Module, text: str, *, besides_data: bool = False) -> bool:
    """Tell whether a module does more than name or compute a value.

    `besides_data`: ignore assigned literals too, since "n = 3" may be printed output.
    """
    lines = _LINE_END.split(text.encode("utf-8", "surrogatepass"))
    return any(
        _acts(statement, lines) and not (besides_data and _is_data(statement))
        for statement in tree.body
    )


def _is_data(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.AnnAssign)


def _acts(statement: ast.stmt, lines: list[bytes]) -> bool:
    if isinstance(statement, ast.Expr):
        return _expression_acts(statement.value, lines)
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None
    if isinstance(statement, ast.Raise):  # prose such as "raise awareness" parses as a statement
        return not isinstance(statement.exc, ast.Name | None) or (
            isinstance(statement.exc, ast.Name) and statement.exc.id in _BUILTINS
        )
    if isinstance(statement, ast.Assert):
        return not isinstance(statement.test, ast.Name)
    return not isinstance(statement, _IDLE)


def _expression_acts(value: ast.expr, lines: list[bytes]) -> bool:
    """Return True for a call, a lambda, or an expression with a call of a built-in or a method."""
    if isinstance(value, ast.Await | ast.Lambda):
        return True
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        name = value.func.id
        if name in _BUILTINS or not name[0].isupper():  # "O(n)" and "Sorry(…)" are prose
            return name == "print" or _is_adjacent(value, lines)
    return any(
        isinstance(node, ast.Call) and _calls_something_known(node, lines)
        for node in ast.walk(value)
    )


def _calls_something_known(call: ast.Call, lines: list[bytes]) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "print" or (function.id in _BUILTINS and _is_adjacent(call, lines))
    return isinstance(function, ast.Attribute | ast.Lambda | ast.Call | ast.Subscript)


def _is_adjacent(call: ast.Call, lines: list[bytes]) -> bool:
    """Tell whether the parenthesis directly follows the function's name; prose has a blank."""
    row, column = call.func.end_lineno, call.func.end_col_offset
    if row is None or column is None or row > len(lines):
        return False
    return lines[row - 1][column : column + 1] == b"("
