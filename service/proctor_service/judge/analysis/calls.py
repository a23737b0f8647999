"""Planning of the tests' calls of the submission, and the names of the tests meanwhile."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from proctor_service.codec import values
from proctor_service.codec.limits import MAX_LINE_BYTES, PART_BYTES
from proctor_service.judge.analysis.literals import (
    Evaluator,
    NotConstant,
    NotPlannable,
    Weights,
)
from proctor_service.judge.analysis.names import Names
from proctor_service.judge.analysis.suite import nodes_of

# Expanded size of all calls: of those that are written out, and beyond, since helpers call helpers.
# They are a part of the line with the job, which also has the program and its files.
_MOST_CALL_BYTES = 4 << 20
_BYTES_A_CHARACTER = PART_BYTES // 2  # an item of a list has at least two characters
_MOST_LINE_BYTES = MAX_LINE_BYTES // 2
_MOST_STEPS = 50_000  # of planning, beyond the length of the text: helpers call helpers


_NO_KEYWORDS = values.encode({})


@dataclass(slots=True)
class Variable:
    """A variable of the tests: a constant, or the value with a number.

    The number is a call's, or below zero a parameter's of a helper function (`formulas.py`).
    """

    constant: Any = None
    number: int | None = None
    passed: bool = False


@dataclass(frozen=True, slots=True)
class Helper:
    """A function defined by the tests, and the scope around the definition."""

    node: ast.FunctionDef | ast.Lambda
    scope: Scope


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name of a function of the submission."""

    target: list[Any]


@dataclass(frozen=True, slots=True)
class Imported:
    """A module, or a module's object of a name."""

    module: str
    name: str = ""


Passed = dict[int, Variable]
"""Variables open to change by a call, by their ids."""
Meaning = Variable | Helper | Alias | Imported


