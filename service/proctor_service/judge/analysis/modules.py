"""Classification of the modules in test code: find modules that need the submission's process."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from proctor_service.guest.rpc import environment
from proctor_service.judge.analysis.names import is_standard

_words = str.split
_MODULES = {
    **dict.fromkeys(_words("inspect dis abc ast symtable"), "inspects code with"),
    **dict.fromkeys(_words("pickle copyreg marshal shelve"), "pickles with"),
    **dict.fromkeys(_words("timeit doctest runpy code codeop"), "runs code with"),
    **dict.fromkeys(_words("importlib pkgutil builtins"), "reaches modules through"),
    **dict.fromkeys(
        _words("tempfile pathlib shutil glob fileinput sqlite3 dbm zipfile tarfile gzip bz2"),
        "uses files through",
    ),
    **dict.fromkeys(
        _words("warnings logging locale signal gc weakref tracemalloc resource"),
        "observes the process with",
    ),
    **dict.fromkeys(_words("subprocess multiprocessing socket"), "uses processes through"),
    **dict.fromkeys(_words("socketserver http urllib selectors"), "uses the network through"),
    **dict.fromkeys(_words("threading contextvars"), "shares threads through"),
}
# Names of these modules that do not touch the process or the file system.
HARMLESS = {
    "os": _words("path sep linesep PathLike fspath extsep name"),
    "os.path": _words(
        "join basename dirname splitext split normpath sep commonprefix commonpath isabs relpath"
    ),
    "sys": _words("stdout stdin maxsize float_info version_info getsizeof version byteorder exit"),
    "urllib": ["parse"],
    "http": ["HTTPStatus"],
    "threading": ["Thread"],
}
STATEFUL = {  # names with state, of otherwise harmless modules
    "random": ["setstate", "getstate"],
    "contextlib": ["redirect_stderr", "chdir"],
    "typing": ["get_type_hints"],
    "io": ["open", "FileIO", "open_code"],
    "asyncio": _words(
        "Queue Event Lock Semaphore BoundedSemaphore Condition wait_for timeout Future "
        "create_subprocess_exec create_subprocess_shell open_connection start_server"
    ),
    "time": ["tzset"],
    "copy": ["replace"],
}
# Names whose replacement by tests the test sandbox forwards to the submission.
REPLACEABLE = frozenset(
    ["sys.stdout", "sys.stdin"]
    + [
        f"{module}.{name}"
        for module, (_, names) in environment.REPLACEABLE.items()
        for name in names
    ]
)


def imported_names(trees: Sequence[ast.Module]) -> Iterator[tuple[str, str]]:
    """Yield the names that imports bind, with the imported name, as `np` and `numpy`."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    yield name, alias.name if alias.asname else name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def reasons_of_import(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield reasons for which an import needs the submission's process."""
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level or module in ("solution", "__main__"):
            yield "imports the submission"
        elif any(alias.name == "*" for alias in node.names) and module in HARMLESS:
            yield f"uses the process or its files: {module}"
        yield from reasons_of_module(module, [alias.name for alias in node.names])
    else:
        for alias in node.names:
            yield from reasons_of_module(alias.name, None)


def reasons_of_module(module: str, names: list[str] | None) -> Iterator[str]:
    """Yield reasons for which a module, or these names of a module, need the same process."""
    top = module.partition(".")[0]
    if not is_standard(module):
        yield f"imports {module}"
    elif module in HARMLESS or top in HARMLESS:
        allowed = HARMLESS.get(module, HARMLESS.get(top, []))
        if names is not None and any(name not in allowed for name in names):
            if not (top == "urllib" and module == "urllib.parse"):
                yield f"uses the process or its files: {module}"
        elif top in ("urllib", "http") and module not in ("urllib", "urllib.parse", "http"):
            yield f"{_MODULES[top]} {module}"
    elif top in _MODULES:
        yield f"{_MODULES[top]} {module}"
    for name in names or ():
        if name in STATEFUL.get(module, ()) and f"{module}.{name}" not in STATEFUL:
            yield f"uses what the two share: {module}.{name}"


def dotted_name(node: ast.expr, modules: dict[str, str]) -> str | None:
    """Return the module of an expression such as `np.random`, or None."""
    if isinstance(node, ast.Name):
        return modules.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value, modules)
        return None if owner is None else f"{owner}.{node.attr}"
    return imported_module(node)


def imported_module(node: ast.expr) -> str | None:
    """Return the module of `__import__("math")`, or None."""
    match node:
        case ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(module))]):
            return module
    return None
