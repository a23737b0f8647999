"""Whose code it is: the tests', a library's, the runner's, or else the submission's."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any


class Origins:
    """`own` knows the code of the tests, by the code and the globals that it runs in.

    A library lies where the submission may not write. `runner`: the globals of the runner's modules.
    """

    __slots__ = ("_runner", "_writable", "own")

    def __init__(
        self,
        own: Callable[[types.CodeType, Any], bool],
        writable: str,
        runner: tuple[Mapping[str, Any], ...] = (),
    ) -> None:
        self.own = own
        self._writable = writable
        self._runner = runner

    def trusted(self, function: types.FunctionType) -> bool:
        """Whether a function is the tests' or a library's."""
        return self.trusts(function.__code__, function.__globals__)

    def trusts(self, code: types.CodeType, namespace: Any) -> bool:
        """Whether code that runs in these globals is not the submission's."""
        return (
            self.own(code, namespace)
            or self.library(namespace)
            or any(each is namespace for each in self._runner)
        )

    def passed_submission(self, error: BaseException) -> bool:
        """Whether an exception came through code of the submission."""
        entry = error.__traceback__
        while entry is not None:
            frame, entry = entry.tb_frame, entry.tb_next
            if not self.trusts(frame.f_code, frame.f_globals):
                return True
        return False

    def library(self, namespace: Any) -> bool:
        """Whether these are the globals of a module of a library; not of unittest.mock."""
        name = namespace.get("__name__")
        module = sys.modules.get(name) if type(name) is str else None
        file = getattr(module, "__file__", None) or ""
        return (
            module is not None
            and vars(module) is namespace
            and name not in ("__main__", "unittest.mock")
            and not str(file).startswith(self._writable)
        )
