"""Rewriting of test code for the test sandbox, where handles stand for the submission's objects.

The allowed operations on a handle depend on the expression in the test, so the rewriter marks these
expressions. The test sandbox gives test code one object, `__proctor__`:

    own(x)                   x holds an object made by the tests: methods that data has are allowed
    make(f, ...)             call of a class: the result stays an object, for any base class
    compare(op, hold(), a, b)   comparison or sum: `b` sees the arguments of `a` as before the call
    apply(g, copies, hold(), a, b)   the same for arguments of assertEqual, `zip`, `math.isclose`
    formatted(x, "r", spec)  a part of a format string with a mark inside
    name("f")                the submission's `f` in the body of a class, which bypasses the globals
    expecting("SystemExit")  only inside this block may the submission raise the exception

The submission may change a container argument. In `f(xs) == sorted(xs)` the right operand must see
`xs` as before the call; otherwise a submission that empties its argument passes with an empty list.
The rewriter marks such expressions as exposed.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from proctor_service.judge.analysis.literals import NotConstant, Weights, evaluate
from proctor_service.judge.analysis.suite import Suite, arguments_of
from proctor_service.judge.analysis.values import DATA_ATTRIBUTES, Objects

_CONTROL = frozenset(
    (
        *("SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "SkipTest"),
        *("StopIteration", "StopAsyncIteration", "Skipped", "Failed", "Exit", "XFailed"),
    )
)
_RAISES = frozenset(["assertRaises", "assertRaisesRegex", "raises"])
# Functions of Python and its library that read nothing inside an object, or keep the object: a mark
# makes another view, which `is` tells apart.
_TAKES_AS_IT_IS = frozenset(
    (
        *("isinstance", "type", "id", "print", "str", "repr", "format", "float", "int", "callable"),
        *("setattr", "partial", "repeat", "is_", "is_not", "closing", "nullcontext"),
        *("SimpleNamespace", "Mock", "MagicMock", "AsyncMock", "NonCallableMock", "call", "cast"),
        *("create_autospec", "fromkeys", "append", "insert", "setdefault", "__setitem__"),
    )
)
_IDENTITY = frozenset(["assertIs", "assertIsNot"])
_ASKED = ("value", "values", "iter", "ifs", "test", "operand")
"""Fields of nodes whose items or truth Python reads."""


class NotRewritable(Exception):
    """The rewritten test code cannot be converted to text."""


def rewrite(suite: Suite, objects: Objects) -> tuple[tuple[str, ...], bool]:
    """Return the setup and the tests as source text with all marks.

    The second value is true if a test asks an object of the submission for its length, items or
    truth: the submission controls the answer. Changes the suite's trees, so call this function
    last. Raises NotRewritable.
    """
    # Fill the cache of `objects` first: rewriting changes bindings, as in `for c in [C(1)]`.
    for nodes in suite.nodes:
        for node in nodes:
            if isinstance(node, ast.expr):
                objects.is_own(node)
    exposed = _exposed(suite, objects)
    texts = []
    asks = False
    for tree, text in zip(suite.trees, suite.texts, strict=True):
        rewriter = _Rewriter(objects, exposed)
        rewriter.visit(tree)
        asks |= rewriter.asks_objects
        if not rewriter.changed:
            texts.append(text)
            continue
        try:
            texts.append(ast.unparse(ast.fix_missing_locations(tree)))
        except (ValueError, RecursionError) as error:
            raise NotRewritable(str(error)) from None
    return tuple(texts), asks


def calls_carry_literals(suite: Suite, objects: Objects) -> bool:
    """Tell whether the tests pass only constants to the submission.

    If so, exceptions and output of the submission can reveal only these constants.
    """
    weights = Weights(sum(map(len, suite.texts)))
    for nodes in suite.nodes:
        for node in nodes:
            if isinstance(node, ast.Call) and _hands_over(node.func, objects):
                if not all(_is_constant(each, weights) for each in arguments_of(node)):
                    return False
            elif isinstance(node, ast.Attribute | ast.Subscript) and _may_tell(node):
                return False
    return True


def _hands_over(func: ast.expr, objects: Objects) -> bool:
    """Tell whether a call may pass its arguments directly to the submission."""
    if objects.is_own_function(func):  # the calls in its body are checked separately
        return False
    if isinstance(func, ast.Attribute) and func.attr.startswith("assert"):
        return False
    return _may_reach(func, objects)


def _may_tell(node: ast.Attribute | ast.Subscript) -> bool:
    """Tell whether a node sets an item, or sets an attribute of other objects than `self`."""
    if isinstance(node, ast.Subscript):
        return not isinstance(node.ctx, ast.Load)
    own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    return not (isinstance(node.ctx, ast.Load) or own)


def _is_constant(node: ast.expr, weights: Weights) -> bool:
    try:
        evaluate(node, {}, weights=weights)
    except NotConstant:
        return False
    return True


def _helper(name: str, *arguments: ast.expr) -> ast.Call:
    target = ast.Attribute(ast.Name("__proctor__", ast.Load()), name, ast.Load())
    return ast.Call(target, list(arguments), [])


class _Marker(ast.NodeTransformer):
    """Transformer that adds marks to test code; `changed` is true after the first mark."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.changed = False

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Write a format string with a mark inside as calls.

        Pythons before 3.12 cannot convert such a string to text: its quotes would be nested. Other
        format strings stay as they are.
        """
        before, self.changed = self.changed, False
        self.generic_visit(node)
        marked = self.changed
        self.changed |= before
        if not marked:
            return node
        parts = [_formatted(part) for part in node.values]
        join = ast.Attribute(ast.Constant(""), "join", ast.Load())
        return ast.Call(join, [ast.List(parts, ast.Load())], [])


def _formatted(part: ast.expr) -> ast.expr:
    """Return the text of one part, computed before the next part, as in a format string."""
    if not isinstance(part, ast.FormattedValue):
        return part
    conversion = "" if part.conversion < 0 else chr(part.conversion)
    spec = part.format_spec or ast.Constant("")
    return _helper("formatted", part.value, ast.Constant(conversion), spec)


class _Rewriter(_Marker):
    def __init__(self, objects: Objects, exposed: set[int]) -> None:
        super().__init__(objects)
        self._exposed = exposed
        self.asks_objects = False

    def _own(self, node: ast.expr, own: bool) -> ast.expr:
        self.changed |= own
        self.asks_objects |= own
        return _helper("own", node) if own else node

    def _is_own(self, node: ast.expr) -> bool:
        return self._objects.is_own(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        own = node.attr in DATA_ATTRIBUTES and (
            self._is_own(node.value) or self._objects.is_class(node.value)
        )
        self.generic_visit(node)
        node.value = self._own(node.value, own)
        return node

    def _visit_query(self, node: Any) -> Any:
        """Visit a node that reads the items or the truth of some fields."""
        parts = {name: getattr(node, name) for name in _ASKED if hasattr(node, name)}
        own = {
            name: [self._is_own(each) for each in (part if isinstance(part, list) else [part])]
            for name, part in parts.items()
        }
        self.generic_visit(node)
        for name, marks in own.items():
            part = getattr(node, name)
            if isinstance(part, list):
                part[:] = [self._own(*each) for each in zip(part, marks, strict=True)]
            else:
                setattr(node, name, self._own(part, marks[0]))
        return node

    visit_Subscript = visit_Starred = visit_BoolOp = _visit_query
    visit_For = visit_AsyncFor = visit_comprehension = _visit_query
    visit_Assert = visit_If = visit_While = visit_IfExp = _visit_query

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        unpacks = isinstance(node.targets[0], ast.Tuple | ast.List)
        return self._visit_query(node) if unpacks else self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        negates = isinstance(node.op, ast.Not)
        return self._visit_query(node) if negates else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        makes = self._objects.is_class(node.func)
        takes = self._takes_own(node.func)
        own = [
            takes and not isinstance(each, ast.Starred) and self._is_own(each) for each in node.args
        ]
        expected = _names_of_control(node.args[0]) if self._is_raises(node) else []
        held = self._is_exposed_call(node)
        copies = held and _takes_copies(node.func, self._objects)
        self.generic_visit(node)
        node.args = [self._own(*each) for each in zip(node.args, own, strict=True)]
        if expected and len(node.args) > 1:
            self.changed = True
            names = ast.Tuple([ast.Constant(name) for name in expected], ast.Load())
            node.args[1] = _helper("expecting_call", names, node.args[1])
        if makes:
            self.changed = True
            made = _helper("make", node.func, *node.args)
            made.keywords = node.keywords
            return made
        if held:
            self.changed = True
            applied = _helper("apply", node.func, ast.Constant(copies), _helper("hold"), *node.args)
            applied.keywords = node.keywords
            return applied
        return node

    def _takes_own(self, func: ast.expr) -> bool:
        """Tell whether a call may read inside its arguments: any code but the submission's may."""
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if name.startswith("assert"):
            return name in ("assertTrue", "assertFalse")
        if name in _TAKES_AS_IT_IS or _is_of_super(func):
            return False
        return not _may_reach(func, self._objects)

    def _is_raises(self, node: ast.Call) -> bool:
        func = node.func
        return isinstance(func, ast.Attribute) and func.attr in _RAISES and bool(node.args)

    def _is_exposed_call(self, node: ast.Call) -> bool:
        """Tell whether an argument passes the submission a variable that another argument reads."""
        func, objects = node.func, self._objects
        if not (_takes_copies(func, objects) or objects.is_own_function(func)):
            return False
        return id(node) in self._exposed

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        identity = any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        held = not identity and id(node) in self._exposed
        self.generic_visit(node)
        if not held:
            return node
        self.changed = True
        names: list[ast.expr] = [ast.Constant(type(op).__name__) for op in node.ops]
        name = names[0] if len(names) == 1 else ast.Tuple(names, ast.Load())
        return _helper("compare", name, _helper("hold"), node.left, *node.comparators)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        held = id(node) in self._exposed
        self.generic_visit(node)
        if not held:
            return node
        self.changed = True
        return _helper(
            "compare", ast.Constant(type(node.op).__name__), _helper("hold"), node.left, node.right
        )

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Mark the submission's names: the body of a class asks only the real items of globals."""
        self.generic_visit(node)
        names = _NamesInClass(self._objects)
        node.body = [names.visit(each) for each in node.body]
        self.changed |= names.changed
        return node

    def _expecting(self, node: Any, names: list[str]) -> Any:
        """Visit a statement, and mark its body as expecting control-flow exceptions."""
        self.generic_visit(node)
        if names:
            self.changed = True
            expecting = _helper("expecting", *(ast.Constant(name) for name in names))
            node.body = [ast.With([ast.withitem(expecting, None)], node.body)]
        return node

    def _visit_try(self, node: Any) -> Any:
        names = [
            name
            for handler in node.handlers
            if handler.type is not None
            for name in _names_of_control(handler.type)
        ]
        return self._expecting(node, names)

    visit_Try = visit_TryStar = _visit_try

    def _visit_with(self, node: Any) -> Any:
        names = [
            name
            for item in node.items
            if isinstance(item.context_expr, ast.Call) and self._is_raises(item.context_expr)
            for name in _names_of_control(item.context_expr.args[0])
        ]
        return self._expecting(node, names)

    visit_With = visit_AsyncWith = _visit_with


