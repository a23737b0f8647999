"""Clear expectations of a grader with tests in Python."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from proctor_service.judge.control.expectations import Expectation, Tolerance
from proctor_service.judge.control.python_forms import NAMES, Forms
from proctor_service.judge.control.python_literals import Positions, is_literal, literal_of
from proctor_service.judge.control.python_names import Names
from proctor_service.judge.control.python_reach import (
    Block,
    Column,
    Definitions,
    Function,
    blocks_of,
    called_at_top,
    column_of,
    dotted,
    is_generator,
    methods_of_case,
    methods_of_plain_class,
    runs_all_cases,
)
from proctor_service.judge.python_source import syntax_tree

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WORD = re.compile(r"[^\W\d]\w*")  # "want" and "x1" in "want - 2 * x1"
_DOUBTFUL = frozenset(
    (
        # A failed assertion, or a test that does not run, may count for passed.
        *("skip", "skipif", "skipIf", "skipUnless", "skipTest", "SkipTest", "importorskip"),
        *("xfail", "expectedFailure", "pytestmark", "load_tests", "failureException"),
        *("collect_ignore", "collect_ignore_glob", "pytest_plugins", "__test__", "hookimpl"),
        *("_exit", "atexit", "excepthook", "settrace", "setprofile", "unraisablehook"),
        # Equality may be more than that of the values.
        *("__eq__", "__ne__", "ANY", "addTypeEqualityFunc", "__class__", "__instancecheck__"),
        # An expected value may be used by other ways than its name.
        *("globals", "locals", "vars", "eval", "exec", "inspect", "__dict__", "__code__"),
        *("_getframe", "currentframe", "getsource", "__file__", "getattr", "__getattr__"),
    )
)
"""Words in tests without clear expectations, also in strings."""
_LEFT_OUT = frozenset(("skip", "skipif", "skipIf", "skipUnless", "xfail", "expectedFailure"))
_HOOK = "pytest_"


@dataclass(frozen=True, slots=True)
class Module:
    """A text of tests. `part`: its name.

    `functions`, `cases`: names of the functions and TestCases run behind its statements; with
    `awaits` also coroutines. `by_pytest`: pytest collects the tests, or, without `has_tests`, the
    fixtures. `is_main`: its name is `__main__`.
    """

    part: str
    text: str
    tree: ast.Module
    functions: frozenset[str] = frozenset()
    cases: frozenset[str] = frozenset()
    by_pytest: bool = False
    has_tests: bool = True
    awaits: bool = False
    is_main: bool = False

    @classmethod
    def of(cls, part: str, text: str, **more: object) -> Module:
        """Parse a text. Raises the errors of `ast.parse`."""
        return cls(part, text, syntax_tree(text), **more)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Suite:
    """Modules of a namespace, and texts with a possible influence on their meaning.

    `foreign`: words of a submission with the same namespace; None for a namespace of its own.
    """

    modules: tuple[Module, ...]
    beside: tuple[ast.AST, ...] = ()
    foreign: frozenset[str] | None = None


def words_of(source: str) -> frozenset[str]:
    """Return the words of a source."""
    return frozenset(_WORD.findall(source))


def expectations(suite: Suite) -> list[Expectation]:
    """Return the clear expectations of a suite, each place once."""
    trees = [*(module.tree for module in suite.modules), *suite.beside]
    if any(map(_is_doubtful, trees)):
        return []
    definitions = Definitions.of(trees)
    fixtures = _fixtures(suite, definitions)
    names = Names(trees, suite.foreign)
    direct: list[tuple[ast.Module, ast.expr, Tolerance, bool]] = []
    for module in suite.modules:
        imports = _imports(trees if suite.foreign is not None else [module.tree])
        if suite.foreign is None:  # each module has a namespace of its own
            definitions = Definitions.of([module.tree])
        forms = Forms(imports, definitions.counts)
        for block in _blocks(module, suite, definitions, imports, fixtures):
            for statement in block.statements:
                for each in forms.comparisons(statement, block.case):
                    if forms.is_value(each.answer):
                        continue
                    match each.expected:
                        case ast.Name() as name:
                            names.add(name, None, each, block, forms, module.tree)
                        case ast.Subscript(
                            value=ast.Name() as name, slice=ast.Constant(value=int(place))
                        ):
                            names.add(name, place, each, block, forms, module.tree)
                        case value if forms.is_value(value) and each.bears(value):
                            direct.append((module.tree, value, each.tolerance, each.only_far))
    return list(_made([*direct, *names.values()], suite))


def _is_doubtful(tree: ast.AST) -> bool:
    """Return True if a word of a text makes its expectations doubtful."""
    marks = {id(each) for node in ast.walk(tree) for each in _marks_of(node)}
    todo = [tree]
    while todo:
        node = todo.pop()
        if id(node) in marks:
            continue
        if any(word in _DOUBTFUL or word.startswith(_HOOK) for word in _words(node)):
            return True
        if any(word in NAMES for word in _bound_words(node)):
            return True
        todo += ast.iter_child_nodes(node)
    return False


def _marks_of(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the decorators of excluded definitions, without clear expectations."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        for each in node.decorator_list:
            function = each.func if isinstance(each, ast.Call) else each
            if isinstance(function, ast.Attribute) and function.attr in _LEFT_OUT:
                yield each


def _words(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=asname):
            yield from (*name.split("."), asname or "")
        case ast.keyword(arg=str(name)):
            yield name
        case ast.Constant(value=str(text)):
            yield from _WORD.findall(text)


def _bound_words(node: ast.AST) -> Iterator[str]:
    """Yield the names which a node may bind, also as an attribute or by a name in a string."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name) | ast.Constant(value=str(name)):
            yield name


