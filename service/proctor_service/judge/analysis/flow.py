"""Flow of the submission's answers through test code, found from the text alone.

Each name, each attribute and each expression is a node of a graph, and marks flow along its edges. A name
is a single node in the whole suite, in any scope, and so is an attribute, of any object: a name may get a
mark too many, and the suite is then judged beside the submission. The time is linear in the text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from proctor_service.judge.analysis.names import entry_name, looks_like_class
from proctor_service.judge.analysis.suite import Suite, arguments_of, children_of

ANSWER, FUNCTION, OBJECT, ERROR, MADE = 1, 2, 4, 8, 16
"""Marks: an answer or a part of an answer; a function of the submission; an object of the tests other
than data; an exception caught by tests; the answer to a call without arguments, as from a call to
make an object."""
_HELD = ANSWER | OBJECT | ERROR | MADE
_ALL = _HELD | FUNCTION

_words = str.split
Key = str | int
"""A name, an attribute as `.x`, the result of a function as `f()`, or the id of another expression."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = frozenset([*_FUNCTIONS, ast.ClassDef, ast.Lambda])
RAISES = frozenset(["raises", "assertRaises", "assertRaisesRegex"])
PLAIN_RESULTS = frozenset(
    _words(
        "abs all any ascii bin bool bytes callable chr complex divmod float format hash hex int isinstance"
        " len oct ord pow print range repr round str type"
    )
)
"""Built-in functions with numbers, texts or types as results, for any arguments."""
_OBJECTS = frozenset(
    _words(
        "BytesIO Event Lock Mock MagicMock Queue Random SimpleNamespace StringIO Template UserDict UserList"
        " UserString compile fromstring gmtime localtime object struct_time"
    )
)
"""Functions of libraries for objects other than data."""
_RECORD_MAKERS = frozenset(["namedtuple", "make_dataclass", "NamedTuple"])
_PARTS = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Subscript, ast.Starred, ast.Await),
    *(ast.List, ast.Tuple, ast.Set, ast.Dict),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
"""Expressions with the marks of their parts."""
_PLAIN = frozenset([ast.Constant, ast.Compare, ast.JoinedStr, type(None)])
"""Expressions without marks. Most of a long text is constants."""


