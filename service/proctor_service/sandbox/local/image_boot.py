"""Runs a job of Proctor in the image's own interpreter, from a sandbox's first process.

Passed as `-c`; the argument has the descriptors of the channel, the layer and the code. The code is
a line of JSON, then modules compiled by this interpreter. They leave `sys.modules` before a
submission runs. Python 3.8 and later.
"""

from __future__ import annotations

import sys

sys.path[:] = [path for path in sys.path if path]  # excludes the current directory

import builtins  # noqa: E402
import contextlib  # noqa: E402
import importlib  # noqa: E402
import importlib.machinery  # noqa: E402
import json  # noqa: E402
import marshal  # noqa: E402
import os  # noqa: E402
import site  # noqa: E402
from collections.abc import Callable  # noqa: E402
from types import CodeType, ModuleType  # noqa: E402
from typing import Any  # noqa: E402


class Codes:
    """Importer for the compiled modules."""

    def __init__(self, codes: dict[str, CodeType], packages: list[str]) -> None:
        self.codes, self.packages = codes, packages
        self.builtins = dict(vars(builtins))  # a submission's patches are for itself alone

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """See importlib."""
        if name in self.codes:
            is_package = name in self.packages
            return importlib.machinery.ModuleSpec(name, self, is_package=is_package)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> None:
        """See importlib."""

    def exec_module(self, module: ModuleType) -> None:
        """See importlib."""
        module.__dict__["__builtins__"] = self.builtins
        exec(self.codes[module.__name__], module.__dict__)


class Late:
    """Importer for folders behind all of `sys.path`."""

    def __init__(self, folders: list[str]) -> None:
        self.folders = folders

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """See importlib."""
        return (
            importlib.machinery.PathFinder.find_spec(name, self.folders) if path is None else None
        )


def own_folders(prefix: str, named: set[str]) -> Callable[[str], bool]:
    """Return a function which tells the interpreter's own folders from foreign folders.

    `named`: the folders of PYTHONPATH.
    """
    library, workdir = os.path.dirname(os.__file__), os.getcwd()

    def is_own(path: str) -> bool:
        if f"{path}/".startswith(f"{library}/"):
            return True
        is_work = workdir != "/" and f"{path}/".startswith(f"{workdir}/")
        if path in named or (is_work and not prefix.startswith(f"{workdir}/")):
            return False
        return any(path.startswith(f"{each}/") for each in (prefix, sys.base_prefix))

    return is_own


def main() -> None:
    """Load the code and run the job, without return."""
    channel, layer, code = map(int, sys.argv.pop().split())
    os.set_inheritable(channel, False)
    with contextlib.suppress(OSError):  # only a job with a snapshot needs the layer
        os.set_inheritable(layer, False)
    data = os.pread(code, os.fstat(code).st_size, 0)  # the offset is shared with other sandboxes
    os.close(code)
    line, _, compiled = data.partition(b"\n")
    config = json.loads(line)
    codes = marshal.loads(compiled)
    # An agent may have changed other folders than the interpreter's. The judge's own imports do not
    # see those of PYTHONPATH; in those of `.pth` files they look last.
    named = {os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(":") if path}
    is_own = own_folders(config["prefix"], named)
    sys.path[:] = [path for path in config["path"] if is_own(path)]
    late = [path for path in config["path"] if not is_own(path) and path not in named]
    sys.prefix = sys.exec_prefix = config["prefix"]
    for name in ("setquit", "setcopyright", "sethelper"):
        getattr(site, name)()
    finder: Any = Codes(codes, config["packages"])
    sys.meta_path.insert(0, finder)
    program = importlib.import_module("proctor.guest.main")
    sys.meta_path.remove(finder)
    if late:
        sys.meta_path.append(Late(late))
    for name in [name for name in sys.modules if name in codes]:
        del sys.modules[name]
    codes.clear()
    program.main(channel)
    os._exit(71)


if __name__ == "__main__":
    main()
