"""The level `calls`: tests as calls of the submission, and formulas over the results.

`assert abs(f(3) - 9) < 1e-6` becomes the call `f(3)`, made in the sandbox, and the formula
`abs(value - 9) < 1e-6`, computed here on plain data. One sandbox suffices, and expected values stay
out of the sandbox. Tests with loops, exceptions or objects are judged at another level.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proctor_service.codec import values
from proctor_service.judge.analysis.calls import Calls, Scope, Variable, is_mutable
from proctor_service.judge.analysis.formulas import (
    COMPARISONS,
    MATH,
    SINGLETONS,
    Check,
    Formulas,
    SourceText,
)
from proctor_service.judge.analysis.literals import NotConstant, NotPlannable
from proctor_service.judge.analysis.names import Names, star_names
from proctor_service.judge.analysis.suite import Suite


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """The conditions of one test, and the numbers of its calls."""

    checks: tuple[Check, ...]
    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Calls in their order, the conditions of each test, and the imports of the tests.

    `calls_json`: JSON list of `count` calls, each `[target, arguments, keywords]`. The service
    sends this string to the sandbox unchanged.
    """

    calls_json: str
    count: int
    tests: tuple[PlannedTest, ...]
    imports: tuple[str, ...]


def plan_calls(suite: Suite, names: Names) -> Plan:
    """Express a suite as calls and formulas. Raises NotPlannable."""
    tests = []
    try:
        planner = _Planner(names)
        planner.run(suite.setup.body, SourceText.of(suite.setup_text))
        for test in suite.tests:
            planner.checks, planner.calls.used = [], []
            planner.run(test.tree.body, SourceText.of(test.text))
            for step in test.run:
                planner.run_step(step)
            tests.append(PlannedTest(tuple(planner.checks), tuple(planner.calls.used)))
    except NotConstant as error:
        raise NotPlannable(str(error)) from None
    if not all(test.calls for test in tests):
        raise NotPlannable("a test calls nothing")
    imports = (*names.imports, *planner.imports)
    calls = planner.calls.made
    return Plan(json.dumps(calls), len(calls), tuple(tests), imports)