def _imports(trees: Iterable[ast.AST]) -> dict[str, str]:
    """Return the full name of each name imported by the top levels."""
    found: dict[str, str] = {}
    for tree in trees:
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.Import):
                for each in node.names:
                    top = each.name.partition(".")[0]
                    found[each.asname or top] = each.name if each.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for each in node.names:
                    found[each.asname or each.name] = f"{node.module}.{each.name}"
    return found


def _blocks(
    module: Module,
    suite: Suite,
    definitions: Definitions,
    imports: Mapping[str, str],
    fixtures: Mapping[str, Column],
) -> Iterator[Block]:
    """Yield the certain statements of a module."""
    body = _with_main(module) if module.is_main else module.tree.body
    own = _tables(module.tree, module.tree.body)
    if not module.has_tests:
        return
    if suite.foreign is None:
        yield from blocks_of(body, None, own)
    else:  # a submission may read its namespace
        taken = suite.foreign | {name for name in own if not definitions.is_once(name)}
        remaining = {name: table for name, table in own.items() if name not in taken}
        yield from blocks_of(body, None, remaining)
        own = {}
    called = called_at_top(body)
    runs_all = any(runs_all_cases(each, imports) for each in body)
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            if module.by_pytest or runs_all or node.name in module.cases:
                for method in methods_of_case(node, imports, definitions):
                    case = method.args.args[0].arg
                    tables = {**own, **_tables(method, method.body)}
                    yield from blocks_of(method.body, method, tables, case)
            if module.by_pytest:
                for method in methods_of_plain_class(node, definitions):
                    yield from _of_collected(method, own, imports, fixtures)
        elif isinstance(node, _FUNCTIONS) and definitions.is_once(node.name):
            if module.by_pytest and node.name.startswith("test"):
                yield from _of_collected(node, own, imports, fixtures)
            elif node.decorator_list or is_generator(node):
                continue
            elif _runs(node, module, called):
                yield from blocks_of(node.body, node, _tables(node, node.body))


def _runs(node: Function, module: Module, called: set[str]) -> bool:
    """Tell whether a function without a decorator runs behind the statements, or by a call there."""
    if node.name in module.functions:
        return module.awaits or isinstance(node, ast.FunctionDef)
    return node.name in called and isinstance(node, ast.FunctionDef)


def _of_collected(
    function: Function,
    tables: Mapping[str, ast.expr],
    imports: Mapping[str, str],
    fixtures: Mapping[str, Column],
) -> Iterator[Block]:
    """Yield the certain statements of a function collected by pytest."""
    columns = {each.arg: fixtures[each.arg] for each in function.args.args if each.arg in fixtures}
    for decorator in function.decorator_list:
        found = _parametrized(decorator, tables, imports)
        if found is None or found.keys() & columns.keys():
            return
        columns.update(found)
    if isinstance(function, ast.FunctionDef) and not is_generator(function):
        own = {**tables, **_tables(function, function.body)}
        yield from blocks_of(function.body, function, own, columns=columns)


