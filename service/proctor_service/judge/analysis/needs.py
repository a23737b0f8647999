"""Reasons for which test code needs the submission's process: operators on objects, files, modules.

Tests without a reason run with two sandboxes, and only data crosses between the sandboxes. Users
see the first reason found.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Sequence

from proctor_service.guest.rpc import environment, handles
from proctor_service.judge.analysis.names import RUNNING, is_standard
from proctor_service.judge.analysis.scopes import Definition
from proctor_service.judge.analysis.suite import Suite, arguments_of, containing, is_name
from proctor_service.judge.analysis.values import Objects
from proctor_service.judge.syntax import syntax_tree

_words = str.split
_COMPARING = frozenset(
    f"assert{name}"
    for name in _words(
        "Equal NotEqual Equals NotEquals AlmostEqual NotAlmostEqual Less LessEqual Greater "
        "GreaterEqual In NotIn CountEqual ListEqual TupleEqual SetEqual DictEqual SequenceEqual "
        "ItemsEqual"
    )
)
_OPERATING = frozenset(_words("sorted sum min max abs round divmod pow set frozenset hash"))
_OPERATING_METHODS = frozenset(["index", "count", "remove", "sort"])
_OPERATING_MODULES = frozenset(
    ["heapq", "bisect", "operator", "functools", "statistics", "dataclasses", "numpy"]
)
_KEEPING = frozenset(["functools.partial"])  # it keeps an object, and reads nothing inside
_COMBINING = frozenset(_words("copy deepcopy reduce heappush asdict astuple replace"))
_INSPECTING = frozenset(_words("vars dir issubclass hasattr getattr setattr delattr"))
_BUILTINS = {
    "open": "opens a file",
    "globals": "reads globals()",
    "breakpoint": "starts a debugger",
}

_ABSTRACT = frozenset(["collections.abc", "typing", "numbers", "contextlib", "os"])
_ASSERTIONS = {
    "assertLogs": "observes the log",
    "assertNoLogs": "observes the log",
    "assertWarns": "observes warnings",
    "assertWarnsRegex": "observes warnings",
    "warns": "observes warnings",
    "deprecated_call": "observes warnings",
}
# Modules that need the submission's process, with the reason.
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
    **dict.fromkeys(_words("threading _thread concurrent contextvars"), "shares threads through"),
}
# Names of these modules that do not touch the process or the file system.
_HARMLESS = {
    "os": _words("path sep linesep PathLike fspath extsep name"),
    "os.path": _words(
        "join basename dirname splitext split normpath sep commonprefix commonpath isabs relpath"
    ),
    "sys": _words("stdout stdin maxsize float_info version_info getsizeof version byteorder exit"),
    "urllib": ["parse"],
    "http": ["HTTPStatus"],
    "threading": _words("Thread Timer"),
    "concurrent": ["futures"],
    "concurrent.futures": [],
}
# They copy the fields of a function, which only the real one has.
_WRAPPING = frozenset(
    f"functools.{name}" for name in _words("lru_cache cache wraps update_wrapper singledispatch")
)
# The connection to the submission carries one call at a time: a call that waits for a second
# thread's would wait forever.
_THREADS = frozenset(["threading.Thread", "threading.Timer"])
_STATEFUL = {  # names with state, of otherwise harmless modules
    "random": ["setstate", "getstate"],
    "contextlib": ["redirect_stderr", "chdir"],
    "typing": ["get_type_hints"],
    "io": ["open", "FileIO", "open_code"],
    "asyncio": _words(
        "Queue Event Lock Semaphore BoundedSemaphore Condition wait_for timeout Future "
        "create_subprocess_exec create_subprocess_shell open_connection start_server "
        "iscoroutinefunction to_thread"
    ),
    "time": ["tzset"],
    "copy": ["replace"],
}
# Names whose replacement by tests the test sandbox forwards to the submission.
_REPLACEABLE = {"sys.stdout", "sys.stdin"} | {
    f"{module}.{name}" for module, (_, names) in environment.REPLACEABLE.items() for name in names
}


def why_shared(suite: Suite, objects: Objects) -> str | None:
    """Return the reason for which tests must run in the submission's process, or None."""
    labels = ["setup", *(f"tests.{index}" for index in range(len(suite.tests)))]
    implied = [syntax_tree(statement) for statement in objects.names.imports]
    modules = _Modules([*suite.trees, *implied])
    parts = _Parts(suite, objects, modules)
    wrapping = _wrapping_calls(suite)
    for label, nodes in zip(labels, suite.nodes, strict=True):
        for node in nodes:
            for reason in _reasons(node, objects, modules, parts):
                return f"{label} {reason}"
            if id(node) in wrapping:
                for reason in _of_wrapping(wrapping[id(node)], objects):
                    return f"{label} {reason}"
    return None


