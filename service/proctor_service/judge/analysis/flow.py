"""Where what the submission answers may go in test code, found from the text alone.

Each name, each attribute and each expression is a node of a graph, and marks flow along its edges. A name
is one node in the whole suite, whatever its scope, and so is an attribute, whatever its object: a name may
get a mark too many, and the suite is then judged beside the submission. The time is linear in the text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from proctor_service.judge.analysis import data_attributes
from proctor_service.judge.analysis.names import entry_name, looks_like_class
from proctor_service.judge.analysis.suite import Suite, arguments_of

ANSWER, FUNCTION, OBJECT, ERROR, MADE = 1, 2, 4, 8, 16
"""Marks: an answer or a part of one; a function of the submission; an object of the tests that is no data;
an exception that tests have caught; the answer to a call without arguments, as one that makes an object."""
_HELD = ANSWER | OBJECT | ERROR | MADE
_ALL = _HELD | FUNCTION

_words = str.split
Key = str | int
"""A name, an attribute as `.x`, the result of a function as `f()`, or the id of an expression."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
RAISES = frozenset(["raises", "assertRaises", "assertRaisesRegex"])
PLAIN_RESULTS = frozenset(
    _words(
        "abs all any ascii bin bool bytes callable chr complex divmod float format hash hex int isinstance"
        " len oct ord pow print range repr round str type"
    )
)
"""Built-in functions whose results are numbers, texts or types, whatever they are given."""
_OBJECTS = frozenset(
    _words(
        "BytesIO Event Lock Mock MagicMock Queue Random SimpleNamespace StringIO Template UserDict UserList"
        " UserString compile fromstring gmtime localtime object struct_time"
    )
)
"""Functions of libraries that make an object which is no data."""
_RECORD_MAKERS = frozenset(["namedtuple", "make_dataclass", "NamedTuple"])
_PARTS = (
    *(
        ast.BinOp,
        ast.UnaryOp,
        ast.BoolOp,
        ast.IfExp,
        ast.Subscript,
        ast.Starred,
        ast.Await,
        ast.NamedExpr,
    ),
    *(
        ast.List,
        ast.Tuple,
        ast.Set,
        ast.Dict,
        ast.ListComp,
        ast.SetComp,
        ast.DictComp,
        ast.GeneratorExp,
    ),
    *(ast.YieldFrom, ast.Yield),
)
"""Expressions that may hold what their parts hold."""


