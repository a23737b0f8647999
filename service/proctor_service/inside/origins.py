"""Whose a function is, by its globals: the tests', the library's, or else the submission's."""

import sys
from collections.abc import Callable
from typing import Any


class Origins:
    """`own` knows the globals of the tests. A library lies where the submission may not write."""

    __slots__ = ("_writable", "own")

    def __init__(self, own: Callable[[Any], bool], writable: str) -> None:
        self.own = own
        self._writable = writable

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