class _Parts:
    """The nodes that contain a node of some kind; each kind is searched once in the suite."""

    def __init__(self, suite: Suite, objects: Objects, modules: _Modules) -> None:
        self._suite = suite
        self._objects = objects
        self._modules = modules
        self._found: dict[Callable[[ast.AST], bool], set[int]] = {}

    def print_in(self, node: ast.AST) -> bool:
        """Tell whether code names `print`."""
        return self._contains(node, _is_print)

    def foreign_in(self, node: ast.AST) -> bool:
        """Tell whether an expression has a name that is no built-in and no import."""
        return self._contains(node, self._is_foreign)

    def abstract_in(self, node: ast.AST) -> bool:
        """Tell whether an expression names an abstract class of a module."""
        return self._contains(node, self._is_abstract)

    def _contains(self, node: ast.AST, wanted: Callable[[ast.AST], bool]) -> bool:
        if wanted not in self._found:
            self._found[wanted] = containing(self._suite, wanted)
        return id(node) in self._found[wanted]

    def _is_foreign(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and not (
            self._objects.is_builtin(node) or self._objects.is_imported(node)
        )

    def _is_abstract(self, node: ast.AST) -> bool:
        return self._modules.abstract_class(node) is not None


def _is_print(node: ast.AST) -> bool:
    return is_name(node, "print")


def _wrapping_calls(suite: Suite) -> dict[int, ast.Call]:
    """Return, by id, the calls whose result is called: `wrap(f)(1)`, or `g = wrap(f)` with a `g(1)`."""
    found: dict[int, ast.Call] = {}
    kept: list[tuple[ast.Name, ast.Call]] = []
    called: set[str] = set()
    for node in (node for nodes in suite.nodes for node in nodes):
        match node:
            case ast.Call(func=ast.Call() as wrapping):
                found[id(wrapping)] = wrapping
            case ast.Call(func=ast.Name(id=name)):
                called.add(name)
            case ast.Assign(targets=targets, value=ast.Call() as value):
                kept += [(target, value) for target in targets if isinstance(target, ast.Name)]
    found.update((id(value), value) for target, value in kept if target.id in called)
    return found


def _reasons(node: ast.AST, objects: Objects, modules: _Modules, parts: _Parts) -> Iterator[str]:
    if isinstance(node, ast.Compare):
        yield from _of_comparison(node, objects)
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.UnaryOp):
        yield from _of_arithmetic(node, objects)
    elif isinstance(node, ast.Set | ast.SetComp | ast.Dict | ast.DictComp | ast.Subscript):
        yield from _of_hashing(node, objects)
    elif isinstance(node, ast.ClassDef):
        yield from _of_class(node, objects, modules)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if objects.is_decorated(node):
            yield from _of_annotations(node)
    elif isinstance(node, ast.With | ast.AsyncWith):
        yield from _of_context(node, objects, parts)
    elif isinstance(node, ast.Call):
        yield from _of_call(node, objects, modules, parts)
        yield from _of_abstract_class(node, objects, modules, parts)
        yield from _of_patch(node, modules)
    elif isinstance(node, ast.Attribute):
        yield from _of_attribute(node, objects, modules)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from _reasons_of_import(node)
    elif isinstance(node, ast.Name):
        yield from _of_name(node, objects, modules)


def _of_comparison(node: ast.Compare, objects: Objects) -> Iterator[str]:
    sides = [node.left, *node.comparators]
    for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
        if isinstance(op, ast.Is | ast.IsNot) or _is_none(left) or _is_none(right):
            continue
        if objects.kind(left) or objects.kind(right):
            yield f"compares objects of the submission's: {_shown(node)}"