class Flow:
    """The marks of all names and expressions of a suite.

    `records`: the tests' classes of data. `fresh`: the submission's classes with objects made for a
    single method, as in `Solution().f`.
    """

    def __init__(self, suite: Suite, submission: frozenset[str], records: frozenset[str]) -> None:
        self.submission = submission
        self._records = records
        entry = suite.entry_point or ""
        self.fresh = {entry_name(entry)} if "()." in entry else set()
        self.parent = suite.parents
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, list[Function]] = {}
        self._fresh_methods: set[int] = set()
        self._edges: dict[Key, list[tuple[int, int, Key]]] = {}
        self._marks: dict[Key, int] = {}
        for nodes in suite.nodes:
            for node in nodes:
                if type(node) in _SCOPES:
                    self._note(node)
        for name in submission:
            self._mark(name, FUNCTION)
        for name in self.classes.keys() - records:
            self._mark(name, OBJECT)
        for test in suite.tests:
            for step in test.run:
                for function in self.functions.get(step[1], ()) if step[0] == "check" else ():
                    for parameter in parameters_of(function.args)[:1]:
                        self._mark(parameter, FUNCTION)
        visits = self._visits()
        for nodes in suite.nodes:
            for node in nodes:
                visit = visits.get(type(node))
                if visit is not None:
                    visit(node)
        self._spread()

    def of(self, node: ast.AST) -> int:
        """Return the marks of an expression."""
        return self._marks.get(_key(node), 0)

    def is_submission(self, node: ast.AST) -> bool:
        """Tell whether an expression is a name of the submission."""
        return isinstance(node, ast.Name) and node.id in self.submission

    def makes_fresh(self, node: ast.AST) -> bool:
        """Tell whether an expression is a method of a new object: `Solution().f`."""
        return id(node) in self._fresh_methods

    # ------------------------------------------------------------ the graph

    def _mark(self, key: Key, marks: int) -> None:
        self._marks[key] = self._marks.get(key, 0) | marks

    def _edge(self, source: ast.AST | None, target: Key, mask: int = _ALL, answer: int = 0) -> None:
        """Let the marks of a mask flow; of a function of the submission also its answer's."""
        if type(source) not in _PLAIN:
            self._join(_key(source), target, mask, answer)

    def _join(self, source: Key, target: Key, mask: int = _ALL, answer: int = 0) -> None:
        edges = self._edges.get(source)
        if edges is None:
            self._edges[source] = [(mask, answer, target)]
        else:
            edges.append((mask, answer, target))

    def _spread(self) -> None:
        todo, edges, marks_by_key = [*self._marks.items()], self._edges, self._marks
        while todo:
            key, marks = todo.pop()
            for mask, answer, target in edges.get(key, ()):
                had = marks_by_key.get(target, 0)
                new = (marks & mask | (answer if marks & FUNCTION else 0)) & ~had
                if new:
                    marks_by_key[target] = had | new
                    if target in edges:
                        todo.append((target, new))

    # ------------------------------------------------------------ syntax

    def _note(self, node: Any) -> None:
        if isinstance(node, ast.ClassDef):
            self.classes[node.name] = node
        elif isinstance(node, ast.Lambda):
            self._define(str(id(node)), node.args)
        else:
            self.functions.setdefault(node.name, []).append(node)
            self._define(node.name, node.args)

    def _visits(self) -> dict[type[ast.AST], Callable[[Any], None]]:
        """Return the rule of each kind of node; a node comes before its parts."""
        return {
            **dict.fromkeys(_PARTS, self._visit_parts),
            ast.NamedExpr: self._visit_named,
            **dict.fromkeys((ast.Yield, ast.YieldFrom), self._visit_yield),
            ast.Call: self._visit_call,
            ast.Attribute: self._visit_attribute,
            ast.Assign: self._visit_assignment,
            **dict.fromkeys((ast.AnnAssign, ast.AugAssign), self._visit_other_assignment),
            **dict.fromkeys((ast.For, ast.AsyncFor, ast.comprehension), self._visit_loop),
            ast.Return: self._return,
            ast.withitem: self._visit_with,
            ast.ExceptHandler: self._visit_handler,
            ast.arguments: self._visit_parameters,
            ast.Match: self._visit_match,
            ast.alias: self._visit_alias,
        }

    def _visit_parts(self, node: Any) -> None:
        target = id(node)
        for child in children_of(node):
            if type(child) not in _PLAIN:
                self._join(_key(child), target)

    def _visit_named(self, node: ast.NamedExpr) -> None:
        self._visit_parts(node)
        self._bind(node.target, node.value)

    def _visit_yield(self, node: ast.Yield | ast.YieldFrom) -> None:
        self._visit_parts(node)
        self._return(node)

    def _visit_assignment(self, node: ast.Assign) -> None:
        if type(node.value) not in _PLAIN:
            for target in node.targets:
                self._bind(target, node.value)

    def _visit_other_assignment(self, node: ast.AnnAssign | ast.AugAssign) -> None:
        if node.value is not None:
            self._bind(node.target, node.value)

    def _visit_loop(self, node: ast.For | ast.AsyncFor | ast.comprehension) -> None:
        self._bind(node.target, node.iter)

    def _visit_with(self, node: ast.withitem) -> None:
        made = node.context_expr
        if node.optional_vars is not None:
            self._bind(node.optional_vars, made)
            if isinstance(made, ast.Call) and last_name(made.func) in RAISES:
                self._mark(id(made), ERROR)

    def _visit_handler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._mark(node.name, ERROR)

    def _visit_parameters(self, node: ast.arguments) -> None:
        for name, default in zip(parameters_of(node)[::-1], node.defaults[::-1], strict=False):
            self._edge(default, name)

    def _visit_match(self, node: ast.Match) -> None:
        for each in ast.walk(node):
            if isinstance(each, ast.MatchAs | ast.MatchStar) and each.name:
                self._edge(node.subject, each.name)

    def _visit_alias(self, node: ast.alias) -> None:
        if node.asname and node.name in _OBJECTS:
            self._mark(node.asname, OBJECT)

    def _visit_attribute(self, node: ast.Attribute) -> None:
        if id(node) in self._fresh_methods:
            self._mark(id(node), FUNCTION)
            return
        owner = self.classes.get(node.value.id) if isinstance(node.value, ast.Name) else None
        is_member = owner is not None and any(
            last_name(base).endswith(("Enum", "Flag")) for base in owner.bases
        )
        self._edge(node.value, id(node), _HELD if is_member else _HELD & ~OBJECT)
        self._join(f".{node.attr}", id(node))

    def _visit_call(self, node: ast.Call) -> None:
        func, arguments, key = node.func, arguments_of(node), id(node)
        name = last_name(func)
        is_method = type(func) is ast.Attribute
        if is_method:
            self._find_fresh(func)
        answer = ANSWER if arguments else ANSWER | MADE
        self._edge(func, key, _HELD & ~OBJECT if is_method else _HELD, answer)
        if isinstance(func, ast.Lambda):
            self._edge(func.body, key)
            self._pass(str(id(func)), node)
        if name in self.functions:
            self._join(f"{name}()", key)
            self._pass(name, node)
            for each in node.args:
                self._find_fresh(each)
        if name in self.classes:
            self._pass("__init__", node)
        elif name in _OBJECTS or (name in _RECORD_MAKERS and not self._is_record(node)):
            self._mark(key, OBJECT)
        elif is_method or name not in PLAIN_RESULTS:
            # A submission's answer is never a function of its own, for any arguments.
            crossing = _HELD if self.is_submission(func) else _ALL
            for each in arguments:
                if type(each) not in _PLAIN:
                    self._edge(each, key, crossing)
        self._visit_callbacks(func, arguments)

    def _find_fresh(self, node: ast.expr) -> None:
        """Note a method of a new object, called or handed to a function of the tests."""
        made = node.value if isinstance(node, ast.Attribute) else None
        if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name):
            return
        # A class's arguments are its state: such a class is more than a place for functions.
        is_class = made.func.id in self.submission and looks_like_class(made.func.id)
        if is_class and not arguments_of(made):
            self.fresh.add(made.func.id)
            self._fresh_methods.add(id(node))

    def _is_record(self, made: ast.Call) -> bool:
        """Return True if a call makes a class of data: `P = namedtuple("P", "x y")`."""
        around = self.parent.get(id(made))
        targets = around.targets if isinstance(around, ast.Assign) else []
        return any(isinstance(each, ast.Name) and each.id in self._records for each in targets)

    def _visit_callbacks(self, func: ast.expr, arguments: list[ast.expr]) -> None:
        """Let arguments and results of a call flow to the parameters of callbacks among the arguments."""
        callbacks = [
            str(id(each)) if isinstance(each, ast.Lambda) else each.id
            for each in arguments
            if type(each) is ast.Lambda or (type(each) is ast.Name and each.id in self.functions)
        ]
        if not callbacks:
            return
        arguments_mark = f"*{id(func)}"
        self._edge(func, arguments_mark, 0, ANSWER)
        for argument in arguments:
            self._edge(argument, arguments_mark)
        for name in callbacks:
            self._join(arguments_mark, f"{name}(*)")

    def _define(self, name: str, arguments: ast.arguments) -> None:
        """Let arguments flow to a function's parameters: `f(0)` stands for the first argument."""
        every = parameters_of(arguments)
        positional = len(arguments.posonlyargs) + len(arguments.args)
        for place, parameter in enumerate(every):
            self._join(f"{name}(*)", parameter)
            self._join(f"{name}({place})" if place < positional else f"{name}(…)", parameter)

    def _pass(self, name: str, call: ast.Call) -> None:
        """Let arguments flow to a function; of a method, the first parameter may be its object."""
        for place, argument in enumerate(call.args):
            if type(argument) not in _PLAIN:
                for target in (f"{name}({place})", f"{name}({place + 1})", f"{name}(…)"):
                    self._edge(argument, target)
        for keyword in call.keywords:
            self._edge(keyword.value, keyword.arg or f"{name}(*)")

    def _return(self, node: ast.Return | ast.Yield | ast.YieldFrom) -> None:
        around: ast.AST | None = node if node.value is not None else None
        while around is not None and not isinstance(around, _FUNCTIONS):
            around = self.parent.get(id(around))
        if around is not None:
            self._edge(node.value, f"{around.name}()")

    def _bind(self, target: ast.expr, source: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._edge(source, target.id)
        elif isinstance(target, ast.Attribute):
            self._edge(source, f".{target.attr}")
        elif isinstance(target, (ast.Subscript, ast.Starred)):
            self._bind(target.value, source)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for each in target.elts:
                self._bind(each, source)


def _key(node: Any) -> Key:
    """Return the name of a name, as a single node for all its occurrences, or the id of a node."""
    return node.id if type(node) is ast.Name else id(node)


def last_name(node: ast.expr) -> str:
    """Return `f` for `f` and for `x.f`, else ""."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def parameters_of(arguments: ast.arguments) -> list[str]:
    """Return the names of all parameters, parameters by position first."""
    every = [*arguments.posonlyargs, *arguments.args]
    if arguments.vararg is not None:
        every.append(arguments.vararg)
    every += arguments.kwonlyargs
    if arguments.kwarg is not None:
        every.append(arguments.kwarg)
    return [each.arg for each in every]


def records_of(setup: ast.Module) -> frozenset[str]:
    """Return a setup's named tuples, and dataclasses without methods."""
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
