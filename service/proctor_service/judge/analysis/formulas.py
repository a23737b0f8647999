"""Test conditions on results of the submission's calls, computed outside the sandbox.

The values are plain data, so no code of the submission runs here. Other data, and data that needs numpy,
raises NotDecidable; the tests then run in a test sandbox. Conditions can be pickled, because another process
analyses long tests (`process.py`): a formula is a tuple rather than a closure.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proctor_service.codec.tables import fill_set
from proctor_service.judge.analysis.calls import (
    Calls,
    Helper,
    Imported,
    Passed,
    Scope,
    Variable,
    parameters_of,
)
from proctor_service.judge.analysis.literals import (
    OPERATORS,
    TYPES,
    NotConstant,
    NotPlannable,
    depends_on_order,
    parts_of,
    why_costly,
)

SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.NotIn: "not in",
}  # fmt: skip
SINGLETONS = (None, True, False)
_TYPES = {name: kind for name, kind in TYPES.items() if kind is not object}
_CORE = (*_TYPES.values(), type(None))
_MOST_PARTS = 1_000_000  # of a value parsed here
_SECONDS_AN_ITEM = 5e-6


def _set_of(items: Any = ()) -> set[Any]:
    """Return a set of untrusted items. Raises Malformed for too many hash collisions."""
    found: set[Any] = set()
    fill_set(found, list(items), _MOST_PARTS, _SECONDS_AN_ITEM)
    return found


def _frozenset_of(*items: Any) -> frozenset[Any]:
    return frozenset(_set_of(*items))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{call.__name__: call for call in (abs, round, len, sorted, sum, min, max)},
    **{call.__name__: call for call in (tuple, list, bool, int, float, str)},
    "set": _set_of,
    "frozenset": _frozenset_of,
}
MATH: dict[str, Callable[..., Any]] = {
    name: getattr(math, name)
    for name in ("isclose", "fabs", "floor", "ceil", "sqrt", "isnan", "isinf", "isfinite", "trunc")
}
_ARITHMETIC = ("Add", "Sub", "Mult", "Div")
_MOST_BITS = 10_000
_DEEPEST_HELPER = 8
Results = Callable[[int], Any]
"""A function from the number of a call to its value."""
Formula = tuple[Any, ...]
"""A condition on results: a function of this module, and its operands, often more formulas.

The function takes the formula and the results (`value_of`). Within a helper function, a number below
zero is a parameter's.
"""


class NotDecidable(Exception):
    """The value needs a test sandbox, because this process lacks the type of the value."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a test.

    The most frequent condition is `call <symbol> expected`, or the truth of a call; `symbol` is then "",
    or "not". `text` is the text of the call. `expected` is the line with the encoding of the literal,
    which is on the left if the comparison is `reflected`. For every other condition, `formula` is set,
    and `text` is the whole condition. A check is free of syntax trees and values, because plans live long
    and each object in a plan slows every garbage collection.
    """

    text: str
    calls: tuple[int, ...]
    symbol: str = ""
    expected: bytes = b""
    reflected: bool = False
    formula: Formula | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments alone: three times as fast as the state of a dataclass."""
        fields = (self.text, self.calls, self.symbol, self.expected, self.reflected, self.formula)
        return Condition, fields

    @property
    def shown(self) -> str:
        """A text for messages, without expected values."""
        return self.text if self.formula is None else "the condition"


@dataclass(frozen=True, slots=True)
class Body:
    """The formula of a helper function's body, for the names of a version of `Calls`.

    `parameters`: number of parameters; the first has the number -1. `steps`: of its planning.
    """

    formula: Formula
    parameters: int
    steps: int
    version: int


