"""Comparison policy: checked comparisons and assertions in the submission's interpreter.

In this interpreter, `assert f(2) == 4` calls methods of the submission's own objects. Each
comparison in the grader's files, and in unittest, goes through this module. An object that equals
every value is detected, and the test fails. Classes with a regular `__eq__`, equal to a single
value or to values of one kind, pass. The policy is not a security boundary: code that inspects its
caller can detect the check.
"""

from __future__ import annotations

import ast
import collections
import operator
import random
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from ..origins import Origins
from . import instrumenting
from .operators import OPERATORS

_AGAINST = {"Lt": operator.gt, "LtE": operator.gt, "Gt": operator.lt, "GtE": operator.lt}
_SAYS_EQUAL = {"Eq": True, "In": True, "NotEq": False, "NotIn": False}
_LEAVES = frozenset([int, float, str, bool, type(None), bytes, complex])
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
_COMPARING = ("__eq__", "__lt__", "__gt__", "__contains__")
_SUBTRACTING = ("__sub__", "__rsub__", "__abs__")
_ARRAY_PROTOCOLS = ("__array_function__", "__array_ufunc__")
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
    """Operations of instrumented test code: comparisons and assertions.

    `tell` is called when an object is caught. `texts` of the tests: if these use unittest.mock, mock
    objects may equal anything. `failures` counts failed assertions, even if the submission catches
    their exceptions.
    """

    # Slots prevent instance attributes that would shadow the methods.
    __slots__ = ("_mark", "_mocks", "_numpy", "_origins", "_tell", "failures")

    def __init__(self, tell: Callable[[], None], origins: Origins, texts: Collection[str]) -> None:
        self._tell = tell
        self._origins = origins
        self._mocks = speak_of("mock", texts)
        self._numpy = speak_of("numpy", texts)
        self._mark = f"comparing {_random.getrandbits(64)}"
        self.failures = 0

    def into(self, tree: ast.Module, builtin: frozenset[str] = frozenset()) -> None:
        """Redirect a syntax tree's comparisons and assertions to the mark; `embed` sets the object.

        `builtin`: names of Python's own functions, even if the globals define these names.
        """
        instrumenting.Instrument(self._mark, self._numpy, builtin).visit(tree)

    def named(self, name: str) -> Any:
        """Return the current builtin with this name."""
        return vars(sys.modules["builtins"])[name]

    def embed(self, code: types.CodeType) -> types.CodeType:
        """Replace the mark in compiled code by this object."""
        return instrumenting.embed(code, self._mark, self)

    def holds(self, value: Any) -> bool:
        """Tell whether an assertion holds."""
        if value:
            return True
        self.failures += 1
        return False

    def plain(self, value: Any) -> Any:
        """Return the value. Raises AssertionError for the submission's numpy array protocols."""
        things = value if type(value) in (list, tuple) and len(value) < _MOST_NODES else (value,)
        for thing in things:
            if type(thing) not in _LEAVES and any(
                self._is_foreign_method(type(thing), name) for name in _ARRAY_PROTOCOLS
            ):
                self._fail()
        return value

    async def awaited(self, awaitable: Any) -> Any:
        """Await a value. A cancellation without a request is a failure of the submission."""
        import asyncio  # imported here: only some tests await

        try:
            return await awaitable
        except asyncio.CancelledError as error:
            tasks = (asyncio.current_task(), awaitable)
            asked = any(getattr(task, "cancelling", int)() for task in tasks)
            asked = asked or self._ended_in_library(error)
            if not asked and self._origins.passed_submission(error):
                self.failures += 1
                raise AssertionError("the program cancelled itself") from None
            raise

    def _ended_in_library(self, error: BaseException) -> bool:
        """Tell whether a library raised the exception, as in a cancelled task that waits."""
        entry = error.__traceback__
        while entry is not None and entry.tb_next is not None:
            entry = entry.tb_next
        return entry is not None and self._origins.library(entry.tb_frame.f_globals)

    def into_unittest(self, case: type) -> None:
        """Wrap the comparing assertions of unittest in the same checks."""
        for name in _UNITTEST:
            if hasattr(case, name):
                setattr(case, name, self._asserting(getattr(case, name)))

    def _asserting(self, plain: Callable[..., None]) -> Callable[..., None]:
        def asserting(case: Any, *args: Any, **named: Any) -> None:
            try:
                plain(case, *args, **named)
            except case.failureException:
                self.failures += 1
                raise
            compared = [*args, *named.values()][:2]
            if is_close and len(compared) == 2:
                self.subtract(*compared)
            self.check(*compared)

        is_close = plain.__name__ == "assertAlmostEqual"

        asserting.__name__, asserting.__doc__ = plain.__name__, plain.__doc__
        return asserting

    def compare(self, symbol: str, left: Any, right: Any) -> Any:
        """Return the comparison's result. Raises AssertionError if an object is caught."""
        result = OPERATORS[symbol](left, right)
        if type(left) in _LEAVES and type(right) in _LEAVES:
            return result
        if self._numpy:
            self.plain(left)
            self.plain(right)
        if type(result) is bool and _SAYS_EQUAL.get(symbol) is result:
            self.check(left, right)
        ordered = result is True and symbol in _AGAINST and self._is_foreign(left, right)
        if ordered and _says(_AGAINST[symbol], left, right):
            self._fail()
        return result

    def subtract(self, left: Any, right: Any) -> Any:
        """Return `left - right`. Raises AssertionError for an object as far from every number."""
        result = left - right
        if type(left) in _LEAVES and type(right) in _LEAVES:
            return result
        for number, other, from_right in ((right, left, False), (left, right, True)):
            if type(number) in (int, float) and self._is_foreign(other, names=_SUBTRACTING):
                distance = _distance(result)
                elsewhere = [(other, number + step, from_right) for step in _STEPS]
                if distance is not None and all(
                    _says(_is_as_far, each, distance) for each in elsewhere
                ):
                    self._fail()
        return result

    def check(self, one: Any, other: Any) -> None:
        """Test the objects in two equal values. Raises AssertionError if an object is caught."""
        for value, against in ((one, other), (other, one)):
            things = self._suspects(value)
            if _is_approximation(against) and self._is_foreign(value, names=_SUBTRACTING):
                things = iter([value])
            for thing in things:
                if _lies(thing, against if thing is value else None):
                    self._fail()

    def _fail(self) -> None:
        self.failures += 1
        self._tell()
        raise AssertionError("an object says that it equals whatever it is compared with")

    def _suspects(self, value: Any) -> Iterator[Any]:
        """Iterate over objects of the submission's classes in a value, a few of each class."""
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

    def _is_foreign(self, *things: Any, names: Sequence[str] = _COMPARING) -> bool:
        """Tell whether any of the objects has one of these methods from the submission's code."""
        return any(
            type(each) in _PROXIES or self._is_foreign_method(type(each), name)
            for each in things
            for name in names
        )

    def _is_foreign_method(self, cls: type, name: str) -> bool:
        found = None
        for base in reversed(_mro(cls)):
            if self._mocks and _members(base).get("__module__") == "unittest.mock":
                return False
            found = _members(base).get(name, found)
        if isinstance(found, types.FunctionType):
            return not self._origins.trusted(found)
        builtin = (types.WrapperDescriptorType, types.MethodDescriptorType, type(None))
        return not isinstance(found, builtin)


