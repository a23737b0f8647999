"""Comparisons of test files in a pytest run, looked at once more.

Tests and submission share an interpreter there, so `assert f(2) == 4` asks the submission's own objects.
Each comparison in the grader's files goes through here, and unittest's as well: an object that says it
equals whatever it is asked about is found out, and the test fails. Honest classes, which equal one value
or those of one kind, notice nothing. It is no wall: code that looks at its caller knows that it is asked.
"""

import ast
import collections
import operator
import random
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .decoys import decoys_of
from .encoding import derives
from .origins import Origins

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
_BY_NAME = {kind.__name__: function for kind, function in _OPERATORS.items()}
_AGAINST = {"Lt": operator.gt, "LtE": operator.gt, "Gt": operator.lt, "GtE": operator.lt}
_SAYS_EQUAL = {"Eq": True, "In": True, "NotEq": False, "NotIn": False}
_LEAVES = frozenset([int, float, str, bool, type(None), bytes, complex])
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
_STEPS = (-(10**6), -3, 2, 10**6)
_MOST_NODES = 20_000
_MOST_OF_A_CLASS = 4
_UNITTEST = (
    *("assertEqual", "assertListEqual", "assertTupleEqual", "assertSetEqual", "assertDictEqual"),
    *("assertSequenceEqual", "assertMultiLineEqual", "assertCountEqual", "assertIn"),
    *("assertAlmostEqual", "assertDictContainsSubset"),
)
_random = random.SystemRandom()
_members: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


class Comparing:
    """What comparisons ask.

    `tell` is called at a lie. `mocks`: whether the tests use unittest.mock, whose objects may equal
    anything.
    """

    # Slots: nothing can be put before its methods.
    __slots__ = ("_mocks", "_origins", "_tell", "mark")

    def __init__(self, tell: Callable[[], None], origins: Origins, mocks: bool) -> None:
        self._tell = tell
        self._origins = origins
        self._mocks = mocks
        self.mark = f"comparing {_random.getrandbits(64)}"

    def into(self, tree: ast.Module) -> None:
        """Leads the comparisons and differences of a syntax tree here; `embed` does the rest."""
        _Leading(self.mark).visit(tree)

    def embed(self, code: types.CodeType) -> types.CodeType:
        """Puts this object where the mark stands: a constant, to which no name leads."""
        constants = tuple(
            self.embed(each)
            if isinstance(each, types.CodeType)
            else self
            if type(each) is str and each == self.mark
            else each
            for each in code.co_consts
        )
        return code.replace(co_consts=constants)

    def into_unittest(self, case: type) -> None:
        """The same for the assertions of unittest that compare."""
        for name in _UNITTEST:
            if hasattr(case, name):
                setattr(case, name, self._asserting(getattr(case, name)))

    def _asserting(self, plain: Callable[..., None]) -> Callable[..., None]:
        def asserting(case: Any, *args: Any, **named: Any) -> None:
            plain(case, *args, **named)
            self.look(*[*args, *named.values()][:2])

        asserting.__name__, asserting.__doc__ = plain.__name__, plain.__doc__
        return asserting

    def compare(self, symbol: str, left: Any, right: Any) -> Any:
        """What the comparison gives. Raises AssertionError at a lie."""
        result = _BY_NAME[symbol](left, right)
        if type(left) in _LEAVES and type(right) in _LEAVES:
            return result
        if type(result) is bool and _SAYS_EQUAL.get(symbol) is result:
            self.look(left, right)
        ordered = result is True and symbol in _AGAINST and self._is_foreign(left, right)
        if ordered and _says(_AGAINST[symbol], left, right):
            self._fail()
        return result

    def subtract(self, left: Any, right: Any) -> Any:
        """`left - right`; an object that is as far from every number is a lie."""
        result = left - right
        if type(left) in _LEAVES and type(right) in _LEAVES:
            return result
        if type(result) in (int, float):
            for number, other, from_right in ((right, left, False), (left, right, True)):
                if type(number) in (int, float) and self._is_odd(other):
                    elsewhere = [number + step for step in _STEPS]
                    if all(
                        _says(_is_as_far, (other, each, from_right), result) for each in elsewhere
                    ):
                        self._fail()
        return result

    def look(self, one: Any, other: Any) -> None:
        """Asks the objects among two values that were equal. Raises AssertionError at a lie."""
        for value, against in ((one, other), (other, one)):
            for thing in self._suspects(value):
                if _lies(thing, against if thing is value else None):
                    self._fail()

    def _fail(self) -> None:
        self._tell()
        raise AssertionError("an object says that it equals whatever it is compared with")

    def _suspects(self, value: Any) -> Iterator[Any]:
        """The objects of the submission's classes in a value, a few of each class."""
        seen: set[int] = set()
        asked: collections.Counter[int] = collections.Counter()
        todo = [value]
        while todo and len(seen) < _MOST_NODES:
            thing = todo.pop()
            if type(thing) in _LEAVES or id(thing) in seen:
                continue
            seen.add(id(thing))
            if self._is_foreign(thing):
                asked[id(type(thing))] += 1
                if asked[id(type(thing))] <= _MOST_OF_A_CLASS:
                    yield thing
            todo += _parts(thing)

    def _is_foreign(self, *things: Any) -> bool:
        """Whether one of them compares by code that is neither the tests' nor the library's."""
        return any(
            type(each) in _PROXIES or self._is_foreign_method(type(each), name)
            for each in things
            for name in ("__eq__", "__lt__", "__gt__", "__contains__")
        )

    def _is_odd(self, thing: Any) -> bool:
        names = ("__sub__", "__rsub__")
        return type(thing) in _PROXIES or any(
            self._is_foreign_method(type(thing), name) for name in names
        )

    def _is_foreign_method(self, cls: type, name: str) -> bool:
        found = None
        for base in reversed(_mro(cls)):
            if self._mocks and _members(base).get("__module__") == "unittest.mock":
                return False
            found = _members(base).get(name, found)
        if isinstance(found, types.FunctionType):
            namespace = found.__globals__
            return not (self._origins.own(namespace) or self._origins.library(namespace))
        return not isinstance(found, types.WrapperDescriptorType | types.NoneType)


