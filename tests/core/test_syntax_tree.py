"""Python source is parsed right while other threads parse."""

from __future__ import annotations

import ast
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from proctor_service.judge.python_source import syntax_tree

TEXT = "x = " + " + ".join(f"f({n}, [1, (2, {{3: 4}})])" for n in range(100))


@pytest.mark.slow
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


@pytest.mark.parametrize("text", ["x = = 1", "x = '\0'"])
def test_a_text_that_is_not_python_is_refused(text: str) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        syntax_tree(text)
