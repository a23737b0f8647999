"""Whether a suite asks the submission for functions alone, and what else it needs if not.

Such a suite is judged apart from the submission: calls with data go in, and data come back. What the tests
do with an answer must be possible on data. Only the text decides, before the submission runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

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
from proctor_service.judge.analysis.suite import Suite, arguments_of

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
"""Types of answers that reach the tests as another type."""
_CALLING = frozenset(
    _words(
        "accumulate callable defaultdict dropwhile filter filterfalse groupby map partial reduce starmap"
        " takewhile"
    )
)
"""Functions that call what they are given first, or second; or tell whether it can be called."""
_CALLED_SECOND = frozenset(["accumulate", "groupby"])
_WIDENED = frozenset(_words("float16 float32 half single complex64 csingle ndarray"))
"""Types of numpy for which the tests have another type by the same name (`codec/wide_numpy.py`)."""
_FRAMEWORK = re.compile(r"test|check$|set_?up|tear_?down|pytest_|load_tests$", re.IGNORECASE)
"""Names of functions that a runner of tests looks for: `test_add`, `setUpModule`."""
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
_TEXT_OPERATORS = (ast.Add, ast.Mod, ast.Mult)


class FunctionsOnly:
    """The answer for one suite: `reason` is None if the suite asks for functions alone."""

    def __init__(self, suite: Suite, submission: frozenset[str], records: frozenset[str]) -> None:
        self._suite = suite
        self._flow = Flow(suite, submission, records)
        self._bound = self._flow.classes.keys() | self._flow.functions.keys()
        self._printing = set(self._functions_around("print"))
        self.reason = next(self._reasons(), None)
        self.fresh = frozenset(self._flow.fresh)

    def _functions_around(self, name: str) -> Iterator[ast.AST | str]:
        """Yield the names of the functions, and the lambdas, in which a name is read."""
        for nodes in self._suite.nodes:
            for node in nodes:
                is_read = isinstance(node, ast.Name) and node.id == name
                around: ast.AST | None = node if is_read else None
                while around is not None:
                    yield getattr(around, "name", around)
                    around = self._flow.parent.get(id(around))

    def calls_carry_constants(self) -> bool:
        """Tell whether the tests hand only written-out data to the submission, which it may then print."""
        for nodes in self._suite.nodes:
            for node in nodes:
                asks = isinstance(node, ast.Call) and self._flow.of(node.func) & FUNCTION
                if asks and not all(map(_is_written_out, arguments_of(node))):
                    return False
        return True

    def _reasons(self) -> Iterator[str]:
        if re.fullmatch(_ATTRIBUTE, self._suite.entry_point or ""):
            yield f"entry_point is an attribute: {self._suite.entry_point}"
        yield from self._unused()
        labels = ["setup", *(f"tests.{index}" for index in range(len(self._suite.tests)))]
        for index, reason in shared_state(self._suite, self._bound):
            yield f"{labels[index]} {reason}"
        asks = False
        for label, nodes in zip(labels, self._suite.nodes, strict=True):
            for node in nodes:
                for reason in self._of_node(node):
                    yield f"{label} {reason}"
                asks = asks or (
                    isinstance(node, ast.Call) and bool(self._flow.of(node.func) & FUNCTION)
                )
            if label == "setup":
                for reason in self._of_setup():
                    yield f"setup {reason}"
        if not asks and not any(
            step[0] == "check" for test in self._suite.tests for step in test.run
        ):
            yield "the tests call nothing that only the submission can define"

    def _unused(self) -> Iterator[str]:
        """Yield a function that tests define for nobody but the submission: `guess` of a puzzle."""
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
        """Yield whether a function of the setup changes what the tests see, too: each side has a copy."""
        for function in self._suite.setup.body:
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Global) or _changes(node):
                    yield f"has a function with effects: {function.name}"

    def _of_node(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Attribute):
            yield from self._of_attribute(node)
        elif isinstance(node, ast.Call):
            yield from self._of_call(node)
        elif isinstance(node, ast.Compare):
            yield from self._of_comparison(node)
        elif isinstance(node, ast.BinOp):
            yield from self._of_operation(node)
        elif isinstance(node, ast.Name):
            yield from self._of_name(node)
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            yield from self._of_types(node.type)
        elif isinstance(node, ast.withitem):
            if self._flow.of(node.context_expr) & (ANSWER | FUNCTION):
                yield "enters a context of the submission's"
        elif any(
            self._flow.of(each) & (ANSWER | FUNCTION)
            for each in getattr(node, "decorator_list", ())
        ):
            yield f"lets the submission decorate {node.name}"  # type: ignore[attr-defined]

    def _of_attribute(self, node: ast.Attribute) -> Iterator[str]:
        if not isinstance(node.ctx, ast.Load):
            if self._flow.of(node.value) & ANSWER:
                yield f"sets the attribute {node.attr} of an answer"
            return
        marks = self._flow.of(node.value)
        if self._flow.makes_fresh(node) or not marks & (ANSWER | FUNCTION | ERROR):
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
        """Tell whether data have this field, or a method that can be used in this way."""
        if node.attr in data_attributes.FIELDS | data_attributes.SPECIAL:
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

    def _of_call(self, node: ast.Call) -> Iterator[str]:
        func, marks = node.func, self._flow.of(node.func)
        name = last_name(func)
        if marks & ANSWER and not marks & FUNCTION and not isinstance(func, ast.Attribute):
            yield "calls an answer"
        called = [each for each in _called_by(node) if not isinstance(each, ast.Attribute)]
        if any(map(self._is_answer, called)):
            yield "lets an answer be called"
        if isinstance(func, ast.Attribute) and len(node.args) > 1:
            yield from self._of_exact_type(node.args[0], node.args[1])  # assertIs(type(x), y)
        if marks & FUNCTION:
            if any(self._flow.of(each) & OBJECT for each in arguments_of(node)):
                yield "hands the submission an object that is no data"
            if any(map(self._prints, arguments_of(node))):
                yield "hands the submission a function that prints"
            if self._is_class_call(node):
                yield from self._of_object(node)
        elif name in ("assertIs", "assertIsNot") and any(
            self._flow.of(each) & ANSWER for each in node.args
        ):
            if not any(map(_is_singleton, node.args)):
                yield "asks whether an answer is an object of the tests"
        elif (
            name in ("isinstance", "assertIsInstance", "assertNotIsInstance") and len(node.args) > 1
        ):
            yield from self._of_types(node.args[1])
            if self._flow.of(node.args[0]) & ANSWER:
                named = {
                    last_name(each) for each in ast.walk(node.args[1]) if isinstance(each, ast.expr)
                }
                for each in sorted(named & _NOT_AS_DATA):
                    yield f"asks for the type {each}"

    def _is_answer(self, node: ast.expr) -> bool:
        """Tell whether an expression may be an answer, and is no function of the submission."""
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
        """Yield whether a call by the name of a class is more than a function whose result is compared."""
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

    def _of_comparison(self, node: ast.Compare) -> Iterator[str]:
        sides = [node.left, *node.comparators]
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            answers = (self._flow.of(left) | self._flow.of(right)) & ANSWER
            plain = _is_singleton(left) or _is_singleton(right) or _is_type(left)
            if isinstance(op, ast.Is | ast.IsNot) and answers and not plain:
                yield "asks whether an answer is an object of the tests"
            yield from self._of_exact_type(left, right)
            for one, other in ((left, right), (right, left)):
                if self._is_own_text(one) and not _may_be_text_of_data(other):
                    yield "asks an answer for its own text"

    def _of_exact_type(self, one: ast.expr, other: ast.expr) -> Iterator[str]:
        """Yield whether the type of an answer is compared with one that the tests have another of."""
        for made, wanted in ((one, other), (other, one)):
            if _is_type(made) and any(map(self._is_answer, made.args)):  # type: ignore[attr-defined]
                each = wanted.elts if isinstance(wanted, ast.Tuple | ast.List) else [wanted]
                for name in sorted(_WIDENED.intersection(map(last_name, each))):
                    yield f"asks for the exact type {name}"

    def _is_own_text(self, node: ast.expr) -> bool:
        """Tell whether an expression is `str` or `repr` of an answer."""
        is_text = isinstance(node, ast.Call) and last_name(node.func) in ("str", "repr")
        return is_text and any(self._flow.of(each) & ANSWER for each in node.args)  # type: ignore[attr-defined]

    def _of_operation(self, node: ast.BinOp) -> Iterator[str]:
        for one, other in ((node.left, node.right), (node.right, node.left)):
            is_text = isinstance(other, ast.Constant) and isinstance(other.value, str)
            if (
                is_text
                and self._flow.of(one) & ANSWER
                and not isinstance(node.op, (*_TEXT_OPERATORS, ast.Mult))
            ):
                yield "calculates with an answer and a text"

    def _of_name(self, node: ast.Name) -> Iterator[str]:
        """Yield whether a name of the submission stands for more than a function."""
        if not self._flow.is_submission(node) or not isinstance(node.ctx, ast.Load):
            return
        around = self._flow.parent.get(id(node))
        if isinstance(around, ast.Attribute):
            if isinstance(around.ctx, ast.Load):
                yield f"looks at {node.id}.{around.attr}"
        elif isinstance(around, ast.Call) and around.func is not node:
            name = last_name(around.func)
            if name in _INSPECTING and (name not in RAISES or around.args[0] is node):
                yield f"inspects {node.id}"
        elif not isinstance(around, _KEEPING):
            yield f"uses {node.id} as more than a function"


def _called_by(node: ast.Call) -> list[ast.expr]:
    """Return the arguments that a function of a library calls: `f` in `map(f, x)` and `max(x, key=f)`."""
    name = last_name(node.func)
    place = 1 if name in _CALLED_SECOND else 0
    found = node.args[place : place + 1] if name in _CALLING else []
    return [*found, *(each.value for each in node.keywords if each.arg == "key")]


def _is_singleton(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and any(node.value is each for each in _SINGLETONS)


def _may_be_text_of_data(node: ast.expr) -> bool:
    """Tell whether an expected text may be what Python writes for data, as `[1, 2]`, and not `$1.00`."""
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
    plain = (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp)
    other = (ast.expr_context, ast.operator, ast.unaryop)
    return all(isinstance(each, (*plain, *other)) for each in ast.walk(node))


def _changes(node: ast.AST) -> bool:
    """Tell whether a node sets an item or an attribute, or calls a method that changes its object."""
    if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return True
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and node.func.attr in data_attributes.CHANGING  # type: ignore[attr-defined]