class _Leading(ast.NodeTransformer):
    def __init__(self, mark: str) -> None:
        self._mark = mark

    def _call(self, node: ast.expr, method: str, *operands: ast.expr) -> ast.Call:
        mark = ast.copy_location(ast.Constant(self._mark), node)
        function = ast.copy_location(ast.Attribute(mark, method, ast.Load()), node)
        return ast.copy_location(ast.Call(function, [*operands], []), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) != 1 or type(node.ops[0]) not in _OPERATORS:
            return node
        symbol = ast.copy_location(ast.Constant(type(node.ops[0]).__name__), node)
        return self._call(node, "compare", symbol, node.left, node.comparators[0])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Sub):
            return self._call(node, "subtract", node.left, node.right)
        return node


def _parts(thing: Any) -> list[Any]:
    """What a container of the library's holds, by its real type."""
    if derives(type(thing), dict):
        return [*dict.keys(thing), *dict.values(thing)]
    for kind in _SEQUENCES:
        if derives(type(thing), kind):
            return [*kind.__iter__(thing)]
    return [*vars(thing).values()] if type(thing) is types.SimpleNamespace else []


def _is_as_far(what: tuple[Any, Any, bool], distance: Any) -> Any:
    thing, number, from_right = what
    return (number - thing if from_right else thing - number) == distance


def _lies(thing: Any, other: Any) -> bool:
    if _says(operator.eq, thing, object()):
        return True
    number = _random.randrange(10**5, 10**9)
    # Two neighbours: who calculates modulo something, or not so exactly, equals one of them at most.
    for one, next_one in ((number, number + 1), (number + 0.25, number + 0.75)):
        if _says(operator.eq, thing, one) and _says(operator.eq, thing, next_one):
            return True
    for make in (str, lambda n: [n], lambda n: (n,), lambda n: {n: n}, lambda n: {n}):
        if _says(operator.eq, thing, make(number)) and _says(operator.eq, thing, make(number + 1)):
            return True
    decoys = decoys_of(other)
    return sum(_says(operator.eq, thing, decoy) for decoy in decoys) > len(decoys) / 2


def _says(function: Callable[[Any, Any], Any], one: Any, other: Any) -> bool:
    try:
        return bool(function(one, other))
    except Exception:
        return False
