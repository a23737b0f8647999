"""The level `calls`: tests as calls of the submission, and formulas over what these return.

`assert abs(f(3) - 9) < 1e-6` is the call `f(3)`, made in the sandbox, and the formula
`abs(value - 9) < 1e-6`, computed here, on plain data. One sandbox suffices, and no expected value goes
there. Tests that cannot be written so (loops, exceptions, objects) are judged at another level.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proctor_service.inside import values
from proctor_service.judge.analysis.formulas import (
    COMPARISONS,
    MATH,
    SINGLETONS,
    Check,
    Formulas,
    is_mutable,
    text_of,
)
from proctor_service.judge.analysis.literals import NotConstant, NotPlannable, evaluate
from proctor_service.judge.analysis.names import Names, star_names
from proctor_service.judge.analysis.suite import Suite
from proctor_service.judge.analysis.variables import Constants, Scope, Variable

_MOST_CALLS, _MOST_CALL_BYTES = 4096, 4 << 20


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """The conditions of one test, and the numbers of the calls that it makes."""

    checks: tuple[Check, ...]
    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Calls in their order, what each test makes of them, and imports that the tests need.

    `calls_json` is the JSON list of `count` calls, each `[target, arguments, keywords]`: one string, since
    it goes to the sandbox as it is.
    """

    calls_json: str
    count: int
    tests: tuple[PlannedTest, ...]
    imports: tuple[str, ...]


def plan_calls(suite: Suite, names: Names) -> Plan:
    """Express a suite as calls and formulas. Raises NotPlannable."""
    try:
        return _plan(suite, names)
    except NotConstant as error:
        raise NotPlannable(str(error)) from None


def _plan(suite: Suite, names: Names) -> Plan:
    planner = _Planner(suite, names)
    planner.run(suite.setup.body, suite.setup_text)
    tests = []
    for test in suite.tests:
        planner.begin_test()
        planner.run(test.tree.body, test.text)
        for step in test.run:
            planner.run_step(step)
        tests.append(planner.end_test())
    if not all(test.calls for test in tests):
        raise NotPlannable("a test calls nothing")
    imports = (*names.imports, *planner.imports)
    return Plan(json.dumps(planner.calls), len(planner.calls), tuple(tests), imports)