def _fixtures(suite: Suite, definitions: Definitions) -> dict[str, Column]:
    """Return the literal of each fixture with a literal result and a single user."""
    trees = [*(module.tree for module in suite.modules), *suite.beside]
    arguments = Counter(
        node.arg for tree in trees for node in ast.walk(tree) if isinstance(node, ast.arg)
    )
    found: dict[str, Column] = {}
    for module in (each for each in suite.modules if each.by_pytest):
        imports = _imports([module.tree])
        for node in module.tree.body:
            match node:
                case ast.FunctionDef(
                    name=name,
                    args=ast.arguments(args=[], vararg=None, kwarg=None),
                    decorator_list=[decorator],
                    body=[ast.Return(value=ast.expr() as value)],
                ) if dotted(decorator, imports) == "pytest.fixture":
                    if is_literal(value) and definitions.is_once(name) and arguments[name] == 1:
                        found[name] = (value,)
    return found


def _parametrized(
    decorator: ast.expr, tables: Mapping[str, ast.expr], imports: Mapping[str, str]
) -> dict[str, Column] | None:
    """Return the columns of a `pytest.mark.parametrize`; None for another decorator, or without rows."""
    match decorator:
        case ast.Call(
            func=ast.Attribute(value=mark, attr="parametrize"), args=[names, rows], keywords=more
        ) if all(each.arg == "ids" for each in more) and dotted(mark, imports) == "pytest.mark":
            if isinstance(rows, ast.Name):
                rows = tables.get(rows.id, rows)
        case _:
            return None
    if not column_of(rows, None):
        return None
    match names:
        case ast.Constant(value=str(text)):
            listed = [each.strip() for each in text.split(",") if each.strip()]
            is_single = len(listed) == 1 and "," not in text
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if all(map(_is_string, parts)):
            listed = [str(ast.literal_eval(each)) for each in parts]
            is_single = False
        case _:
            return None
    if is_single:
        return {listed[0]: column_of(rows, None)}
    width = len(listed)
    return {name: column_of(rows, (number, width)) for number, name in enumerate(listed)}


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _with_main(module: Module) -> list[ast.stmt]:
    """Return the statements of a main program, also under `if __name__ == "__main__":`."""
    found: list[ast.stmt] = []
    for statement in module.tree.body:
        match statement:
            case ast.If(
                test=ast.Compare(
                    left=ast.Name(id="__name__"),
                    ops=[ast.Eq()],
                    comparators=[ast.Constant(value="__main__")],
                ),
                body=body,
                orelse=[],
            ):
                found += body
            case _:
                found.append(statement)
    return found


def _tables(scope: ast.AST, body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """Return the lists of a scope by names with a single binding and a single use."""
    nodes = _name_nodes(scope)
    found: dict[str, ast.expr] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List() | ast.Tuple() as value):
                if sorted(type(each.ctx).__name__ for each in nodes[name]) == ["Load", "Store"]:
                    found[name] = value
    return found


def _name_nodes(scope: ast.AST) -> dict[str, list[ast.Name]]:
    found: dict[str, list[ast.Name]] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Name):
            found.setdefault(node.id, []).append(node)
    return found


def _made(
    found: Iterable[tuple[ast.Module, ast.expr, Tolerance, bool]], suite: Suite
) -> Iterator[Expectation]:
    """Yield the expectations, without two for the same place."""
    places: set[tuple[str, int]] = set()
    modules = {id(module.tree): module for module in suite.modules}
    positions = {module.part: Positions.of(module.text) for module in suite.modules}
    owners = {id(node): module for module in suite.modules for node in _returned(module)}
    for tree, node, tolerance, only_far in found:
        module = owners.get(id(node), modules[id(tree)])
        literal = literal_of(node, positions[module.part])
        if literal is not None and (module.part, literal.begin) not in places:
            places.add((module.part, literal.begin))
            scaled = Tolerance(tolerance.relative, tolerance.absolute * literal.divisor)
            yield Expectation(module.part, literal, scaled, only_far)


def _returned(module: Module) -> Iterator[ast.expr]:
    """Yield the first values returned by functions at the top level."""
    for node in module.tree.body:
        match node:
            case ast.FunctionDef(body=[ast.Return(value=ast.expr() as value)]):
                yield value