def _of_arithmetic(
    node: ast.BinOp | ast.AugAssign | ast.UnaryOp, objects: Objects
) -> Iterator[str]:
    if isinstance(node, ast.UnaryOp):
        operands = [] if isinstance(node.op, ast.Not) else [node.operand]
    elif isinstance(node, ast.AugAssign):
        operands = [node.target, node.value]
    else:
        formats = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        operands = [] if formats else [node.left, node.right]
    if any(objects.kind(each) == "object" for each in operands):
        yield f"calculates with objects of the submission's: {_shown(node)}"


def _of_hashing(node: ast.AST, objects: Objects) -> Iterator[str]:
    keys: list[ast.expr] = []
    if isinstance(node, ast.Set):
        keys = node.elts
    elif isinstance(node, ast.SetComp):
        keys = [node.elt]
    elif isinstance(node, ast.DictComp):
        keys = [node.key]
    elif isinstance(node, ast.Dict):
        keys = [key for key in node.keys if key is not None]
    elif isinstance(node, ast.Subscript):
        keys = [node.slice]
    if any(objects.kind(key) for key in keys):
        yield f"hashes objects of the submission's: {_shown(node)}"


def _of_class(node: ast.ClassDef, objects: Objects, modules: _Modules) -> Iterator[str]:
    for thread in _THREADS.intersection(modules.dotted(base) or "" for base in node.bases):
        yield f"shares threads through {thread}"
    for base in (*node.bases, *(keyword.value for keyword in node.keywords)):
        if any(objects.is_submission(part) for part in ast.walk(base)):
            yield f"derives the class {node.name} from the submission's"
    if objects.is_decorated(node):
        yield f"lets the submission change the class {node.name}"
    for statement in node.body:  # a function in a class is bound to the class's objects
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes = [part for each in statement.decorator_list for part in ast.walk(each)]
        else:
            nodes = [statement.value] if isinstance(statement, ast.Assign) else []
        if any(objects.is_submission(each) and not objects.is_class(each) for each in nodes):
            yield f"makes a method of the class {node.name} with the submission's"


def _of_context(node: ast.With | ast.AsyncWith, objects: Objects, parts: _Parts) -> Iterator[str]:
    """Yield whether a context of the submission's may catch what the tests print inside."""
    runs = any(objects.runs_submission(item.context_expr) for item in node.items)
    if runs and any(map(parts.print_in, node.body)):
        yield "prints inside a context of the submission's"


def _of_wrapping(node: ast.Call, objects: Objects) -> Iterator[str]:
    """Yield why a function that the submission wraps, and may look at, must be the real one."""
    if objects.runs_submission(node.func):
        for definition in _handed(node, objects, _is_annotated):
            yield from _of_annotations(definition)


def _of_annotations(node: Definition) -> Iterator[str]:
    """Yield whether a function has annotations: of a function of the tests, only calls cross."""
    if _is_annotated(node):
        yield f"hands the annotations of {node.name} to the submission"


def _is_annotated(node: Definition) -> bool:
    return not isinstance(node, ast.ClassDef) and bool(
        node.returns or any(getattr(part, "annotation", None) for part in ast.walk(node.args))
    )


def _is_plain_class(node: Definition) -> bool:
    """Tell whether a definition is a class, and no exception by the name of a base.

    Exceptions are only raised and caught.
    """
    if not isinstance(node, ast.ClassDef):
        return False
    names = [
        base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        for base in node.bases
    ]
    return not any(name.endswith(("Error", "Exception", "Warning")) for name in names)


def _handed(
    call: ast.Call, objects: Objects, wanted: Callable[[Definition], bool]
) -> Iterator[Definition]:
    """Yield wanted definitions that a call hands over, also inside lists and dictionaries."""
    waiting = arguments_of(call)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            waiting += node.elts
        elif isinstance(node, ast.Dict):
            waiting += [each for each in (*node.keys, *node.values) if each is not None]
        elif isinstance(node, ast.Starred):
            waiting.append(node.value)
        else:
            definition = objects.definition_of(node, wanted)
            if definition is not None:
                yield definition


