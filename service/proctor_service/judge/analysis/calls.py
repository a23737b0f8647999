"""Planning of the tests' calls of the submission, and the variables of the tests meanwhile."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from proctor_service.codec import values
from proctor_service.judge.analysis.literals import NotConstant, NotPlannable, Weights, evaluate
from proctor_service.judge.analysis.names import Names

_MOST_CALLS, _MOST_CALL_BYTES = 4096, 4 << 20


@dataclass(slots=True)
class Variable:
    """A variable of the tests: a constant, or the result of a call."""

    constant: Any = None
    call: int | None = None
    passed: bool = False


@dataclass(slots=True)
class Scope:
    """The names that a piece of test code has bound."""

    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef | ast.Lambda] = field(default_factory=dict)
    aliases: dict[str, list[Any]] = field(default_factory=dict)


class Calls:
    """The calls that tests make, and the meaning of names: `modules`, and functions of `math`.

    Also a mapping of the variables with constant values. Raises NotConstant and NotPlannable.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.made: list[list[Any]] = []
        self.used: list[int] = []
        self.scope = Scope()
        self.modules: dict[str, str] = {}
        self.math_names: dict[str, str] = {}
        self._bytes = 0
        self._weights = Weights()

    def __contains__(self, name: object) -> bool:
        scope = self.scope
        bound = name in scope.variables or name in scope.functions or name in scope.aliases
        return bound or name in self.names.submission

    def __getitem__(self, name: str) -> Any:
        variable = self.scope.variables.get(name)
        if variable is None or variable.call is not None:
            raise NotConstant(name)
        if variable.passed:
            raise NotPlannable("a container that a call may have changed")
        return variable.constant

    def constant(self, node: ast.expr) -> Any:
        """Return the value of a constant expression."""
        return evaluate(node, self, self.modules, self._weights)

    def forget(self, name: str) -> None:
        """Unbind a name before a new binding. Raises NotPlannable for the submission's names."""
        scope = self.scope
        for known in (scope.variables, scope.functions, scope.aliases):
            known.pop(name, None)
        self.modules.pop(name, None)
        self.math_names.pop(name, None)
        if name in self.names.submission:
            raise NotPlannable("the tests bind a name of the submission's")

    def is_call(self, node: ast.expr) -> bool:
        """Tell whether an expression calls the submission."""
        return isinstance(node, ast.Call) and self.target(node.func) is not None

    def target(self, node: ast.expr) -> list[Any] | None:
        """Return the target of a call: `["f"]`, or `["Solution", args, kwargs, "f"]`; else None."""
        scope = self.scope
        if isinstance(node, ast.Name):
            if node.id in scope.aliases:
                return scope.aliases[node.id]
            bound = node.id in scope.variables or node.id in scope.functions
            plain = node.id in self.names.submission and node.id not in self.names.classes
            return [node.id] if plain and not bound else None
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id=name)) as made, attr=method) if (
                name in self.names.classes and not method.startswith("__")
            ):
                args, kwargs = self._arguments(made, [])
                return [name, args, kwargs, method]
        return None

    def add(self, node: ast.expr, passed: list[Variable] | None = None) -> int:
        """Add a call, and return its number. Containers that the call may change go to `passed`."""
        assert isinstance(node, ast.Call)
        target = self.target(node.func)
        assert target is not None
        own = [] if passed is None else passed
        args, kwargs = self._arguments(node, own)
        if passed is None:
            for variable in own:
                variable.passed = True
        self.made.append([target[0] if len(target) == 1 else target, args, kwargs])
        self._bytes += len(values.dumps(self.made[-1][1:]))
        if len(self.made) > _MOST_CALLS or self._bytes > _MOST_CALL_BYTES:
            raise NotPlannable("too many calls")
        self.used.append(len(self.made) - 1)
        return len(self.made) - 1

    def _arguments(self, node: ast.Call, passed: list[Variable]) -> tuple[Any, Any]:
        """Return the encoded arguments; mutable variables among the arguments go to `passed`."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
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
        seen = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
        for name in set(seen):
            variable = self.scope.variables.get(name)
            if variable is not None and is_mutable(variable.constant):
                if seen.count(name) > 1 or any(each is variable for each in passed):
                    raise NotPlannable("a container that is passed twice")
                passed.append(variable)
        try:
            return values.encode(args), values.encode(kwargs)
        except (values.ValueTooDeep, values.ValueTooLarge):
            raise NotPlannable("an argument is too large") from None


def is_mutable(value: Any) -> bool:
    """Tell whether a constant is a mutable container, or a tuple with a mutable container."""
    if isinstance(value, tuple):
        return any(map(is_mutable, value))
    return isinstance(value, list | dict | set | bytearray)