class Flow:
    """The marks of all names and expressions of a suite.

    `records`: the classes of the tests whose objects are data. `fresh`: the submission's classes of which
    an object is made for one method, as in `Solution().f`.
    """

    def __init__(self, suite: Suite, submission: frozenset[str], records: frozenset[str]) -> None:
        self.submission = submission
        self._records = records
        entry = suite.entry_point or ""
        self.fresh = {entry_name(entry)} if "()." in entry else set()
        self.parent: dict[int, ast.AST] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, list[Function]] = {}
        self._edges: dict[Key, list[tuple[int, int, Key]]] = {}
        self._marks: dict[Key, int] = {}
        self._todo: list[tuple[Key, int]] = []
        for node in self._nodes(suite):
            for child in ast.iter_child_nodes(node):
                self.parent[id(child)] = node
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, _FUNCTIONS):
                self.functions.setdefault(node.name, []).append(node)
                self._define(node.name, node.args)
            elif isinstance(node, ast.Lambda):
                self._define(str(id(node)), node.args)
        for node in self._nodes(suite):
            self._visit(node)
        for name in submission:
            self._mark(name, FUNCTION)
        for name in self.classes.keys() - records:
            self._mark(name, OBJECT)
        for test in suite.tests:
            for step in test.run:
                for function in self.functions.get(step[1], ()) if step[0] == "check" else ():
                    for parameter in parameters_of(function.args)[:1]:
                        self._mark(parameter, FUNCTION)
        self._spread()

    def of(self, node: ast.AST) -> int:
        """Return the marks of an expression."""
        return self._marks.get(id(node), 0)

    def is_submission(self, node: ast.AST) -> bool:
        """Tell whether an expression is a name of the submission."""
        return isinstance(node, ast.Name) and node.id in self.submission

    def makes_fresh(self, node: ast.AST) -> bool:
        """Tell whether an expression is a method of a new object: `Solution().f`."""
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Call):
            return False
        made, around = node.value, self.parent.get(id(node))
        called = isinstance(around, ast.Call) and (
            around.func is node or last_name(around.func) in self.functions
        )
        is_class = isinstance(made.func, ast.Name) and looks_like_class(made.func.id)
        return (
            called
            and is_class
            and self.is_submission(made.func)
            and (node.attr not in data_attributes.METHODS or not arguments_of(made))
        )

    @staticmethod
    def _nodes(suite: Suite) -> Iterator[ast.AST]:
        return (node for nodes in suite.nodes for node in nodes)

    # ------------------------------------------------------------ the graph

    def _mark(self, key: Key, marks: int) -> None:
        new = marks & ~self._marks.get(key, 0)
        if new:
            self._marks[key] = self._marks.get(key, 0) | new
            self._todo.append((key, new))

    def _edge(self, source: Key, target: Key, mask: int = _ALL, gives: int = 0) -> None:
        """Let the marks of a mask flow; with `gives`, these flow in their place."""
        self._edges.setdefault(source, []).append((mask, gives, target))

    def _spread(self) -> None:
        while self._todo:
            key, marks = self._todo.pop()
            for mask, gives, target in self._edges.get(key, ()):
                if marks & mask:
                    self._mark(target, gives or marks & mask)

    # ------------------------------------------------------------ syntax

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            self._edge(node.id, id(node))
        elif isinstance(node, ast.Call):
            self._visit_call(node)
        elif isinstance(node, ast.Attribute):
            self._visit_attribute(node)
        elif isinstance(node, _PARTS):
            for child in ast.iter_child_nodes(node):
                self._edge(id(child), id(node))
            if isinstance(node, ast.NamedExpr):
                self._bind(node.target, id(node.value))
            elif isinstance(node, ast.Yield | ast.YieldFrom):
                self._return(node, node.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, id(node.value))
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
            self._bind(node.target, id(node.value))
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._bind(node.target, id(node.iter))
        elif isinstance(node, ast.Return):
            self._return(node, node.value)
        else:
            self._visit_rare(node)

    def _visit_rare(self, node: ast.AST) -> None:
        if isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bind(node.optional_vars, id(node.context_expr))
            if (
                isinstance(node.context_expr, ast.Call)
                and last_name(node.context_expr.func) in RAISES
            ):
                self._mark(id(node.context_expr), ERROR)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self._mark(node.name, ERROR)
        elif isinstance(node, ast.alias) and node.asname and node.name in _OBJECTS:
            self._mark(node.asname, OBJECT)
        elif isinstance(node, ast.arguments):
            names = parameters_of(node)
            for name, default in zip(names[::-1], node.defaults[::-1], strict=False):
                self._edge(id(default), name)
        elif isinstance(node, ast.Match):
            for each in ast.walk(node):
                if isinstance(each, ast.MatchAs | ast.MatchStar) and each.name:
                    self._edge(id(node.subject), each.name)

    def _visit_attribute(self, node: ast.Attribute) -> None:
        if self.makes_fresh(node):
            assert isinstance(node.value, ast.Call)
            assert isinstance(node.value.func, ast.Name)
            self.fresh.add(node.value.func.id)
            self._mark(id(node), FUNCTION)
            return
        owner = self.classes.get(node.value.id) if isinstance(node.value, ast.Name) else None
        is_member = owner is not None and any(
            last_name(base).endswith(("Enum", "Flag")) for base in owner.bases
        )
        self._edge(id(node.value), id(node), _HELD if is_member else _HELD & ~OBJECT)
        self._edge(f".{node.attr}", id(node))

    def _visit_call(self, node: ast.Call) -> None:
        func, arguments = node.func, arguments_of(node)
        self._edge(id(func), id(node), FUNCTION, ANSWER if arguments else ANSWER | MADE)
        made = _HELD & ~OBJECT if isinstance(func, ast.Attribute) else _HELD
        self._edge(id(func), id(node), made)
        name = last_name(func)
        if isinstance(func, ast.Lambda):
            self._edge(id(func.body), id(node))
            self._pass(str(id(func)), node)
        if name in self.functions:
            self._edge(f"{name}()", id(node))
            self._pass(name, node)
        if name in self.classes:
            self._pass("__init__", node)
        elif name in _OBJECTS or (name in _RECORD_MAKERS and not self._is_record(node)):
            self._mark(id(node), OBJECT)
        elif not (isinstance(func, ast.Name) and name in PLAIN_RESULTS):
            # What the submission answers is no function of its own, whatever it was given.
            kept = _HELD if self.is_submission(func) else _ALL
            for each in arguments:
                self._edge(id(each), id(node), kept)
        self._visit_callbacks(func, arguments)

    def _is_record(self, made: ast.Call) -> bool:
        """Tell whether a call makes a class whose objects are data: `P = namedtuple("P", "x y")`."""
        around = self.parent.get(id(made))
        targets = around.targets if isinstance(around, ast.Assign) else []
        return any(isinstance(each, ast.Name) and each.id in self._records for each in targets)

    def _visit_callbacks(self, func: ast.expr, arguments: list[ast.expr]) -> None:
        """Let what a call is given, or asks, flow to the parameters of functions that it is given."""
        callbacks = [each for argument in arguments for each in self._callbacks(argument)]
        if not callbacks:
            return
        given = f"*{id(func)}"
        self._edge(id(func), given, FUNCTION, ANSWER)
        for argument in arguments:
            self._edge(id(argument), given)
        for name in callbacks:
            self._edge(given, f"{name}(*)")

    def _define(self, name: str, arguments: ast.arguments) -> None:
        """Let what a function is given flow to its parameters: `f(0)` stands for the first argument."""
        every = parameters_of(arguments)
        positional = len(arguments.posonlyargs) + len(arguments.args)
        for place, parameter in enumerate(every):
            self._edge(f"{name}(*)", parameter)
            self._edge(f"{name}({place})" if place < positional else f"{name}(…)", parameter)

    def _pass(self, name: str, call: ast.Call) -> None:
        """Let arguments flow to a function; of a method, the first parameter may be its object."""
        for place, argument in enumerate(call.args):
            for target in (f"{name}({place})", f"{name}({place + 1})", f"{name}(…)"):
                self._edge(id(argument), target)
        for keyword in call.keywords:
            self._edge(id(keyword.value), keyword.arg or f"{name}(*)")

    def _callbacks(self, argument: ast.expr) -> Iterator[str]:
        if isinstance(argument, ast.Lambda):
            yield str(id(argument))
        elif isinstance(argument, ast.Name) and argument.id in self.functions:
            yield argument.id

    def _return(self, node: ast.AST, value: ast.expr | None) -> None:
        around = self.parent.get(id(node))
        while around is not None and not isinstance(around, _FUNCTIONS):
            around = self.parent.get(id(around))
        if around is not None and value is not None:
            self._edge(id(value), f"{around.name}()")

    def _bind(self, target: ast.expr, source: Key) -> None:
        if isinstance(target, ast.Name):
            self._edge(source, target.id)
        elif isinstance(target, ast.Attribute):
            self._edge(source, f".{target.attr}")
        elif isinstance(target, ast.Subscript | ast.Starred):
            self._bind(target.value, source)
        elif isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._bind(each, source)