class _Planner:
    def __init__(self, names: Names) -> None:
        self.calls = Calls(names)
        self.imports: list[str] = []
        self.checks: list[Check] = []
        self._source = SourceText(())
        self._defined_in: dict[int, SourceText] = {}
        for statement in names.imports:
            self._import(ast.parse(statement).body[0], note=False)

    def run(self, body: Sequence[ast.stmt], source: SourceText) -> None:
        outer, self._source = self._source, source
        for statement in body:
            self._statement(statement)
        self._source = outer

    def run_step(self, step: tuple[Any, ...]) -> None:
        """Plan the body of `check(candidate)` or of a test function."""
        kind, name = step[0], step[1]
        function = self.calls.scope.functions.get(name) if kind != "cases" else None
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            raise NotPlannable(kind)
        outer = self.calls.scope
        self.calls.scope = Scope(dict(outer.variables), dict(outer.functions), dict(outer.aliases))
        if kind == "check":
            arguments = [*function.args.posonlyargs, *function.args.args]
            if len(arguments) != 1:
                raise NotPlannable("check takes more than a candidate")
            self.calls.forget(arguments[0].arg)
            self.calls.scope.aliases[arguments[0].arg] = _target_of(step[2])
        self.run(function.body, self._defined_in[id(function)])
        self.calls.scope = outer

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assert(test=test):
                self._condition(test)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._assign(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self._assign(name, value)
            case ast.Import() | ast.ImportFrom():
                self._import(node, note=True)
            case ast.FunctionDef(name=name, decorator_list=[]):
                self.calls.forget(name)
                self.calls.scope.functions[name] = node
                self._defined_in[id(node)] = self._source
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=[one], keywords=[])) if (
                name == "check" and name in self.calls.scope.functions
            ):
                if not isinstance(one, ast.Name) or one.id not in self.calls.names.submission:
                    raise NotPlannable("check of something else")
                self.run_step(("check", name, one.id))
            case _:
                raise NotPlannable(type(node).__name__)

    def _assign(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Lambda):
            self.calls.forget(name)
            self.calls.scope.functions[name] = value
            return
        target = self.calls.target(value)
        if target is not None:
            self.calls.forget(name)
            self.calls.scope.aliases[name] = target
            return
        if isinstance(value, ast.Call) and self.calls.target(value.func) is not None:
            number = self.calls.add(value)
            self.calls.forget(name)
            self.calls.scope.variables[name] = Variable(call=number)
            return
        constant = self.calls.constant(value)
        if any(isinstance(each, ast.Name) and is_mutable(constant) for each in ast.walk(value)):
            raise NotPlannable("two names for one container")
        self.calls.forget(name)
        self.calls.scope.variables[name] = Variable(constant)

    def _import(self, node: ast.stmt, *, note: bool) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._check_module(alias.name)
                if note:
                    self.calls.forget(alias.asname or alias.name.partition(".")[0])
                self.calls.modules[alias.asname or alias.name.partition(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            self._check_module(node.module)
            for alias in node.names:
                name = alias.asname or alias.name
                if alias.name == "*":
                    if star_names(node.module) is None:
                        raise NotPlannable("a star import")
                    if node.module == "math":
                        self.calls.math_names.update({each: each for each in MATH})
                    continue
                if note:
                    self.calls.forget(name)
                if node.module == "math" and alias.name in MATH:
                    self.calls.math_names[name] = alias.name
        else:
            raise NotPlannable("a relative import")
        if note:
            self.imports.append(ast.unparse(node))

    def _check_module(self, module: str) -> None:
        if module.partition(".")[0] not in sys.stdlib_module_names:
            raise NotPlannable(f"imports {module}")

    def _condition(self, node: ast.expr) -> None:
        """Add the condition of an `assert`; `a and b` adds one for each part."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for part in node.values:
                self._condition(part)
            return
        passed: list[Variable] = []
        check = self._simple_check(node, passed) or self._formula_check(node, passed)
        for variable in passed:
            variable.passed = True
        self.checks.append(check)

    def _simple_check(self, node: ast.expr, passed: list[Variable]) -> Check | None:
        """Return the check of a call, alone or against a literal; None for other conditions."""
        negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        inner = node.operand if negated else node  # type: ignore[attr-defined]
        if self.calls.is_call(inner):
            number = self.calls.add(inner, passed)
            shown, text = self._source.text_of(inner), self._source.text_of(node)
            return Check(shown, text, (number,), negated=negated)
        if negated or not (isinstance(node, ast.Compare) and len(node.ops) == 1):
            return None
        reflected = not self.calls.is_call(node.left)
        call, other = (
            (node.comparators[0], node.left) if reflected else (node.left, node.comparators[0])
        )
        if not self.calls.is_call(call) or type(node.ops[0]) in (ast.In, ast.NotIn):
            return None
        symbol, compare = COMPARISONS[type(node.ops[0])]
        try:
            expected = self.calls.constant(other)
            wire = values.encode(expected)
            size = len(values.dumps(wire))
        except (NotConstant, NotPlannable, values.ValueTooDeep, values.ValueTooLarge):
            return None
        if symbol.startswith("is") and not any(expected is each for each in SINGLETONS):
            return None
        return Check(
            self._source.text_of(call),
            self._source.text_of(node),
            (self.calls.add(call, passed),),
            compare=compare,
            symbol=symbol,
            expected=expected,
            wire=wire,
            wire_bytes=size,
            reflected=reflected,
        )

    def _formula_check(self, node: ast.expr, passed: list[Variable]) -> Check:
        calls: list[int] = []
        formula = Formulas(self.calls, calls, passed).of(node)
        if not calls and not formula(_no_value):  # a constant condition
            raise NotPlannable("a condition that never holds")
        text = self._source.text_of(node)
        return Check("the condition", text, tuple(calls), formula=formula)


def _target_of(entry_point: str) -> list[Any]:
    """Return the target of an entry point: `f`, `Solution().f`, or "" for the last function."""
    head, dot, method = entry_point.partition("().")
    if dot:
        return [head, values.encode([]), values.encode({}), method]
    if "." in entry_point or entry_point.endswith(")"):
        raise NotPlannable("an entry point of several parts")
    return [entry_point]


def _no_value(number: int) -> Any:
    raise NotPlannable("no call")
