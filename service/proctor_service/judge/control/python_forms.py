"""Forms of assertions in Python: which of their parts is the expected value, and how near is equal."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from proctor_service.judge.control.expectations import EXACT, Tolerance
from proctor_service.judge.control.python_literals import (
    has_rows,
    is_constructor,
    is_literal,
    number_of,
)
from proctor_service.judge.control.python_reach import Column, column_of, columns_of

_BUILTINS = frozenset(["abs", "all", "dict", "frozenset", "list", "set", "tuple"])
_OPPOSITES: Mapping[type[ast.cmpop], type[ast.cmpop]] = MappingProxyType(
    {ast.NotEq: ast.Eq, ast.Gt: ast.LtE, ast.GtE: ast.Lt}
)
_ABSOLUTE = frozenset(["builtins.abs", "math.fabs", "numpy.abs", "numpy.absolute"])
_ARRAY_OF = frozenset(["numpy.array", "numpy.asarray"])
_ONLY_FAR = frozenset(["assertCountEqual"])  # takes lists in another order for equal


@dataclass(frozen=True, slots=True)
class Form:
    """A call with a comparison of its first two arguments, or (`approx`) for an expected value.

    `relative`, `absolute`, `decimals`: name, place and default of a tolerance among the arguments.
    `others`: names of arguments without influence.
    """

    relative: tuple[str, int, float] | None = None
    absolute: tuple[str, int, float] | None = None
    decimals: tuple[str, int, int] | None = None
    others: tuple[str, ...] = ()
    is_of_arrays: bool = False


_EQUAL = Form(others=("msg",))
_ARRAYS = Form(others=("err_msg", "verbose"), is_of_arrays=True)

METHODS: Mapping[str, Form] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                *("assertEqual", "assertEquals", "assertListEqual", "assertTupleEqual"),
                *("assertDictEqual", "assertSetEqual", "assertSequenceEqual"),
                *("assertMultiLineEqual", "assertCountEqual"),
            ),
            _EQUAL,
        ),
        "assertAlmostEqual": Form(
            absolute=("delta", 4, 0.0), decimals=("places", 2, 7), others=("msg",)
        ),
    }
)
"""Methods of `unittest.TestCase`, as `self.assertEqual(f(2), 4)`."""

STATEMENTS: Mapping[str, Form] = MappingProxyType(
    {
        "numpy.testing.assert_equal": _ARRAYS,
        "numpy.testing.assert_array_equal": _ARRAYS,
        "numpy.testing.assert_allclose": Form(
            relative=("rtol", 2, 1e-7),
            absolute=("atol", 3, 0.0),
            others=("equal_nan", "err_msg", "verbose"),
            is_of_arrays=True,
        ),
        "numpy.testing.assert_almost_equal": Form(
            decimals=("decimal", 2, 7), others=("err_msg", "verbose"), is_of_arrays=True
        ),
        "numpy.testing.assert_array_almost_equal": Form(
            decimals=("decimal", 2, 6), others=("err_msg", "verbose"), is_of_arrays=True
        ),
    }
)
"""Raising functions, as `np.testing.assert_allclose(f(3), [1, 4, 9])`."""

CONDITIONS: Mapping[str, Form] = MappingProxyType(
    {
        "math.isclose": Form(relative=("rel_tol", 9, 1e-9), absolute=("abs_tol", 9, 0.0)),
        "numpy.allclose": Form(
            relative=("rtol", 2, 1e-5),
            absolute=("atol", 3, 1e-8),
            others=("equal_nan",),
            is_of_arrays=True,
        ),
        "numpy.array_equal": Form(is_of_arrays=True),
        "numpy.isclose": Form(
            relative=("rtol", 2, 1e-5),
            absolute=("atol", 3, 1e-8),
            others=("equal_nan",),
            is_of_arrays=True,
        ),
    }
)
"""Functions with an asserted result, as `assert math.isclose(f(2), 0.5)`."""

APPROX = Form(relative=("rel", 1, 1e-6), absolute=("abs", 2, 1e-12), others=("nan_ok",))
"""`pytest.approx`, as in `assert f(2) == approx(0.5)`."""

NAMES = frozenset(
    [*METHODS, *(name.rpartition(".")[2] for name in (*STATEMENTS, *CONDITIONS)), "approx"]
)
"""Names of all forms: tests which bind any of these names lack a clear expectation."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An expression with a certain comparison, and the rules for other values in its place.

    `scope`: the comprehension or lambda around the comparison, with the `columns` of its table.
    """

    expected: ast.expr
    answer: ast.expr
    tolerance: Tolerance = EXACT
    only_far: bool = False
    is_of_arrays: bool = False
    scope: ast.AST | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)

    def bears(self, literal: ast.expr) -> bool:
        """Tell whether a literal is fit for this comparison."""
        return not self.is_of_arrays or has_rows(literal)


class Forms:
    """Reader of the assertions of a text.

    `imports`: full name by local name. `bound`: names bound by the tests.
    """

    def __init__(self, imports: Mapping[str, str], bound: Container[str] = ()) -> None:
        self._imports = imports
        self._bound = bound

    def is_value(self, node: ast.expr) -> bool:
        """Tell whether an expression is a literal, or the call of a constructor with literals."""
        if isinstance(node, ast.Call):
            return is_constructor(node, self.full_name(node.func))
        return is_literal(node)

    def comparisons(self, statement: ast.stmt, case: str | None) -> Iterator[Comparison]:
        """Yield the comparisons of a statement, each twice: with either side as the expected value.

        `case`: name of the TestCase with the statement directly in a method.
        """
        match statement:
            case ast.Assert(test=test):
                yield from self._of_condition(test)
            case ast.Expr(value=ast.Call(func=function) as call):
                match function:
                    case ast.Attribute(value=ast.Name(id=name), attr=method) if (
                        name == case and method in METHODS
                    ):
                        only_far = method in _ONLY_FAR
                        yield from _of_call(call, METHODS[method], only_far=only_far)
                    case ast.Attribute(value=ast.Name(id=name), attr="assertTrue") if name == case:
                        for condition in call.args[:1]:
                            yield from self._of_condition(condition)
                    case _ if (full := self.full_name(function)) in STATEMENTS:
                        yield from self._of_arrays(_of_call(call, STATEMENTS[full]))

    def full_name(self, function: ast.expr) -> str:
        """Return the full name of an imported function, or an empty text."""
        parts: list[str] = []
        while isinstance(function, ast.Attribute):
            parts.append(function.attr)
            function = function.value
        if not isinstance(function, ast.Name):
            return ""
        if function.id in self._imports:
            return ".".join([self._imports[function.id], *reversed(parts)])
        is_builtin = function.id in _BUILTINS and function.id not in self._bound and not parts
        return f"builtins.{function.id}" if is_builtin else ""

    def _of_condition(self, test: ast.expr) -> Iterator[Comparison]:
        match test:
            case ast.BoolOp(op=ast.And(), values=values):
                for each in values:
                    yield from self._of_condition(each)
            case ast.UnaryOp(
                op=ast.Not(), operand=ast.Compare(left=left, ops=[operator], comparators=[right])
            ) if type(operator) in _OPPOSITES:
                opposite = ast.Compare(left, [_OPPOSITES[type(operator)]()], [right])
                yield from self._of_condition(opposite)
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                yield from self._of_sides(left, right)
                yield from self._of_sides(right, left)
            case ast.Compare(
                left=left, ops=[ast.Is()], comparators=[ast.Constant(value=bool() | None) as right]
            ):
                yield Comparison(right, left)
            case ast.Compare(
                left=ast.Call(
                    func=function,
                    args=[ast.BinOp(op=ast.Sub(), left=one, right=other)],
                    keywords=[],
                ),
                ops=[ast.Lt() | ast.LtE()],
                comparators=[bound],
            ) if self.full_name(function) in _ABSOLUTE:
                if (most := number_of(bound)) is not None:
                    yield Comparison(one, other, Tolerance(absolute=most))
                    yield Comparison(other, one, Tolerance(absolute=most))
            case ast.Call() if (full := self.full_name(test.func)) in CONDITIONS:
                # An array of truth values has no truth value itself: `.all()` is around it.
                if full != "numpy.isclose":
                    yield from self._of_arrays(_of_call(test, CONDITIONS[full]))
            case ast.Call(func=function, args=[each], keywords=[]) if (
                self.full_name(function) == "builtins.all"
            ):
                yield from self._of_table(each)
            case ast.Call(func=ast.Attribute(value=each, attr="all"), args=[], keywords=[]):
                yield from self._of_elements(each)
            case ast.Call(func=function, args=[each], keywords=[]) if (
                self.full_name(function) == "numpy.all"
            ):
                yield from self._of_elements(each)

    def _of_table(self, rows: ast.expr) -> Iterator[Comparison]:
        """Yield the comparisons of `all(..)` over a literal table."""
        match rows:
            case (ast.GeneratorExp() | ast.ListComp()) as node if len(node.generators) == 1:
                (loop,) = node.generators
                if loop.ifs or loop.is_async or not column_of(loop.iter, None):
                    return
                condition, columns = node.elt, columns_of(loop.target, loop.iter)
            case ast.Call(
                func=ast.Name(id="map"),
                args=[ast.Lambda(args=ast.arguments(args=[argument])) as node, table],
                keywords=[],
            ) if column_of(table, None):
                condition, columns = node.body, {argument.arg: column_of(table, None)}
            case _:
                return
        for each in self._of_condition(condition):
            yield replace(each, scope=node, columns={**columns, **each.columns})

    def _of_elements(self, condition: ast.expr) -> Iterator[Comparison]:
        """Yield the comparisons of a condition for each element of an array."""
        if isinstance(condition, ast.Call):
            if self.full_name(condition.func) == "numpy.isclose":
                yield from self._of_arrays(_of_call(condition, CONDITIONS["numpy.isclose"]))
        elif isinstance(condition, ast.Compare):
            found = self._of_condition(condition)
            yield from self._of_arrays(
                replace(each, only_far=True, is_of_arrays=True) for each in found
            )

    def _of_arrays(self, found: Iterable[Comparison]) -> Iterator[Comparison]:
        """Yield comparisons; of `np.array(..)` without a type, its argument."""
        for each in found:
            match each.expected:
                case ast.Call(func=function, args=[values], keywords=[]) if (
                    each.is_of_arrays and self.full_name(function) in _ARRAY_OF
                ):
                    yield replace(each, expected=values)
                case _:
                    yield each

    def _of_sides(self, answer: ast.expr, expected: ast.expr) -> Iterator[Comparison]:
        if isinstance(expected, ast.Call) and self.full_name(expected.func) == "pytest.approx":
            tolerance = _tolerance(expected, APPROX)
            if expected.args and tolerance is not None:
                yield Comparison(expected.args[0], answer, tolerance)
        else:
            yield Comparison(expected, answer)


def _of_call(call: ast.Call, form: Form, *, only_far: bool = False) -> Iterator[Comparison]:
    tolerance = _tolerance(call, form)
    if tolerance is None or len(call.args) < 2:
        return
    one, other, *_ = call.args
    only_far = only_far or form.is_of_arrays
    for expected, answer in ((one, other), (other, one)):
        yield Comparison(expected, answer, tolerance, only_far, form.is_of_arrays)


def _tolerance(call: ast.Call, form: Form) -> Tolerance | None:
    """Return the tolerance of a call; None for other expressions, and for an unknown argument."""
    arguments: dict[str, ast.expr] = {}
    options = [form.relative, form.absolute, form.decimals]
    names = [option[0] for option in options if option is not None]
    places = {option[1]: option[0] for option in options if option is not None}
    for place, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            return None
        arguments[places.get(place, "")] = argument
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg not in (*names, *form.others):
            return None
        arguments[keyword.arg] = keyword.value
    numbers: list[float] = []
    for option in options:
        default = 0.0 if option is None else float(option[2])
        argument_given = None if option is None else arguments.get(option[0])
        number = default if argument_given is None else number_of(argument_given)
        if number is None:
            return None
        numbers.append(number)
    relative, absolute, decimals = numbers
    if form.decimals is not None:
        absolute = max(absolute, 1.5 * 10.0 ** -min(decimals, 300.0))
    return Tolerance(relative, absolute)