def _of_call(node: ast.Call, objects: Objects, modules: _Modules, parts: _Parts) -> Iterator[str]:
    func = node.func
    arguments = arguments_of(node)
    made = [each for each in arguments if objects.kind(each)]
    library = modules.dotted(func) or ""
    if made and library.partition(".")[0] in _OPERATING_MODULES and library not in _KEEPING:
        yield f"compares objects of the submission's: {library}"
    if library in _WRAPPING and any(map(objects.runs_submission, arguments)):
        yield f"copies the fields of a function of the submission's: {library}"
    if library in _THREADS and any(map(parts.foreign_in, arguments)):
        yield f"shares threads through {library}"
    if objects.runs_submission(func):
        for definition in _handed(node, objects, _is_plain_class):
            yield f"hands the class {definition.name} to the submission"
    if isinstance(func, ast.Name):
        yield from _of_function(func.id, node, objects, made)
    elif isinstance(func, ast.Attribute):
        if func.attr == "run_in_executor":
            yield "shares threads through run_in_executor"
        if func.attr in _ASSERTIONS:
            yield f"{_ASSERTIONS[func.attr]}: {func.attr}"
        compared = [each for each in node.args[:2] if objects.kind(each)]
        if func.attr in _COMPARING and compared and not any(map(_is_none, node.args[:2])):
            yield f"compares objects of the submission's: {func.attr}"
        if func.attr in _OPERATING_METHODS and (
            (made and objects.kind(func.value) == "collection")
            or (func.attr == "sort" and objects.kind(func.value) and not _has_key(node))
        ):
            yield f"compares objects of the submission's: {func.attr}"
        if func.attr in ("copy", "deepcopy") and made and is_name(func.value, "copy"):
            yield "copies objects of the submission's"


def _of_function(
    name: str, node: ast.Call, objects: Objects, made: list[ast.expr]
) -> Iterator[str]:
    if objects.is_submission(node.func):
        return
    if name in _OPERATING and made and not (name in ("sorted", "min", "max") and _has_key(node)):
        yield f"compares objects of the submission's: {name}"
    elif name in _COMBINING and made:
        yield f"copies or combines objects of the submission's: {name}"
    elif name == "type" and len(node.args) == 1 and (made or objects.is_submission(node.args[0])):
        yield "asks for the class of an object: type"
    elif name in _INSPECTING and node.args and objects.is_submission(node.args[0]):
        yield f"inspects what the submission defines: {name}"
    elif name in ("vars", "dir") and (made or any(_decorated(each, objects) for each in node.args)):
        yield f"inspects an object: {name}"
    elif name == "issubclass" and any(map(objects.is_submission, node.args)):
        yield "inspects a class: issubclass"
    elif name == "isinstance" and len(node.args) == 2 and isinstance(node.args[0], ast.Attribute):
        if objects.is_class(node.args[0].value):
            yield f"inspects a class: {_shown(node.args[0])}"
    elif name == "__import__":
        module = _imported_module(node)
        yield from (
            ["imports a module by its name"] if module is None else _reasons_of_module(module, None)
        )
    elif name in RUNNING and not _is_without_names(node.args[:1]):
        yield f"runs text as code: {name}"


def _of_abstract_class(
    node: ast.Call, objects: Objects, modules: _Modules, parts: _Parts
) -> Iterator[str]:
    if not (is_name(node.func, "isinstance") and len(node.args) == 2):
        return
    value, wanted = node.args
    if parts.abstract_in(wanted) and (objects.kind(value) or objects.is_submission(value)):
        found = filter(None, map(modules.abstract_class, ast.walk(wanted)))
        yield f"asks for an abstract class: {next(found)}"


def _of_patch(node: ast.Call, modules: _Modules) -> Iterator[str]:
    name = modules.dotted(node.func) or ""
    if name.startswith("unittest.mock.patch"):
        target = node.args[0] if node.args else None
        known = isinstance(target, ast.Constant) and target.value in _REPLACEABLE
        if name != "unittest.mock.patch" or not known:
            yield "patches what the submission uses"


def _of_attribute(node: ast.Attribute, objects: Objects, modules: _Modules) -> Iterator[str]:
    special = node.attr.startswith("__") and node.attr.endswith("__")
    if special and _decorated(node.value, objects):
        special = node.attr != handles.WRAPPED and node.attr not in handles.TEXTS
    elif special:
        special = bool(objects.is_submission(node.value) or objects.kind(node.value))
    if special:
        yield f"inspects what the submission defines: {node.attr}"
    owner = modules.dotted(node.value)
    if owner is None:
        return
    if not isinstance(node.ctx, ast.Load):
        if f"{owner}.{node.attr}" not in _REPLACEABLE:
            yield f"replaces {owner}.{node.attr}"
    elif owner in _HARMLESS and node.attr not in _HARMLESS[owner]:
        why = _MODULES.get(owner.partition(".")[0], "uses the process or its files:")
        yield f"{why} {owner}.{node.attr}"
    elif node.attr in _STATEFUL.get(owner, ()):
        yield f"uses what the two share: {owner}.{node.attr}"


