"""The variables of test code while its calls are planned: constants, results of calls, helper functions."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from proctor_service.judge.analysis.literals import NotConstant, NotPlannable
from proctor_service.judge.analysis.names import Names


@dataclass(slots=True)
class Variable:
    """A variable of the tests: a constant, or what a call returned."""

    constant: Any = None
    call: int | None = None
    passed: bool = False


@dataclass(slots=True)
class Scope:
    """The names that a piece of test code has bound."""

    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef | ast.Lambda] = field(default_factory=dict)
    aliases: dict[str, list[Any]] = field(default_factory=dict)


class Constants:
    """The variables of the tests, as far as they are constants. Raises NotConstant, NotPlannable."""

    def __init__(self, scope: Scope, names: Names) -> None:
        self._scope = scope
        self._names = names

    def __contains__(self, name: object) -> bool:
        scope = self._scope
        return (
            name in scope.variables
            or name in scope.functions
            or name in scope.aliases
            or name in self._names.submission
        )

    def __getitem__(self, name: str) -> Any:
        variable = self._scope.variables.get(name)
        if variable is None or variable.call is not None:
            raise NotConstant(name)
        if variable.passed:
            raise NotPlannable("a container that a call may have changed")
        return variable.constant
