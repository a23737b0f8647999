"""Takes tests apart: what is asked of the submission, and what the answer must be.

`assert f(3) == [1, 2]` is the call `f(3)`, made where the submission is, and the value `[1, 2]`, which
never goes there. That form, with literals on both sides, is judged with one sandbox; for all others the
test code runs in a sandbox of its own (`graders/asserts.py` decides by what is found here).

Parsing is bounded: tests come from the trainer, but a text that breaks the parser must not break us.
"""

from __future__ import annotations

import ast
import builtins
import operator
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proctor_client.wire import AssertsGrader
from proctor_service.errors import InvalidTask
from proctor_service.inside import values

_MAX_TEST_BYTES = 1 << 20
_MAX_DEPTH = 200
_MAX_REMEMBERED_BYTES = 16_384  # of one grader's tests; so that all that is remembered stays small
_BUILTINS = frozenset(dir(builtins))
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_SINGLETONS = (None, True, False)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must hold of one call's value: `value <compare> expected`, or its truth.

    `wire` is the encoding of `expected`; `reflected` when the literal stood on the left.
    """

    shown: str
    compare: Callable[[Any, Any], Any] | None
    symbol: str
    expected: Any
    wire: Any
    wire_bytes: int
    reflected: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Separated:
    """Tests that are calls and literals: `calls` go inside, `expectations` stay here."""

    calls: tuple[list[Any], ...]
    expectations: tuple[Expectation, ...]
    imports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """Tests that must run as they are, in a sandbox of their own."""

    tests: tuple[str, ...]


class _NotSeparable(Exception):
    pass


class Separator:
    """Takes graders apart, and remembers the last few thousand: a group shares its tests."""

    def __init__(self, remembered: int = 2048) -> None:
        self._remembered = remembered
        self._known: OrderedDict[tuple[object, ...], Separated | Whole] = OrderedDict()

    def separate(self, grader: AssertsGrader) -> Separated | Whole:
        """Raises InvalidTask when the tests or the setup do not parse."""
        key = (tuple(grader.tests), grader.setup, grader.entry_point)
        known = self._known.get(key)
        if known is None:
            known = _separate(grader)
            if sum(map(len, grader.tests)) <= _MAX_REMEMBERED_BYTES:
                self._known[key] = known
            if len(self._known) > self._remembered:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return known


def parse(text: str, what: str) -> ast.Module:
    """A syntax tree. Raises InvalidTask, naming `what`, when the text does not parse."""
    if len(text) > _MAX_TEST_BYTES:
        raise InvalidTask(f"{what} is longer than {_MAX_TEST_BYTES} bytes")
    if _depth(text) > _MAX_DEPTH:
        raise InvalidTask(f"{what} is nested too deep")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidTask(f"{what} is not Python: {error}") from None


def _depth(text: str) -> int:
    """An upper bound of how deep brackets and prefix operators nest, in one pass."""
    deepest = depth = run = 0
    for character in text:
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        run = run + 1 if character in "-+~" else 0
        deepest = max(deepest, depth, run)
    return deepest


def _separate(grader: AssertsGrader) -> Separated | Whole:
    whole = Whole(tuple(grader.tests))
    setup = parse(grader.setup, "setup")
    trees = [parse(text, f"tests.{index}") for index, text in enumerate(grader.tests)]
    try:
        imports = _imports_of(setup)
        pairs = [_split_test(tree) for tree in trees]
    except _NotSeparable:
        return whole
    return Separated(
        tuple(call for call, _ in pairs), tuple(wanted for _, wanted in pairs), imports
    )


def _imports_of(setup: ast.Module) -> tuple[str, ...]:
    """The statements of a setup that only imports from the standard library."""
    for node in setup.body:
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case _:
                raise _NotSeparable
        if not all(name.split(".")[0] in sys.stdlib_module_names for name in modules):
            raise _NotSeparable
    return tuple(ast.unparse(node) for node in setup.body)


def _split_test(tree: ast.Module) -> tuple[list[Any], Expectation]:
    match tree.body:
        case [ast.Assert(test=ast.Compare(left=left, ops=[op], comparators=[right]))]:
            symbol, compare = _COMPARISONS.get(type(op)) or _give_up()
            if isinstance(left, ast.Call) and not _is_literal_call(left):
                return _expect(left, right, symbol, compare, reflected=False)
            if isinstance(right, ast.Call):
                return _expect(right, left, symbol, compare, reflected=True)
        case [ast.Assert(test=ast.Call() as call)]:
            return _call(call), _truth(call, negated=False)
        case [ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call))]:
            return _call(call), _truth(call, negated=True)
    raise _NotSeparable


def _give_up() -> Any:
    raise _NotSeparable


def _truth(call: ast.Call, *, negated: bool) -> Expectation:
    return Expectation(_shown(call), None, "", None, None, 0, negated=negated)


def _expect(
    call: ast.Call,
    other: ast.expr,
    symbol: str,
    compare: Callable[[Any, Any], Any],
    *,
    reflected: bool,
) -> tuple[list[Any], Expectation]:
    expected = _literal(other)
    if symbol.startswith("is") and not any(expected is each for each in _SINGLETONS):
        raise _NotSeparable
    wire = _encoded(expected)
    size = len(values.dumps(wire))
    return _call(call), Expectation(
        _shown(call), compare, symbol, expected, wire, size, reflected=reflected
    )


def _call(call: ast.Call) -> list[Any]:
    """[name, encoded positional arguments, encoded keyword arguments]."""
    if not isinstance(call.func, ast.Name) or call.func.id in _BUILTINS:
        raise _NotSeparable
    positional = [_literal(argument) for argument in call.args]
    keywords = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise _NotSeparable
        keywords[keyword.arg] = _literal(keyword.value)
    return [call.func.id, _encoded(positional), _encoded(keywords)]


def _is_literal_call(node: ast.expr) -> bool:
    """`set()` is how the empty set is written."""
    match node:
        case ast.Call(func=ast.Name(id="set"), args=[], keywords=[]):
            return True
    return False


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise _NotSeparable from None


def _encoded(value: Any) -> Any:
    try:
        return values.encode(value)
    except (values.ValueTooLarge, values.ValueTooDeep):
        raise _NotSeparable from None


def _shown(call: ast.Call) -> str:
    try:
        text = ast.unparse(call)
    except ValueError:  # a number of more digits than Python writes
        return "the call"
    return text if len(text) <= 300 else text[:297] + "…"
