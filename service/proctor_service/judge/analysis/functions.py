"""Suites with calls of functions as their only use of a submission, and the other needs of other suites.

Suites of calls alone are judged apart from the submission: calls with data go in, and data come back. The
tests' operations on an answer must be possible on data. Only the text decides, before the submission
runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from proctor_service.judge.analysis import data_attributes
from proctor_service.judge.analysis.flow import (
    ANSWER,
    ERROR,
    FUNCTION,
    MADE,
    OBJECT,
    RAISES,
    Flow,
    last_name,
)
from proctor_service.judge.analysis.names import looks_like_class
from proctor_service.judge.analysis.shared_state import shared_state
from proctor_service.judge.analysis.suite import Suite, arguments_of, nodes_of

_words = str.split
_ERROR_FIELDS = frozenset(
    _words(
        "value exception args type match errno strerror filename name obj start end object reason encoding"
        " pos doc msg lineno colno code expected text offset"
    )
)
_SINGLETONS = (None, True, False, ..., NotImplemented)
_NOT_AS_DATA = frozenset(
    ["map", "filter", "zip", "enumerate", "reversed", "Awaitable", "Coroutine", "Callable"]
)
"""Types of answers which reach the tests as another type."""
_CALLING = frozenset(
    _words(
        "accumulate callable defaultdict dropwhile filter filterfalse groupby map partial reduce starmap"
        " takewhile"
    )
)
"""Functions which call their first or second argument, or test if an argument is callable."""
_CALLED_SECOND = frozenset(["accumulate", "groupby"])
_WIDENED = frozenset(_words("float16 float32 half single complex64 csingle ndarray"))
"""Types of numpy for which the tests have another type by the same name (`codec/wide_numpy.py`)."""
_FRAMEWORK = re.compile(r"test|check$|set_?up|tear_?down|pytest_|load_tests$", re.IGNORECASE)
"""Names of functions sought by a runner of tests: `test_add`, `setUpModule`."""
_INSPECTING = frozenset(["isinstance", "issubclass", "callable", "type", "patch", "cast", *RAISES])
_ATTRIBUTE = re.compile(r"\w+\.\w.*|\w+\(\)(\.\w+){2,}")
"""`Solution.f`, and `Solution().a.f`."""
_KEEPING = (
    *(
        ast.Call,
        ast.keyword,
        ast.Assign,
        ast.AnnAssign,
        ast.List,
        ast.Tuple,
        ast.Dict,
        ast.Set,
        ast.Return,
    ),
    *(ast.Starred, ast.IfExp, ast.NamedExpr, ast.Lambda, ast.Expr, ast.ListComp, ast.GeneratorExp),
    *(ast.comprehension, ast.For),
)
"""Places where a function of the submission may stand, without a call."""
_WRITTEN_OUT = frozenset(
    [ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp]
)
_TEXT_OPERATORS = (ast.Add, ast.Mod, ast.Mult)


class FunctionsOnly:
    """The answer for a suite; `reason` is None if the suite asks for functions alone."""

    def __init__(self, suite: Suite, submission: frozenset[str], records: frozenset[str]) -> None:
        self._suite = suite
        self._flow = Flow(suite, submission, records)
        self._bound = self._flow.classes.keys() | self._flow.functions.keys()
        self._printing = self._functions_around("print")
        self._calls: list[ast.Call] = []
        self.reason = next(self._reasons(), None)
        self.fresh = frozenset(self._flow.fresh)

    def _functions_around(self, name: str) -> set[ast.AST | str]:
        """Return the names of the functions, and the lambdas, in which a name is read."""
        found: set[ast.AST | str] = set()
        seen: set[ast.AST] = set()
        for nodes in self._suite.nodes:
            for node in nodes:
                is_read = type(node) is ast.Name and node.id == name
                around: ast.AST | None = node if is_read else None
                while around is not None and around not in seen:
                    seen.add(around)
                    found.add(getattr(around, "name", around))
                    around = self._flow.parent.get(id(around))
        return found

    def calls_carry_constants(self) -> bool:
        """Return True if the tests hand only literal data to the submission, free to be printed.

        Valid where `reason` is None.
        """
        return all(
            type(each) is ast.Constant or _is_written_out(each)
            for call in self._calls
            for each in arguments_of(call)
        )

    def _reasons(self) -> Iterator[str]:
        if re.fullmatch(_ATTRIBUTE, self._suite.entry_point or ""):
            yield f"entry_point is an attribute: {self._suite.entry_point}"
        yield from self._unused()
        labels = ["setup", *(f"tests.{index}" for index in range(len(self._suite.tests)))]
        for index, reason in shared_state(self._suite, self._bound):
            yield f"{labels[index]} {reason}"
        reasons_of = self._reasons_of()
        for label, nodes in zip(labels, self._suite.nodes, strict=True):
            for node in nodes:
                of_node = reasons_of.get(type(node))
                if of_node is not None:
                    for reason in of_node(node):
                        yield f"{label} {reason}"
            if label == "setup":
                for reason in self._of_setup():
                    yield f"setup {reason}"
        if not self._calls and not any(
            step[0] == "check" for test in self._suite.tests for step in test.run
        ):
            yield "the tests call nothing that only the submission can define"

    def _unused(self) -> Iterator[str]:
        """Yield a function of the tests for the submission alone: `guess` of a puzzle."""
        found = [
            (index, each.name)
            for index, test in enumerate(self._suite.tests)
            for each in test.tree.body
            if isinstance(each, ast.FunctionDef) and not _FRAMEWORK.match(each.name)
            if not each.decorator_list
        ]
        read = {
            node.id if isinstance(node, ast.Name) else node.attr
            for nodes in self._suite.nodes
            if found
            for node in nodes
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
        }
        for index, name in found:
            if name not in read:
                yield f"tests.{index} defines {name}, which only the submission can call"

    def _of_setup(self) -> Iterator[str]:
        """Yield whether a function of the setup changes data of the tests: each side has a copy."""
        for statement, nodes in zip(self._suite.setup.body, self._suite.statements[0], strict=True):
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                isinstance(node, ast.Global) or _changes(node) for node in nodes
            ):
                yield f"has a function with effects: {statement.name}"

    def _reasons_of(self) -> dict[type[ast.AST], Callable[[Any], Iterable[str]]]:
        """Return the inspector of each kind of node."""
        definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return {
            ast.Attribute: self._of_attribute,
            ast.Call: self._of_call,
            ast.Compare: self._of_comparison,
            ast.BinOp: self._of_operation,
            ast.Name: self._of_name,
            ast.ExceptHandler: self._of_handler,
            ast.withitem: self._of_context,
            **dict.fromkeys(definitions, self._of_definition),
        }

    def _of_handler(self, node: ast.ExceptHandler) -> Iterator[str]:
        if node.type is not None:
            yield from self._of_types(node.type)

    def _of_context(self, node: ast.withitem) -> Iterator[str]:
        if self._flow.of(node.context_expr) & (ANSWER | FUNCTION):
            yield "enters a context of the submission's"

    def _of_definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> Iterable[str]:
        if any(self._flow.of(each) & (ANSWER | FUNCTION) for each in node.decorator_list):
            return [f"lets the submission decorate {node.name}"]
        return ()

    def _of_attribute(self, node: ast.Attribute) -> Iterator[str]:
        if not isinstance(node.ctx, ast.Load):
            if self._flow.of(node.value) & ANSWER:
                yield f"sets the attribute {node.attr} of an answer"
            return
        marks = self._flow.of(node.value)
        if not marks & (ANSWER | FUNCTION | ERROR) or self._flow.makes_fresh(node):
            return
        if marks & ANSWER and self._is_of_data(node):
            return
        if marks & ERROR and (node.attr in _ERROR_FIELDS or not marks & ~ERROR):
            if node.attr not in _ERROR_FIELDS:
                yield f"reads a field of an exception: {node.attr}"
            return
        if marks & FUNCTION and not marks & ANSWER and not isinstance(node.value, ast.Name):
            return  # a method of a container of functions
        yield f"looks for .{node.attr}, which no data has"

    def _is_of_data(self, node: ast.Attribute) -> bool:
        """Return True if data have this field, or a method for this use."""
        if node.attr in data_attributes.FIELDS or node.attr in data_attributes.SPECIAL:
            return True
        call = self._flow.parent.get(id(node))
        if isinstance(call, ast.keyword):
            call = self._flow.parent.get(id(call))
        if node.attr not in data_attributes.METHODS or not isinstance(call, ast.Call):
            return False
        if call.func is not node:
            return True  # a method as an argument: `map(f(1).get, keys)`, `max(f(1), key=f(1).get)`
        if node.attr in data_attributes.CHANGING and self._flow.of(node.value) & MADE:
            return False
        if node.attr in data_attributes.RETURNING_NONE:
            return isinstance(self._flow.parent.get(id(call)), ast.Expr | ast.Lambda | ast.ListComp)
        least = data_attributes.LEAST_ARGUMENTS.get(node.attr, 0)
        return len(call.args) >= least or any(isinstance(each, ast.Starred) for each in call.args)

    def _of_call(self, node: ast.Call) -> Iterable[str]:
        marks = self._flow.of(node.func)
        called = [each for each in _called_by(node) if not isinstance(each, ast.Attribute)]
        if any(map(self._is_answer, called)):
            return ["lets an answer be called"]
        if marks & FUNCTION:
            self._calls.append(node)
            return self._of_submission_call(node)
        if marks & ANSWER and not isinstance(node.func, ast.Attribute):
            return ["calls an answer"]
        name = last_name(node.func)
        if isinstance(node.func, ast.Attribute) and len(node.args) > 1:  # assertIs(type(x), y)
            for reason in self._of_exact_type(node.args[0], node.args[1]):
                return [reason]
        if name in ("assertIs", "assertIsNot"):
            if any(self._flow.of(each) & ANSWER for each in node.args) and not any(
                map(_is_singleton, node.args)
            ):
                return ["asks whether an answer is an object of the tests"]
        elif name == "issubclass" and any(map(_is_type, node.args)):
            return ["inspects the type of an answer"]
        elif (
            name in ("isinstance", "assertIsInstance", "assertNotIsInstance") and len(node.args) > 1
        ):
            return self._of_instance_call(node)
        return ()

    def _of_submission_call(self, node: ast.Call) -> Iterable[str]:
        for each in arguments_of(node):
            if type(each) is not ast.Constant:
                if self._flow.of(each) & OBJECT:
                    return ["hands the submission an object that is no data"]
                if self._prints(each):
                    return ["hands the submission a function that prints"]
        return self._of_object(node) if self._is_class_call(node) else ()

    def _of_instance_call(self, node: ast.Call) -> Iterator[str]:
        yield from self._of_types(node.args[1])
        if self._flow.of(node.args[0]) & ANSWER:
            named = {
                last_name(each) for each in ast.walk(node.args[1]) if isinstance(each, ast.expr)
            }
            for each in sorted(named & _NOT_AS_DATA):
                yield f"asks for the type {each}"

    def _is_answer(self, node: ast.expr) -> bool:
        """Return True if an expression may be an answer, rather than the submission's function."""
        return self._flow.of(node) & (ANSWER | FUNCTION) == ANSWER

    def _prints(self, argument: ast.expr) -> bool:
        """Tell whether an argument is a function of the tests whose output the submission may catch."""
        return argument in self._printing or last_name(argument) in self._printing

    def _of_types(self, types: ast.expr) -> Iterator[str]:
        for each in ast.walk(types):
            if self._flow.is_submission(each):
                yield f"inspects {last_name(types) or 'a class of the submission'}"

    def _is_class_call(self, node: ast.Call) -> bool:
        is_class = self._flow.is_submission(node.func) and looks_like_class(last_name(node.func))
        return is_class and not self._flow.makes_fresh(self._flow.parent[id(node)])

    def _of_object(self, node: ast.Call) -> Iterator[str]:
        """Yield whether a call by the name of a class is more than a function and its result."""
        around = self._flow.parent[id(node)]
        if isinstance(around, ast.Compare):
            others = [each for each in (around.left, *around.comparators) if each is not node]
            compared = all(isinstance(op, ast.Eq | ast.NotEq) for op in around.ops)
            compared = compared and not any(self._flow.of(each) & ANSWER for each in others)
        else:
            func = around.func if isinstance(around, ast.Call) else None
            compared = isinstance(func, ast.Attribute) and func.attr.startswith("assert")
            compared = compared or isinstance(around, ast.Assert | ast.Expr)
        if not compared:
            yield f"makes an object: {last_name(node.func)}"

    def _of_comparison(self, node: ast.Compare) -> Iterable[str]:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if type(op) in (ast.Is, ast.IsNot):
                answers = (self._flow.of(left) | self._flow.of(right)) & ANSWER
                plain = _is_singleton(left) or _is_singleton(right) or _is_type(left)
                if answers and not plain:
                    return ["asks whether an answer is an object of the tests"]
            for reason in self._of_exact_type(left, right):
                return [reason]
            for one, other in ((left, right), (right, left)):
                if self._is_own_text(one) and not _may_be_text_of_data(other):
                    return ["asks an answer for its own text"]
            left = right
        return ()

    def _of_exact_type(self, one: ast.expr, other: ast.expr) -> Iterator[str]:
        """Yield reasons from comparisons of an answer's type with a type that differs in the tests."""
        for made, wanted in ((one, other), (other, one)):
            if _is_type(made) and any(map(self._is_answer, made.args)):  # type: ignore[attr-defined]
                each = wanted.elts if isinstance(wanted, ast.Tuple | ast.List) else [wanted]
                for name in sorted(_WIDENED.intersection(map(last_name, each))):
                    yield f"asks for the exact type {name}"

    def _is_own_text(self, node: ast.expr) -> bool:
        """Tell whether an expression is `str` or `repr` of an answer."""
        if not isinstance(node, ast.Call) or last_name(node.func) not in ("str", "repr"):
            return False
        return any(self._flow.of(each) & ANSWER for each in node.args)

    def _of_operation(self, node: ast.BinOp) -> Iterable[str]:
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if (
                isinstance(other, ast.Constant)
                and isinstance(other.value, str)
                and self._flow.of(one) & ANSWER
                and not isinstance(node.op, _TEXT_OPERATORS)
            ):
                return ["calculates with an answer and a text"]
        return ()

    def _of_name(self, node: ast.Name) -> Iterable[str]:
        """Return whether a name of the submission stands for more than a function."""
        if node.id not in self._flow.submission or not isinstance(node.ctx, ast.Load):
            return ()
        around = self._flow.parent.get(id(node))
        if isinstance(around, ast.Call):
            name = "" if around.func is node else last_name(around.func)
            if name in _INSPECTING and (name not in RAISES or around.args[0] is node):
                return [f"inspects {node.id}"]
        elif isinstance(around, ast.Attribute):
            if isinstance(around.ctx, ast.Load):
                return [f"looks at {node.id}.{around.attr}"]
        elif not isinstance(around, _KEEPING):
            return [f"uses {node.id} as more than a function"]
        return ()