class _NamesInClass(_Marker):
    """Marks the names in a class's body, but not in the bodies of functions and classes in it."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not (isinstance(node.ctx, ast.Load) and self._objects.is_global(node)):
            return node
        self.changed = True
        return _helper("name", ast.Constant(node.id))

    def visit_FunctionDef(self, node: ast.AST) -> ast.AST:
        return self._visit_fields(node, "decorator_list", "args", "returns")

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._visit_fields(node, "args")

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._visit_fields(node, "decorator_list", "bases", "keywords")

    def _visit_comprehension(self, node: Any) -> Any:
        """Visit the first iterable: the rest is a function of its own."""
        self._visit_fields(node.generators[0], "iter")
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def _visit_fields(self, node: ast.AST, *names: str) -> ast.AST:
        for name in names:
            part = getattr(node, name)
            found = [self.visit(each) for each in part] if isinstance(part, list) else None
            setattr(node, name, part and (found or self.visit(part)))
        return node


def _is_of_super(func: ast.expr) -> bool:
    """Tell whether a call is of `super().method`: a class of the tests may keep its arguments."""
    match func:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
            return True
    return False


def _names_of_control(node: ast.expr) -> list[str]:
    """Return the control-flow exceptions named by an `except` or `raises`."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    found = []
    for part in parts:
        name = part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")
        if name in _CONTROL:
            found.append(name)
    return found


