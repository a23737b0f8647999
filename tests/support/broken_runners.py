"""Services whose code inside a sandbox fails on purpose, before anything of a submission runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from harness import Service, running_service

from proctor_service.sandbox import code_bundle
from proctor_service.settings import Settings

WORD = "break_here"
"""A job that says it breaks the function; the jobs that warm the interpreter do not."""
TEXT = "broken on purpose"
_BREAK = """

_whole = {name}
def {name}(*args, **named):
    if {always} or {word!r} in repr((args, named)):
        raise RuntimeError({text!r})
    return _whole(*args, **named)
"""


@contextmanager
def broken_inside(folder: Path, module: str, name: str, *, always: bool = False) -> Iterator[None]:
    """In backends that are opened here, one function of a module, `guest/script` say, raises."""
    copy = folder / "service"
    for package in ("guest", "codec", "sandbox"):
        shutil.copytree(code_bundle.SERVICE / package, copy / package)
    with (copy / f"{module}.py").open("a") as file:
        file.write(_BREAK.format(name=name, always=always, word=WORD, text=TEXT))
    with pytest.MonkeyPatch.context() as patch:
        for function in (code_bundle.sources, code_bundle.files):
            patch.setattr(code_bundle, function.__name__, partial(function, service=copy))
        yield


@contextmanager
def broken_service(
    folder: Path, module: str, name: str, *, always: bool = False
) -> Iterator[Service]:
    """The real service, with such a function."""
    broken = broken_inside(folder, module, name, always=always)
    with broken, running_service(Settings(workers=0), judge=None) as running:
        yield running
