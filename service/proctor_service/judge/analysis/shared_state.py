"""Shared state of test code and submission, other than calls: modules, built-ins and process state.

Tests in need of shared state run beside the submission. Modules outside of the table count as shared
state.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from proctor_service.judge.analysis.suite import Suite

_words = str.split

_WHOLE = frozenset(
    _words(
        """__future__ array base64 binascii bisect calendar cmath collections collections.abc colorsys copy
        dataclasses datetime difflib enum fractions functools graphlib hashlib heapq hmac html ipaddress
        itertools json keyword math numbers operator pprint re secrets statistics string struct textwrap
        time types typing unicodedata unittest urllib.parse uuid zlib zoneinfo"""
    )
)
"""Modules without state shared by tests and submission."""
_PARTS = {
    "asyncio": _words("run sleep get_event_loop new_event_loop set_event_loop"),
    "contextlib": _words("suppress contextmanager nullcontext closing ExitStack"),
    "decimal": _words("Decimal ROUND_HALF_UP ROUND_HALF_EVEN ROUND_DOWN ROUND_UP ROUND_FLOOR ROUND_CEILING"
                      " InvalidOperation DivisionByZero"),
    "io": _words("StringIO BytesIO"),
    "pathlib": _words("PurePath PurePosixPath"),
    "pytest": _words("raises approx mark fail param fixture skip"),
    "random": _words("Random SystemRandom random randint randrange choice choices shuffle sample uniform"
                     " gauss getrandbits betavariate normalvariate triangular"),
    "sys": _words("maxsize float_info version_info int_info maxunicode byteorder getsizeof"),
    "traceback": _words("format_exc print_exc"),
}  # fmt: skip
"""Names without shared state in other modules."""
_STATEFUL = {
    "numpy": [
        "seterr",
        "errstate",
        "set_printoptions",
        "memmap",
        "load",
        "save",
        "savez",
        "fromfile",
    ],
    "numpy.random": ["seed", "set_state", "get_state"],
    "time": ["tzset"],
    "types": ["ModuleType", "FunctionType", "CodeType"],
    "unittest": ["mock", "IsolatedAsyncioTestCase"],
    "functools": ["singledispatch", "wraps", "update_wrapper"],
    "typing": ["get_type_hints"],
}
_BUILTINS = frozenset(
    _words(
        "open globals locals eval exec compile __import__ breakpoint vars dir getattr setattr delattr hasattr"
        " id input exit quit"
    )
)
_EXITS = frozenset(
    _words(
        "SystemExit KeyboardInterrupt GeneratorExit BaseException CancelledError StopAsyncIteration"
    )
)
_OBSERVING = frozenset(
    _words("assertLogs assertNoLogs assertWarns assertWarnsRegex cache_clear cache_info")
)
_WARNINGS = "Warning"


def shared_state(suite: Suite, bound: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the number of a text, the setup's first, and its shared state, once a name.

    `bound`: names defined by the tests, in place of built-ins.
    """
    own = set(bound)
    modules: dict[str, str] = {}
    for nodes in suite.nodes:
        for node in nodes:
            if type(node) is ast.Import:
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    modules[name] = alias.name if alias.asname else name
            elif type(node) is ast.Name and node.id == "__import__":
                call = suite.parents.get(id(node))
                if _is_import_of_whole(call):
                    own.add("__import__")
    plain: set[str] = set()  # names without a reason, for texts read the same names again and again
    for index, nodes in enumerate(suite.nodes):
        for node in nodes:
            kind = type(node)
            if kind is ast.Name:
                if node.id not in plain and type(node.ctx) is ast.Load:
                    reason = "" if node.id in own else _of_builtin(node.id)
                    if reason:
                        yield index, reason
                    plain.add(node.id)
            elif kind in _NAMING:
                for reason in _reasons(node, modules):
                    yield index, reason


_NAMING = (ast.Import, ast.ImportFrom, ast.Attribute)


def _reasons(node: ast.AST, modules: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name not in _PARTS:
                yield from _of_module(alias.name)
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        yield from ["imports the submission"] if node.level else []
        yield from [] if module in _PARTS else _of_module(module)
        for alias in node.names:
            yield from _of_name(module, alias.name)
    elif isinstance(node, ast.Attribute):
        module = _module_of(node.value, modules)
        if module and not isinstance(node.ctx, ast.Load):
            yield f"replaces {module}.{node.attr}"
        elif module:
            yield from _of_name(module, node.attr)
        if node.attr in _OBSERVING:
            yield f"observes the process: {node.attr}"
        elif node.attr in _EXITS:
            yield f"names {node.attr}"


def _is_import_of_whole(node: ast.AST | None) -> bool:
    """Tell whether a node is the import of a module without state: `__import__("math")`."""
    match node:
        case ast.Call(args=[ast.Constant(value=str(module))]):
            return module in _WHOLE
    return False


def _of_builtin(name: str) -> str:
    if name in _EXITS or name.endswith(_WARNINGS):
        return f"names {name}"
    return f"uses {name}" if name in _BUILTINS else ""


def _module_of(node: ast.expr, modules: dict[str, str]) -> str:
    """Return the module of an expression like `np.random`, or ""."""
    if isinstance(node, ast.Name):
        return modules.get(node.id, "")
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner = modules.get(node.value.id)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def _of_module(module: str) -> Iterator[str]:
    if module not in _WHOLE and module.partition(".")[0] != "numpy":
        yield f"uses {module or 'a relative import'}"


def _of_name(module: str, name: str) -> Iterator[str]:
    allowed = _PARTS.get(module)
    if name in _STATEFUL.get(module, ()) or (allowed is not None and name not in allowed):
        yield f"uses {module}.{name}"