def last_name(node: ast.expr) -> str:
    """Return `f` for `f` and for `x.f`, else ""."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def parameters_of(arguments: ast.arguments) -> list[str]:
    """Return the names of all parameters, those by position first."""
    every = [*arguments.posonlyargs, *arguments.args]
    if arguments.vararg is not None:
        every.append(arguments.vararg)
    every += arguments.kwonlyargs
    if arguments.kwarg is not None:
        every.append(arguments.kwarg)
    return [each.arg for each in every]


def records_of(setup: ast.Module) -> frozenset[str]:
    """Return the named tuples, and dataclasses without methods, that a setup defines."""
    found = {
        each.name for each in setup.body if isinstance(each, ast.ClassDef) and _is_record(each)
    }
    for each in setup.body:
        made = each.value if isinstance(each, ast.Assign) else None
        if isinstance(made, ast.Call) and last_name(made.func) in _RECORD_MAKERS:
            found |= {target.id for target in each.targets if isinstance(target, ast.Name)}  # type: ignore[attr-defined]
    return frozenset(found)


def _is_record(node: ast.ClassDef) -> bool:
    names = {
        last_name(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list
    }
    bases = [last_name(each) for each in node.bases]
    is_plain = all(
        isinstance(each, ast.AnnAssign | ast.Pass)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in node.body
    )
    return is_plain and (
        (names == {"dataclass"} and not bases) or (not names and bases == ["NamedTuple"])
    )