def _called_by(node: ast.Call) -> list[ast.expr]:
    """Return the arguments called by a library's function: `f` in `map(f, x)`, `max(x, key=f)`."""
    name = last_name(node.func)
    place = 1 if name in _CALLED_SECOND else 0
    found = node.args[place : place + 1] if name in _CALLING else []
    return [*found, *(each.value for each in node.keywords if each.arg == "key")]


def _is_singleton(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and any(node.value is each for each in _SINGLETONS)


def _may_be_text_of_data(node: ast.expr) -> bool:
    """Tell whether an expected text may be Python's text of data, as `[1, 2]`, and not `$1.00`."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return True
    try:
        ast.literal_eval(node.value)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return not node.value or node.value[0].isalnum() or node.value[0] in "({["
    return True


def _is_type(node: ast.expr) -> bool:
    """Tell whether an expression is the type of something, as in `type(f(1)) is int`."""
    return isinstance(node, ast.Call) and last_name(node.func) == "type"


def _is_written_out(node: ast.expr) -> bool:
    return _WRITTEN_OUT.issuperset(map(type, nodes_of(node)))


def _changes(node: ast.AST) -> bool:
    """Return True if a node sets an item or an attribute, or calls a mutating method."""
    if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return True
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and node.func.attr in data_attributes.CHANGING  # type: ignore[attr-defined]