def _of_name(node: ast.Name, objects: Objects, modules: _Modules) -> Iterator[str]:
    own = node.id in modules.names or objects.is_submission(node)
    if node.id in _BUILTINS and isinstance(node.ctx, ast.Load) and not own:
        yield _BUILTINS[node.id]


def _is_without_names(texts: Sequence[ast.expr]) -> bool:
    """Tell whether a text to run is a constant that needs built-in names alone."""
    for each in texts:
        if not (isinstance(each, ast.Constant) and isinstance(each.value, str)):
            return False
        try:
            nodes = list(ast.walk(syntax_tree(each.value)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # running it raises an error
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        if not all(hasattr(builtins, name) for name in names):
            return False
    return True


def _decorated(node: ast.expr, objects: Objects) -> bool:
    """Tell whether a name stands for a function or class that the submission decorates."""
    return objects.definition_of(node, objects.is_decorated) is not None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _has_key(node: ast.Call) -> bool:
    return any(keyword.arg == "key" for keyword in node.keywords)


def _shown(node: ast.AST) -> str:
    try:
        text = ast.unparse(node)
    except (ValueError, RecursionError):
        return "an expression"
    return text if len(text) <= 80 else text[:79] + "…"


# ---------------------------------------------------------------- modules


class _Modules:
    """The names that imports bind, and the modules of expressions."""

    def __init__(self, trees: Sequence[ast.Module]) -> None:
        self.names = dict(_imported_names(trees))
        self._dotted: dict[int, str | None] = {}

    def dotted(self, node: ast.AST) -> str | None:
        """Return the module of an expression such as `np.random`, or None."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if not isinstance(node, ast.Attribute):
            return _imported_module(node)
        if id(node) not in self._dotted:
            owner = self.dotted(node.value)
            self._dotted[id(node)] = None if owner is None else f"{owner}.{node.attr}"
        return self._dotted[id(node)]

    def abstract_class(self, node: ast.AST) -> str | None:
        """Return the name of a class in a module with abstract classes, or None."""
        name = self.dotted(node) if isinstance(node, ast.Name | ast.Attribute) else None
        return name if name and name.rpartition(".")[0] in _ABSTRACT else None


def _imported_names(trees: Sequence[ast.Module]) -> Iterator[tuple[str, str]]:
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


def _reasons_of_import(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield reasons for which an import needs the submission's process."""
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level or module in ("solution", "__main__"):
            yield "imports the submission"
        elif any(alias.name == "*" for alias in node.names) and module in _HARMLESS:
            yield f"uses the process or its files: {module}"
        yield from _reasons_of_module(module, [alias.name for alias in node.names])
    else:
        for alias in node.names:
            yield from _reasons_of_module(alias.name, None)


def _reasons_of_module(module: str, names: list[str] | None) -> Iterator[str]:
    """Yield reasons for which a module, or these names of a module, need the same process."""
    top = module.partition(".")[0]
    if not is_standard(module):
        yield f"imports {module}"
    elif module in _HARMLESS or top in _HARMLESS:
        allowed = _HARMLESS.get(module, _HARMLESS.get(top, []))
        if names is not None and any(name not in allowed for name in names):
            if not (top == "urllib" and module == "urllib.parse"):
                yield f"{_MODULES.get(top, 'uses the process or its files:')} {module}"
        elif top in ("urllib", "http") and module not in ("urllib", "urllib.parse", "http"):
            yield f"{_MODULES[top]} {module}"
    elif top in _MODULES:
        yield f"{_MODULES[top]} {module}"
    for name in names or ():
        if name in _STATEFUL.get(module, ()):
            yield f"uses what the two share: {module}.{name}"


def _imported_module(node: ast.AST) -> str | None:
    """Return the module of `__import__("math")`, or None."""
    match node:
        case ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(module))]):
            return module
    return None