@dataclass(frozen=True, slots=True)
class Scope:
    """The names bound by test code: a function's own, then the names around its definition."""

    own: dict[str, Meaning] = field(default_factory=dict)
    around: Scope | None = None

    def get(self, name: str) -> Meaning | None:
        """Return the meaning of a name, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.own.get(name)
            if found is not None:
                return found
            scope = scope.around
        return None


class Calls:
    """The calls made by tests, and the meaning of names.

    Also a mapping of the variables with constant values. Raises NotConstant and NotPlannable.
    """

    def __init__(self, names: Names, characters: int) -> None:
        self.names = names
        self.made: list[list[Any]] = []
        self.used: list[int] = []
        self.scope = Scope()
        self.version = 0  # grows when the meaning of a name changes
        self._bytes_left = _MOST_CALL_BYTES + _BYTES_A_CHARACTER * characters
        self.steps = 0
        self._steps_left = _MOST_STEPS + characters
        self.weights = Weights(characters)
        self._evaluator = Evaluator(self, self.module_of, self.weights)
        self._has_mutable = False  # a variable open to change by a call
        self.read: set[int] = set()  # by id: containers read by a statement outside of arguments

    def __contains__(self, name: object) -> bool:
        return self.scope.get(str(name)) is not None or name in self.names.submission

    def __getitem__(self, name: str) -> Any:
        variable = self.scope.get(name)
        if not isinstance(variable, Variable) or variable.number is not None:
            raise NotConstant(name)
        if variable.passed:
            raise NotPlannable("a container that a call may have changed")
        if self._has_mutable and self.weights.is_mutable(variable.constant):
            self.read.add(id(variable))
        return variable.constant

    def count_steps(self, steps: int = 1) -> None:
        """Count planned statements or expressions. Raises NotPlannable."""
        self.steps += steps
        self._steps_left -= steps
        if self._steps_left < 0:
            raise NotPlannable("helper functions that are called too often")

    def module_of(self, name: str) -> str:
        """Return the module bound to a name, or ""."""
        meaning = self.scope.get(name)
        return meaning.module if isinstance(meaning, Imported) and not meaning.name else ""

    def constant(self, node: ast.expr, failed: set[int] | None = None) -> Any:
        """Return the value of a constant expression; `failed` as in `evaluate`."""
        if type(node) is ast.Constant:
            return self.weights.checked(node.value)
        return self._evaluator.of(node, failed)

    def bind(self, name: str, meaning: Meaning) -> None:
        """Bind a name in the scope. Raises NotPlannable for the submission's names."""
        self.check_own(name)
        self.version += 1
        self.scope.own[name] = meaning
        if isinstance(meaning, Variable) and self.weights.is_mutable(meaning.constant):
            self._has_mutable = True

    def check_own(self, name: str) -> None:
        """Raise NotPlannable if the tests bind a name of the submission."""
        if name in self.names.submission:
            raise NotPlannable("the tests bind a name of the submission's")

    def called(self, node: ast.expr) -> list[Any] | None:
        """Return the target of a call of the submission, or None for other expressions."""
        return self.target(node.func) if isinstance(node, ast.Call) else None

    def target(self, node: ast.expr) -> list[Any] | None:
        """Return the target of a call, or None.

        `["f"]` is a function, `["Solution", args, kwargs, "f"]` a method of a new object, and `[3]` the
        method with the number 3 from `keep`.
        """
        if isinstance(node, ast.Name):
            meaning = self.scope.get(node.id)
            if isinstance(meaning, Alias):
                return meaning.target
            plain = node.id in self.names.submission and node.id not in self.names.fresh
            return [node.id] if plain and meaning is None else None
        if not self.names.fresh:
            return None
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id=name)) as made, attr=method) if (
                name in self.names.fresh
                and self.scope.get(name) is None
                and not method.startswith("__")
            ):
                args, kwargs = self._arguments(made, {})
                return [name, args, kwargs, method]
        return None

    def alias(self, node: ast.expr) -> Alias | None:
        """Return the alias made by an expression, or None."""
        target = self.target(node) if type(node) in (ast.Name, ast.Attribute) else None
        if target is None or len(target) == 1:
            return None if target is None else Alias(target)
        assert isinstance(node, ast.Attribute)
        assert isinstance(node.value, ast.Call)
        passed_values: Passed = {}
        self._arguments(node.value, passed_values)
        self.note_passed(passed_values)
        return self.keep(target)

    def keep(self, target: list[Any]) -> Alias:
        """Make an object now, for all calls of its method by a name."""
        return Alias([self._made([target])])

    def add(self, node: ast.expr, target: list[Any], passed: Passed | None = None) -> int:
        """Add a call, and return its number. Containers that the call may change go to `passed`.

        `target`: the result of `called`.
        """
        assert isinstance(node, ast.Call)
        own = {} if passed is None else passed
        args, kwargs = self._arguments(node, own)
        if passed is None:
            self.note_passed(own)
        return self._made([target[0] if len(target) == 1 else target, args, kwargs])

    def note_passed(self, passed: Passed) -> None:
        """Forget the values of containers that a call may have changed.

        Raises NotPlannable if the same statement reads one of these containers, and may see the change.
        """
        if not self.read.isdisjoint(passed):
            raise NotPlannable("a container that a call may have changed")
        for variable in passed.values():
            variable.passed = True
            self.version += 1

    def lines(self) -> tuple[bytes, ...]:
        """Return a line for each call. Raises NotPlannable if they are too long for a sandbox."""
        try:
            lines = tuple(map(values.dumps, self.made))
        except values.ValueTooLarge:
            raise NotPlannable("too many calls") from None
        if sum(map(len, lines)) > _MOST_LINE_BYTES:
            raise NotPlannable("too many calls")
        return lines

    def _made(self, call: list[Any]) -> int:
        self.made.append(call)
        self.used.append(len(self.made) - 1)
        return len(self.made) - 1

    def _arguments(self, node: ast.Call, passed: Passed) -> tuple[Any, Any]:
        """Return the encoded arguments; mutable variables among the arguments go to `passed`."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        read = self.read.copy()
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                args.extend(self.constant(argument.value))
            else:
                args.append(self.constant(argument))
        for keyword in node.keywords:
            if keyword.arg is None:
                kwargs.update(self.constant(keyword.value))
            else:
                kwargs[keyword.arg] = self.constant(keyword.value)
        self.read = read
        if self._has_mutable:
            self._note_mutable(node, passed)
        return self._encoded(args), self._encoded(kwargs) if kwargs else _NO_KEYWORDS

    def _encoded(self, value: Any) -> Any:
        encoder = values.Encoder()
        try:
            wire = encoder.encode(value)
        except (values.ValueTooDeep, values.ValueTooLarge):
            raise NotPlannable("an argument is too large") from None
        self._bytes_left -= PART_BYTES + encoder.expanded_bytes
        if self._bytes_left < 0:
            raise NotPlannable("too many calls")
        return wire

    def _note_mutable(self, node: ast.Call, passed: Passed) -> None:
        seen = Counter(each.id for each in nodes_of(node) if type(each) is ast.Name)
        for name, count in seen.items():
            variable = self.scope.get(name)
            if isinstance(variable, Variable) and self.weights.is_mutable(variable.constant):
                if count > 1 or id(variable) in passed:
                    raise NotPlannable("a container that is passed twice")
                passed[id(variable)] = variable


def parameters_of(function: ast.FunctionDef | ast.Lambda) -> list[str]:
    """Return the names of a function's parameters. Raises NotPlannable beyond `a, b`."""
    arguments = function.args
    if (
        arguments.defaults
        or arguments.vararg
        or arguments.kwonlyargs
        or arguments.kwarg
        or (isinstance(function, ast.FunctionDef) and function.decorator_list)
    ):
        raise NotPlannable("a function with more than plain parameters")
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
