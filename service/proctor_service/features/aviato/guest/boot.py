"""Loads the code file of a remote sandbox, and runs the supervisor.

Passed to the image's interpreter as `-c`, for each submission; the arguments are `fresh` or `kept`,
the program's user id, and the code file. The modules leave `sys.modules` before a program runs, so
a program cannot import them.
"""

import sys

sys.path[:] = [path for path in sys.path if path]  # excludes the current directory

import builtins  # noqa: E402
import importlib  # noqa: E402
import importlib.abc  # noqa: E402
import importlib.machinery  # noqa: E402
import json  # noqa: E402
import marshal  # noqa: E402
import site  # noqa: E402
from types import CodeType, ModuleType  # noqa: E402
from typing import Any  # noqa: E402


class Codes(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Importer for the compiled modules."""

    def __init__(self, codes: dict[str, CodeType], packages: list[str]) -> None:
        self.codes, self.packages = codes, packages
        self.builtins = dict(vars(builtins))  # submissions cannot patch this copy

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """See importlib."""
        if name in self.codes:
            is_package = name in self.packages
            return importlib.machinery.ModuleSpec(name, self, is_package=is_package)
        return None

    def create_module(self, spec: Any) -> None:
        """See importlib."""

    def exec_module(self, module: ModuleType) -> None:
        """See importlib."""
        module.__dict__["__builtins__"] = self.builtins
        exec(self.codes[module.__name__], module.__dict__)


def main(how: str, uid: str, place: str) -> None:
    """Load the code and run the supervisor. Never returns."""
    with open(place, "rb") as file:
        config = json.loads(file.readline())
        codes = marshal.load(file)
    sys.path[:] = config["path"]
    sys.prefix = sys.exec_prefix = config["prefix"]
    for name in ("setquit", "setcopyright", "sethelper"):
        getattr(site, name)()
    finder = Codes(codes, config["packages"])
    sys.meta_path.insert(0, finder)
    supervisor = importlib.import_module(config["warden"])
    sys.meta_path.remove(finder)
    for name in [name for name in sys.modules if name in codes]:
        del sys.modules[name]
    codes.clear()
    sys.argv[1:] = []
    supervisor.main(config["walls"], int(uid), how == "fresh")


if __name__ == "__main__":
    main(*sys.argv[1:])