# ---------------------------------------------------------------- exposed variables


def _may_reach(func: ast.expr, objects: Objects) -> bool:
    """Tell whether a call may run code of the submission: only built-ins and imports may not."""
    root = func
    while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
        root = root.func if isinstance(root, ast.Call) else root.value
    if isinstance(root, ast.Name):
        return not (objects.is_builtin(root) or objects.is_imported(root))
    return not isinstance(root, ast.Constant | ast.JoinedStr)


def _takes_copies(func: ast.expr, objects: Objects) -> bool:
    """Tell whether a call compares values: a built-in, a library function, or an assertion."""
    if isinstance(func, ast.Attribute) and func.attr.startswith("assert"):
        return func.attr not in _IDENTITY
    return not _may_reach(func, objects)


@dataclass(slots=True)
class _Variables:
    """Variables that an expression reads, and those that it passes to the submission.

    `given` are read and passed, `read` are read and perhaps passed, `earlier` were passed before,
    as `xs` in `c = C(xs); c.run()`, by the id of each set.
    """

    read: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)
    earlier: dict[int, frozenset[str]] = field(default_factory=dict)

    def passes_to(self, other: _Variables) -> bool:
        """Tell whether this expression passes a variable that the other one reads."""
        return any(
            not given.isdisjoint(read)
            for given in (self.given, *self.earlier.values())
            for read in (other.read, other.given)
        )

    def add(self, other: _Variables) -> None:
        """Add those of another expression, which loses its own."""
        self.read = _union(self.read, other.read)
        self.given = _union(self.given, other.given)
        if len(self.earlier) < len(other.earlier):
            self.earlier, other.earlier = other.earlier, self.earlier
        self.earlier.update(other.earlier)

    def give(self) -> None:
        """Pass all that is read to the submission."""
        self.given = _union(self.given, self.read)
        self.read = set()