def speak_of(word: str, texts: Collection[str]) -> bool:
    """Tell whether a word occurs in any of the texts."""
    return any(word in text for text in texts)


def _parts(thing: Any) -> list[Any]:
    """Return the contents of a standard container, by its real type."""
    if dict in _mro(type(thing)):
        return [*dict.keys(thing), *dict.values(thing)]
    for kind in _SEQUENCES:
        if kind in _mro(type(thing)):
            return [*kind.__iter__(thing)]
    return [*vars(thing).values()] if type(thing) is types.SimpleNamespace else []


def _is_as_far(what: tuple[Any, Any, bool], distance: Any) -> Any:
    thing, number, from_right = what
    return _distance(number - thing if from_right else thing - number) == distance


def _distance(difference: Any) -> Any:
    """Return a difference as a number: itself or its `abs()`; None if not numeric."""
    if type(difference) in (int, float):
        return difference
    try:
        amount = abs(difference)
    except Exception:
        return None
    return amount if type(amount) in (int, float) else None


def _lies(thing: Any, other: Any) -> bool:
    if _says(operator.eq, thing, object()):
        return True
    number = _random.randrange(10**5, 10**9)
    # Two neighbours: a class that compares modulo n, or approximately, equals at most one of them.
    small = _random.randrange(2, 900)
    pairs = ((number, number + 1), (small, small + 1), (number + 0.25, number + 0.75))
    for one, next_one in pairs:
        if _says(operator.eq, thing, one) and _says(operator.eq, thing, next_one):
            return True
    for make in (str, lambda n: [n], lambda n: (n,), lambda n: {n: n}, lambda n: {n}):
        if _says(operator.eq, thing, make(number)) and _says(operator.eq, thing, make(number + 1)):
            return True
    if _is_approximation(other):
        approximations = [type(other)(number + step) for step in _STEPS]
        return all(_says(operator.eq, thing, each) for each in approximations)
    return False


def _is_approximation(thing: Any) -> bool:
    """Tell whether a value is `pytest.approx` of a number, which subtracts the compared value."""
    return (type(thing).__module__, type(thing).__name__) == ("_pytest.python_api", "ApproxScalar")


def _says(function: Callable[[Any, Any], Any], one: Any, other: Any) -> bool:
    try:
        return bool(function(one, other))
    except Exception:
        return False