class _Planner:
    def __init__(self, suite: Suite, names: Names) -> None:
        self.calls: list[list[Any]] = []
        self.imports: list[str] = []
        self._names = names
        self.modules: dict[str, str] = {}
        self.math_names: dict[str, str] = {}
        self._scope = Scope()
        self._checks: list[Check] = []
        self._used: list[int] = []
        self._bytes = 0
        self._source = ""
        self._defined_in: dict[int, str] = {}
        for statement in names.imports:
            self._import(ast.parse(statement).body[0], note=False)

    def begin_test(self) -> None:
        self._checks, self._used = [], []

    def end_test(self) -> PlannedTest:
        return PlannedTest(tuple(self._checks), tuple(self._used))

    def run(self, body: Sequence[ast.stmt], source: str) -> None:
        outer, self._source = self._source, source
        for statement in body:
            self._statement(statement)
        self._source = outer

    def run_step(self, step: tuple[Any, ...]) -> None:
        """Take over the body of `check(candidate)`, or of a test function."""
        kind, name = step[0], step[1]
        function = self._scope.functions.get(name) if kind != "cases" else None
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            raise NotPlannable(kind)
        outer = self._scope
        self._scope = Scope(dict(outer.variables), dict(outer.functions), dict(outer.aliases))
        if kind == "check":
            arguments = [*function.args.posonlyargs, *function.args.args]
            if len(arguments) != 1:
                raise NotPlannable("check takes more than a candidate")
            self._forget(arguments[0].arg)
            self._scope.aliases[arguments[0].arg] = _target_of(step[2])
        self.run(function.body, self._defined_in[id(function)])
        self._scope = outer

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
                self._forget(name)
                self._scope.functions[name] = node
                self._defined_in[id(node)] = self._source
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=[one], keywords=[])) if (
                name == "check" and name in self._scope.functions
            ):
                self._call_check(name, one)
            case _:
                raise NotPlannable(type(node).__name__)

    def _call_check(self, name: str, argument: ast.expr) -> None:
        """`check(f)` as a statement of the tests."""
        if not isinstance(argument, ast.Name) or argument.id not in self._names.submission:
            raise NotPlannable("check of something else")
        self.run_step(("check", name, argument.id))

    def _forget(self, name: str) -> None:
        scope = self._scope
        for known in (
            scope.variables,
            scope.functions,
            scope.aliases,
            self.modules,
            self.math_names,
        ):
            known.pop(name, None)
        if name in self._names.submission:
            raise NotPlannable("the tests bind a name of the submission's")

    def _assign(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Lambda):
            self._forget(name)
            self._scope.functions[name] = value
            return
        target = self._target(value)
        if target is not None:
            self._forget(name)
            self._scope.aliases[name] = target
            return
        if isinstance(value, ast.Call) and self._target(value.func) is not None:
            number = self.add_call(value)
            self._forget(name)
            self._scope.variables[name] = Variable(call=number)
            return
        constant = self.constant(value)
        if any(isinstance(each, ast.Name) and is_mutable(constant) for each in ast.walk(value)):
            raise NotPlannable("two names for one container")
        self._forget(name)
        self._scope.variables[name] = Variable(constant)

    def _import(self, node: ast.stmt, *, note: bool) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._check_module(alias.name)
                if note:
                    self._forget(alias.asname or alias.name.partition(".")[0])
                self.modules[alias.asname or alias.name.partition(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            self._check_module(node.module)
            for alias in node.names:
                name = alias.asname or alias.name
                if alias.name == "*":
                    if star_names(node.module) is None:
                        raise NotPlannable("a star import")
                    if node.module == "math":
                        self.math_names.update({each: each for each in MATH})
                    continue
                if note:
                    self._forget(name)
                if node.module == "math" and alias.name in MATH:
                    self.math_names[name] = alias.name
        else:
            raise NotPlannable("a relative import")
        if note:
            self.imports.append(ast.unparse(node))

    def _check_module(self, module: str) -> None:
        if module.partition(".")[0] not in sys.stdlib_module_names:
            raise NotPlannable(f"imports {module}")

    def _condition(self, node: ast.expr) -> None:
        """Add what an `assert` demands; `a and b` demands each."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for part in node.values:
                self._condition(part)
            return
        passed: list[Variable] = []
        check = self._simple_check(node, passed) or self._formula_check(node, passed)
        for variable in passed:
            variable.passed = True
        self._checks.append(check)

    def _simple_check(self, node: ast.expr, passed: list[Variable]) -> Check | None:
        """Return the check of a call and a literal, or None where it is more than these."""
        negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        inner = node.operand if negated else node  # type: ignore[attr-defined]
        if self.is_call(inner):
            number = self.add_call(inner, passed)
            shown, text = text_of(inner, self._source), text_of(node, self._source)
            return Check(shown, text, (number,), negated=negated)
        if negated or not (isinstance(node, ast.Compare) and len(node.ops) == 1):
            return None
        reflected = not self.is_call(node.left)
        call, other = (
            (node.comparators[0], node.left) if reflected else (node.left, node.comparators[0])
        )
        if not self.is_call(call) or type(node.ops[0]) in (ast.In, ast.NotIn):
            return None
        symbol, compare = COMPARISONS[type(node.ops[0])]
        try:
            expected = self.constant(other)
            wire = values.encode(expected)
            size = len(values.dumps(wire))
        except (NotConstant, NotPlannable, values.ValueTooDeep, values.ValueTooLarge):
            return None
        if symbol.startswith("is") and not any(expected is each for each in SINGLETONS):
            return None
        return Check(
            text_of(call, self._source),
            text_of(node, self._source),
            (self.add_call(call, passed),),
            compare=compare,
            symbol=symbol,
            expected=expected,
            wire=wire,
            wire_bytes=size,
            reflected=reflected,
        )

    def _formula_check(self, node: ast.expr, passed: list[Variable]) -> Check:
        calls: list[int] = []
        formula = Formulas(self, calls, passed).of(node)
        if not calls and not formula(_no_value):  # it says nothing about the submission
            raise NotPlannable("a condition that never holds")
        text = text_of(node, self._source)
        return Check("the condition", text, tuple(calls), formula=formula)

    def constant(self, node: ast.expr) -> Any:
        return evaluate(node, Constants(self._scope, self._names), self.modules)

    def is_call(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._target(node.func) is not None

    def call_of(self, name: str) -> int | None:
        variable = self._scope.variables.get(name)
        return None if variable is None else variable.call

    def function_of(self, name: str) -> ast.FunctionDef | ast.Lambda | None:
        return self._scope.functions.get(name)

    def is_bound(self, name: str) -> bool:
        return name in self._scope.variables or name in self._names.submission

    def _target(self, node: ast.expr) -> list[Any] | None:
        """Return what a call calls: `["f"]`, or `["Solution", args, kwargs, "f"]`; else None."""
        scope = self._scope
        if isinstance(node, ast.Name):
            if node.id in scope.aliases:
                return scope.aliases[node.id]
            bound = node.id in scope.variables or node.id in scope.functions
            plain = node.id in self._names.submission and node.id not in self._names.classes
            return [node.id] if plain and not bound else None
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id=name)) as made, attr=method) if (
                name in self._names.classes and not method.startswith("__")
            ):
                args, kwargs = self._arguments(made, [])
                return [name, args, kwargs, method]
        return None

    def add_call(self, node: ast.expr, passed: list[Variable] | None = None) -> int:
        assert isinstance(node, ast.Call)
        target = self._target(node.func)
        assert target is not None
        own = [] if passed is None else passed
        args, kwargs = self._arguments(node, own)
        if passed is None:
            for variable in own:
                variable.passed = True
        self.calls.append([target[0] if len(target) == 1 else target, args, kwargs])
        self._bytes += len(values.dumps(self.calls[-1][1:]))
        if len(self.calls) > _MOST_CALLS or self._bytes > _MOST_CALL_BYTES:
            raise NotPlannable("too many calls")
        self._used.append(len(self.calls) - 1)
        return len(self.calls) - 1

    def _arguments(self, node: ast.Call, passed: list[Variable]) -> tuple[Any, Any]:
        """Return the encoded arguments; variables in them go to `passed`, if they can change."""
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
        self._note_passed(node, passed)
        try:
            return values.encode(args), values.encode(kwargs)
        except (values.ValueTooDeep, values.ValueTooLarge):
            raise NotPlannable("an argument is too large") from None

    def _note_passed(self, node: ast.Call, passed: list[Variable]) -> None:
        seen = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
        for name in set(seen):
            variable = self._scope.variables.get(name)
            if variable is not None and is_mutable(variable.constant):
                if seen.count(name) > 1 or any(each is variable for each in passed):
                    raise NotPlannable("a container that is passed twice")
                passed.append(variable)


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