class Formulas:
    """Compiler from a condition to a function of the results.

    `bodies`: of helper functions, by the ids of their nodes, for all conditions of a suite;
    they are free of calls. `numbers`, `passed`: receive the calls, and the values open to change.
    """

    def __init__(
        self, calls: Calls, bodies: dict[int, Body], numbers: list[int], passed: Passed
    ) -> None:
        self._calls = calls
        self._bodies = bodies
        self._numbers = numbers
        self._passed = passed
        self._depth = 0
        self._failed: set[int] = set()  # expressions other than constants in this scope

    def of(self, node: ast.expr) -> Formula:
        """Return the formula of an expression. Raises NotPlannable."""
        self._calls.count_steps()
        kind = type(node)
        if kind is ast.Constant:
            return (_constant, node.value)  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            target = self._calls.target(node.func)
            if target is not None:
                return self._value_of(self._calls.add(node, target, self._passed))
        elif isinstance(node, ast.Name):
            variable = self._calls.scope.get(node.id)
            if isinstance(variable, Variable) and variable.number is not None:
                return self._value_of(variable.number)
        if kind is ast.Compare or kind is ast.BoolOp or id(node) in self._failed:
            return self._compound(node)
        try:
            constant = self._calls.constant(node, self._failed)
        except NotConstant:
            return self._compound(node)
        if self._calls.weights.is_mutable(constant):
            return (_copy_of, constant)
        return (_constant, constant)

    def _value_of(self, number: int) -> Formula:
        if number >= 0:
            self._numbers.append(number)
        return (_result, number)

    def _maybe(self, node: ast.expr) -> Formula:
        """Return the formula of an expression which Python may leave out."""
        count = len(self._calls.made)
        formula = self.of(node)
        if len(self._calls.made) > count:
            raise NotPlannable("a call that depends on a condition")
        return formula

    def _compound(self, node: ast.expr) -> Formula:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._comparison(left, ops, others)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return (_not, self.of(operand))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return (_minus, self.of(operand))
            case ast.BoolOp(op=op, values=[first, *others]):
                return self._choice(isinstance(op, ast.And), first, others)
            case ast.BinOp(left=left, op=op, right=right) if type(op).__name__ in _ARITHMETIC:
                return (_calculated, OPERATORS[type(op).__name__], self.of(left), self.of(right))
            case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Slice):
                return (_item, self.of(value), self.of(index))
            case ast.Call(func=func, args=args, keywords=keywords):
                return self._function(func, args, keywords)
        raise NotPlannable(type(node).__name__)

    def _choice(self, both: bool, first: ast.expr, others: list[ast.expr]) -> Formula:
        """Return the formula of `and` or `or`: the value of the deciding operand."""
        return (_chosen, both, (self.of(first), *map(self._maybe, others)))

    def _comparison(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> Formula:
        first, *more = [self.of(left), self.of(others[0]), *map(self._maybe, others[1:])]
        compares = []
        for op, other in zip(ops, others, strict=True):
            symbol = SYMBOLS[type(op)]
            is_single = isinstance(other, ast.Constant) and other.value in SINGLETONS
            if symbol.startswith("is") and not is_single:
                raise NotPlannable("identity")
            compares.append(COMPARISONS[symbol])

        return (_compared, first, tuple(zip(compares, more, strict=True)))

    def _function(
        self, func: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]
    ) -> Formula:
        helper = self._calls.scope.get(func.id) if isinstance(func, ast.Name) else None
        if isinstance(helper, Helper):
            return self._helper(helper, args, keywords)
        if len(args) == 2 and not keywords and self._builtin(func) == "isinstance":
            return self._isinstance(args[0], args[1])
        function = self._known_function(func)
        if function is None or any(keyword.arg is None for keyword in keywords):
            raise NotPlannable("a call of something else")
        if function is sorted and any(keyword.arg == "key" for keyword in keywords):
            raise NotPlannable("a key function")
        parts = tuple(map(self.of, args))
        named = tuple((str(keyword.arg), self.of(keyword.value)) for keyword in keywords)
        return (_applied, function, parts, named)

    def _known_function(self, func: ast.expr) -> Callable[..., Any] | None:
        if isinstance(func, ast.Name):
            meaning = self._calls.scope.get(func.id)
            if isinstance(meaning, Imported) and meaning.module == "math":
                return MATH.get(meaning.name)
            return _FUNCTIONS.get(self._builtin(func))
        match func:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (
                self._calls.module_of(module) == "math"
            ):
                return MATH.get(name)
        return None

    def _builtin(self, node: ast.expr) -> str:
        """Return an unbound name, or ""."""
        return node.id if isinstance(node, ast.Name) and node.id not in self._calls else ""

    def _isinstance(self, value: ast.expr, kinds: ast.expr) -> Formula:
        parts = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
        wanted = [_TYPES.get(self._builtin(part)) for part in parts]
        if any(kind is None for kind in wanted):
            raise NotPlannable("a class")
        types = tuple(kind for kind in wanted if kind is not None)
        return (_is_instance, types, self.of(value))

    def _helper(self, helper: Helper, args: list[ast.expr], keywords: list[ast.keyword]) -> Formula:
        """Expand the call of a helper function with a single expression."""
        parts = [self.of(argument) for argument in args]
        body = self._bodies.get(id(helper.node))
        if body is None or body.version != self._calls.version:
            body = self._body(helper)
        else:
            self._calls.count_steps(body.steps)
        if keywords or len(parts) != body.parameters:
            raise NotPlannable("a helper function")
        return (_expanded, body.formula, parts)

    def _body(self, helper: Helper) -> Body:
        """Compile a helper function's body; a body without calls and reads of containers is remembered."""
        expression, parameters = _expression_of(helper.node), parameters_of(helper.node)
        if self._depth > _DEEPEST_HELPER:
            raise NotPlannable("a helper function")
        steps, version, called = self._calls.steps, self._calls.version, len(self._numbers)
        # The body sees its parameters and the names around its definition, none of its caller's.
        scope = Scope(around=helper.scope)
        for index, parameter in enumerate(parameters):
            self._calls.check_own(parameter)
            scope.own[parameter] = Variable(number=-1 - index)
        outer, self._calls.scope = self._calls.scope, scope
        failed, self._failed = self._failed, set()
        self._depth += 1
        try:
            formula = self.of(expression)
        finally:
            self._calls.scope, self._depth = outer, self._depth - 1
            self._failed = failed
        body = Body(formula, len(parameters), self._calls.steps - steps, version)
        if len(self._numbers) == called and not self._calls.read:
            self._bodies[id(helper.node)] = body
        return body