def _union(one: set[str], other: set[str]) -> set[str]:
    """Return the union, in the larger of the two sets."""
    if len(one) < len(other):
        one, other = other, one
    one |= other
    return one


def _exposed(suite: Suite, objects: Objects) -> set[int]:
    """Return the ids of comparisons, sums and calls with an exposed variable.

    There, a part passes the submission a variable that another part reads.
    """
    exposed: set[int] = set()
    earlier: dict[int, frozenset[str]] = {}
    for nodes in suite.nodes:
        variables: dict[int, _Variables] = {}
        for node in reversed(nodes):  # from the inside out
            func = variables.pop(id(node.func), None) if isinstance(node, ast.Call) else None
            parts = [variables.pop(id(each), None) for each in ast.iter_child_nodes(node)]
            if isinstance(node, ast.stmt | ast.mod):
                continue  # no expression holds a statement
            own = _Variables()
            for part in filter(None, parts):
                if part.passes_to(own) or own.passes_to(part):
                    exposed.add(id(node))
                own.add(part)
            if isinstance(node, ast.Call):
                if _may_reach(node.func, objects):
                    own.give()
                    own.earlier.update(_given_before(node.func, objects, earlier))
                if func is not None:
                    own.add(func)
            elif isinstance(node, ast.Name):
                own.read.add(node.id)
            if own.read or own.given or own.earlier:
                variables[id(node)] = own
    return exposed


def _given_before(
    func: ast.expr, objects: Objects, known: dict[int, frozenset[str]]
) -> dict[int, frozenset[str]]:
    """Return the variables used to make a method's object, as `xs` in `c = C(xs); c.run()`."""
    found: dict[int, frozenset[str]] = {}
    while isinstance(func, ast.Attribute | ast.Subscript):
        func = func.value
        if isinstance(func, ast.Call):  # its arguments stand in the expression
            break
        sources = objects.sources_of(func)
        if sources and id(sources) not in known:
            known[id(sources)] = frozenset(
                name
                for source in sources
                if isinstance(source, ast.Call) and _may_reach(source.func, objects)
                for each in arguments_of(source)
                for name in _names_in(each)
            )
        if sources:
            found[id(sources)] = known[id(sources)]
    return found


def _names_in(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
