"""Python source is parsed right while other threads parse."""

from __future__ import annotations

import ast
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from proctor_service.judge.syntax import syntax_tree

TEXT = "x = " + " + ".join(f"f({n}, [1, (2, {{3: 4}})])" for n in range(100))


def test_threads_that_interrupt_each_other_parse_the_same_tree() -> None:
    """A callback of the collector lets other threads go on in the middle of a parse."""

    def pause(phase: str, details: object) -> None:
        for _ in range(200):
            pass

    expected, thresholds = ast.dump(syntax_tree(TEXT)), gc.get_threshold()
    gc.callbacks.append(pause)
    gc.set_threshold(5, 5, 5)
    try:
        with ThreadPoolExecutor(4) as pool:
            trees = list(pool.map(syntax_tree, [TEXT] * 200))
    finally:
        gc.callbacks.remove(pause)
        gc.set_threshold(*thresholds)
    assert {ast.dump(tree) for tree in trees} == {expected}


def test_an_interrupted_parse_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[SystemError | ast.Module] = [
        SystemError("AST constructor recursion depth mismatch"),
        ast.Module([], []),
    ]

    def parse(text: str) -> ast.Module:
        outcome = outcomes.pop(0)
        if isinstance(outcome, SystemError):
            raise outcome
        return outcome

    monkeypatch.setattr(ast, "parse", parse)
    assert syntax_tree("") is not None
    assert outcomes == []


@pytest.mark.parametrize("text", ["x = = 1", "x = '\0'"])
def test_a_text_that_is_not_python_is_refused(text: str) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        syntax_tree(text)