def value_of(formula: Formula, results: Results) -> Any:
    """Return the value of a formula for the results of calls. Raises the test's exception."""
    return formula[0](formula, results)


def _result(formula: Formula, results: Results) -> Any:
    return results(formula[1])


def _constant(formula: Formula, results: Results) -> Any:
    return formula[1]


def _copy_of(formula: Formula, results: Results) -> Any:
    return _copy(formula[1])


def _not(formula: Formula, results: Results) -> bool:
    return not _core(value_of(formula[1], results))


def _minus(formula: Formula, results: Results) -> Any:
    return -_number(value_of(formula[1], results))


def _calculated(formula: Formula, results: Results) -> Any:
    _, operation, one, other = formula
    return operation(_number(one[0](one, results)), _number(other[0](other, results)))


def _chosen(formula: Formula, results: Results) -> Any:
    _, both, parts = formula
    value = None
    for part in parts:
        value = _core(value_of(part, results))
        if bool(value) is not both:
            break
    return value


def _compared(formula: Formula, results: Results) -> bool:
    _, first, more = formula
    one = first[0](first, results)
    for compare, side in more:
        other = side[0](side, results)
        if not compare(one, other):
            return False
        one = other
    return True


def _applied(formula: Formula, results: Results) -> Any:
    _, function, parts, named = formula
    found = [_core(part[0](part, results)) for part in parts]
    if depends_on_order(function, found):
        raise NotDecidable("the order of a set")
    if function is str:
        _check_text(found)
    more = {name: value_of(part, results) for name, part in named}
    _check_cost(function, found, more)
    return function(*found, **more)


def _is_instance(formula: Formula, results: Results) -> bool:
    _, types, inner = formula
    return isinstance(_core(value_of(inner, results)), types)


def _expanded(formula: Formula, results: Results) -> Any:
    """Return the value of a helper function's body, for the formulas of its parameters."""
    _, inner, parts = formula
    found = [value_of(part, results) for part in parts]
    return value_of(inner, lambda number: results(number) if number >= 0 else found[-1 - number])


def _copy(value: Any) -> Any:
    """Return a copy of a constant container, so a formula may change the copy."""
    if isinstance(value, list):
        return [_copy(each) for each in value]
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return set(value) if isinstance(value, set) else value


def _expression_of(function: ast.FunctionDef | ast.Lambda) -> ast.expr:
    if isinstance(function, ast.Lambda):
        return function.body
    body = [
        node
        for node in function.body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        raise NotPlannable("a helper function of several statements")
    return body[0].value


def _core(value: Any) -> Any:
    """Return a value of a core type. Raises NotDecidable for any other."""
    if type(value) not in _CORE:
        raise NotDecidable(type(value).__name__)
    return value


def _check_text(values: list[Any]) -> None:
    """Raise NotDecidable if the text of a value may differ between versions of Python."""
    for part in parts_of(values):
        _core(part)


def _number(value: Any) -> Any:
    """Return a number, safe to calculate with. Raises NotDecidable."""
    if type(value) not in (int, float, bool, complex):
        raise NotDecidable(type(value).__name__)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise NotDecidable("a huge number")
    return value


def _item(formula: Formula, results: Results) -> Any:
    value, index = value_of(formula[1], results), value_of(formula[2], results)
    if type(value) not in (list, tuple, dict, str, bytes):
        raise NotDecidable(type(value).__name__)
    return value[_core(index)]


def _is_in(item: Any, container: Any) -> bool:
    """Return True if a container holds an item.

    Raises NotDecidable for a container of another process, for example a generator, and for a costly
    search: Python finds an int in a range at once, and compares every other item with each number.
    """
    if type(container) not in (*_CORE, range):
        raise NotDecidable(type(container).__name__)
    if type(container) is range and type(item) not in (int, bool):
        raise NotDecidable("a search in a range")
    return item in container


def _is_not_in(item: Any, container: Any) -> bool:
    return not _is_in(item, container)


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "is": operator.is_, "is not": operator.is_not,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "in": _is_in, "not in": _is_not_in,
}  # fmt: skip


def _check_cost(function: Callable[..., Any], args: list[Any], keywords: dict[str, Any]) -> None:
    """Raise NotDecidable for a call with few arguments and much work."""
    more = [*args[1:], *keywords.values()]
    why = why_costly(function, more)
    if why is not None:
        raise NotDecidable(why)
    if function is sum:  # of huge numbers, too
        for each in (*more, *(args[0] if args else ())):
            _number(each)
