"""The level `calls`: tests as calls of the submission, and formulas over the results.

`assert abs(f(3) - 9) < 1e-6` becomes the call `f(3)`, made in the sandbox, and the formula
`abs(value - 9) < 1e-6`, computed here on plain data. One sandbox suffices, and expected values stay out of
the sandbox. Tests with loops, exceptions or objects are judged at another level.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proctor_service.codec import values
from proctor_service.errors import InvalidTask
from proctor_service.judge.analysis.calls import (
    Alias,
    Calls,
    Helper,
    Imported,
    Passed,
    Scope,
    Variable,
    parameters_of,
)
from proctor_service.judge.analysis.formulas import (
    SINGLETONS,
    SYMBOLS,
    Body,
    Condition,
    Formula,
    Formulas,
    value_of,
)
from proctor_service.judge.analysis.literals import NotConstant, NotPlannable
from proctor_service.judge.analysis.names import Names, star_names
from proctor_service.judge.analysis.suite import Source, Suite, nodes_of
from proctor_service.judge.entry_points import target_of

_MOST_CALLS = 50_000  # a sandbox's answers are kept until it ends (`sandbox/linux/channel.py`)


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """The conditions of a test, and the numbers of its calls."""

    checks: tuple[Condition, ...]
    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallPlan:
    """Calls in their order, the conditions of each test, and the imports of the tests.

    `calls`: a line for each, `[target, arguments, keywords]`, or `[target]` to make an object and keep
    its method (`function_calls.py`). A problem of `setup` is a problem of each test. `weight`: the items
    and the characters in all values, for a bound of the memory of plans.
    """

    calls: tuple[bytes, ...]
    setup: PlannedTest
    tests: tuple[PlannedTest, ...]
    imports: tuple[str, ...]
    weight: int


def plan_calls(suite: Suite, names: Names) -> CallPlan:
    """Express a suite as calls and formulas. Raises NotPlannable."""
    tests = []
    try:
        planner = _Planner(names, sum(map(len, suite.texts)))
        planner.run_setup(suite)
        setup = planner.planned()
        for test in suite.tests:
            planner.run(test.tree.body, Source.of(test.text))
            for step in test.run:
                planner.run_step(step)
            tests.append(planner.planned())
    except NotConstant as error:
        raise NotPlannable(str(error)) from None
    if not all(test.calls for test in tests):
        raise NotPlannable("a test calls nothing")
    calls = planner.calls.lines()
    if len(calls) > _MOST_CALLS:
        raise NotPlannable("too many calls")
    weight = sum(map(len, calls)) + planner.calls.weights.spent
    return CallPlan(calls, setup, tuple(tests), tuple(planner.imports), weight)


class _Planner:
    def __init__(self, names: Names, characters: int) -> None:
        self.calls = Calls(names, characters)
        self.imports: list[str] = []
        self._checks: list[Condition] = []
        self._bodies: dict[int, Body] = {}
        self._source = Source(())
        self._defined_in: dict[int, Source] = {}

    def run_setup(self, suite: Suite) -> None:
        """Plan the setup. Of a class or a decorated function only the name is known."""
        source = Source.of(suite.setup_text)
        for statement in suite.setup.body:
            is_function = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(statement, ast.ClassDef) or (is_function and statement.decorator_list):  # type: ignore[attr-defined]
                self.calls.bind(statement.name, Imported("", statement.name))  # type: ignore[attr-defined]
            else:
                self.run([statement], source)

    def planned(self) -> PlannedTest:
        """Return the conditions and calls since the last time."""
        planned = PlannedTest(tuple(self._checks), tuple(self.calls.used))
        self._checks, self.calls.used = [], []
        return planned

    def run(self, body: Sequence[ast.stmt], source: Source) -> None:
        outer, self._source = self._source, source
        for statement in body:
            self._statement(statement)
        self._source = outer

    def run_step(self, step: tuple[Any, ...]) -> None:
        """Plan the body of `check(candidate)` or of a test function."""
        kind, name = step[0], step[1]
        function = self.calls.scope.get(name) if kind != "cases" else None
        if not isinstance(function, Helper) or not isinstance(function.node, ast.FunctionDef):
            raise NotPlannable(kind)
        parameters = parameters_of(function.node)
        if len(parameters) != (kind == "check"):
            raise NotPlannable("a test function with other parameters")
        target = _target_of(step[2]) if kind == "check" else []
        outer, self.calls.scope = self.calls.scope, Scope(around=function.scope)
        if kind == "check":
            # Python evaluates an entry point once: one object for all calls of the candidate.
            candidate = Alias(target) if len(target) == 1 else self.calls.keep(target)
            self.calls.bind(parameters[0], candidate)
        self.run(function.node.body, self._defined_in[id(function.node)])
        self.calls.scope = outer

    def _statement(self, node: ast.stmt) -> None:
        self.calls.count_steps()
        self.calls.read.clear()
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
                # The submission sees an import at module level, as in plain Python.
                self._import(node, note=self.calls.scope.around is None)
            case ast.FunctionDef(name=name, decorator_list=[]):
                self.calls.bind(name, Helper(node, self.calls.scope))
                self._defined_in[id(node)] = self._source
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=[one], keywords=[])) if (
                name == "check" and self.calls.scope.get(name) is not None
            ):
                target = self.calls.target(one)
                if not isinstance(one, ast.Name) or target != [one.id]:
                    raise NotPlannable("check of something else")
                self.run_step(("check", name, one.id))
            case _:
                raise NotPlannable(type(node).__name__)

    def _assign(self, name: str, value: ast.expr) -> None:
        calls = self.calls
        if isinstance(value, ast.Lambda):
            calls.bind(name, Helper(value, calls.scope))
            return
        alias = calls.alias(value)
        if alias is not None:
            calls.bind(name, alias)
            return
        target = calls.called(value)
        if target is not None:
            calls.bind(name, Variable(number=calls.add(value, target)))
            return
        constant = calls.constant(value)
        if calls.weights.is_mutable(constant) and any(
            type(each) is ast.Name for each in nodes_of(value)
        ):
            raise NotPlannable("two names for one container")
        calls.bind(name, Variable(constant))

    def _import(self, node: ast.stmt, *, note: bool) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._check_module(alias.name)
                top = alias.name.partition(".")[0]
                module = alias.name if alias.asname else top
                self.calls.bind(alias.asname or top, Imported(module))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            self._check_module(node.module)
            for alias in node.names:
                names = [alias.name]
                if alias.name == "*":
                    star = star_names(node.module)
                    if star is None:
                        raise NotPlannable("a star import")
                    names = sorted(star)
                for each in names:
                    self.calls.bind(alias.asname or each, Imported(node.module, each))
        else:
            raise NotPlannable("a relative import")
        if note:
            self.imports.append(ast.unparse(node))

    def _check_module(self, module: str) -> None:
        if module.partition(".")[0] not in sys.stdlib_module_names:
            raise NotPlannable(f"imports {module}")

    def _condition(self, node: ast.expr) -> None:
        """Add the condition of an `assert`; `a and b` adds a condition for each part."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for part in node.values:
                self._condition(part)
            return
        passed: Passed = {}
        check = self._simple_check(node, passed) or self._formula_check(node, passed)
        self.calls.note_passed(passed)
        self._checks.append(check)

    def _simple_check(self, node: ast.expr, passed: Passed) -> Condition | None:
        """Return the check of a call, alone or against a literal; None for other conditions."""
        negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        inner = node.operand if negated else node  # type: ignore[attr-defined]
        target = self.calls.called(inner)
        if target is not None:
            number = self.calls.add(inner, target, passed)
            return Condition(self._source.text_of(inner), (number,), "not" if negated else "")
        if negated or not (isinstance(node, ast.Compare) and len(node.ops) == 1):
            return None
        call, other = node.left, node.comparators[0]
        target = self.calls.called(call)
        reflected = target is None
        if target is None:
            call, other = other, call
            target = self.calls.called(call)
        if target is None or type(node.ops[0]) in (ast.In, ast.NotIn):
            return None
        symbol = SYMBOLS[type(node.ops[0])]
        try:
            expected = self.calls.constant(other)
            encoder = values.Encoder()
            encoder.ordered_sets = False  # as in the sandbox: equal sets are mostly equal lines
            line = values.dumps(encoder.encode(expected))[:-1]
            self.calls.weights.spend(len(line))
        except (NotConstant, NotPlannable, values.ValueTooDeep, values.ValueTooLarge):
            return None
        if symbol.startswith("is") and not any(expected is each for each in SINGLETONS):
            return None
        text, number = self._source.text_of(call), self.calls.add(call, target, passed)
        return Condition(text, (number,), symbol, line, reflected)

    def _formula_check(self, node: ast.expr, passed: Passed) -> Condition:
        calls: list[int] = []
        formula = Formulas(self.calls, self._bodies, calls, passed).of(node)
        if not calls and not _holds(formula):  # a constant condition
            raise NotPlannable("a condition that never holds")
        return Condition(self._source.text_of(node), tuple(calls), formula=formula)


def _target_of(candidate: str | list[str]) -> list[Any]:
    """Return the target of an entry point of a suite, in the form of `Calls.target`."""
    if not candidate or isinstance(candidate, list):
        return [candidate]
    try:
        target = target_of(candidate)
    except InvalidTask as error:
        raise NotPlannable(str(error)) from None
    return [target] if isinstance(target, str) else target


def _holds(formula: Formula) -> bool:
    """Tell whether a condition without calls holds."""
    try:
        return bool(value_of(formula, _no_value))
    except Exception:  # for any exception of the test
        return False


def _no_value(number: int) -> Any:
    raise NotPlannable("no call")
