"""Commands of a stateful sandbox: a program, or Python code in a fork of the warm interpreter.

The code runs like `python -c CODE` on a terminal, but starts in a millisecond. A pipe carries its
changes of `os.environ` to the session, for the next command.
"""

from __future__ import annotations

import json
import linecache
import os
import signal
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from .. import script

_NAME = "<code>"
_NOT_FOUND, CANNOT_START = 127, 126


def become_program(argv: list[str]) -> NoReturn:
    """Replace this process by another program (`exec`); exit codes follow the shell."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored in Python; programs need the default
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:
        os.write(2, f"{argv[0]}: {getattr(error, 'strerror', error)}\n".encode("utf-8", "replace"))
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        os._exit(_NOT_FOUND if missing else CANNOT_START)


def run(source: str, changes: int) -> NoReturn:
    """Run the code to its end, and end the process like Python."""
    before = dict(os.environ)
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv = ["-c"]
    sys.path.insert(0, "")
    for stream in (sys.stdout, sys.stderr):
        # A model must see the output printed before a time limit.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    linecache.cache[_NAME] = (len(source), None, source.splitlines(True), _NAME)
    code, process = 0, os.getpid()
    leave: Callable[[int], NoReturn] = os._exit
    try:
        namespace = main.__dict__
        namespace["__builtins__"] = sys.modules["builtins"]
        exec(compile(source, _NAME, "exec", dont_inherit=True), namespace)
    except SystemExit as error:
        code = script.code_of(error)
    except BaseException as error:
        code = 1
        _show(error)
        if isinstance(error, KeyboardInterrupt):
            leave = _interrupted
    if os.getpid() == process:
        _send(before, changes)
    script.finish(code, leave)


def _interrupted(code: int) -> NoReturn:
    """End by SIGINT, like Python."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _show(error: BaseException) -> None:
    """Print the traceback, starting at the code's own frames."""
    try:
        frames = error.__traceback__
        if frames is not None:
            frames = frames.tb_next  # skip the frame of run()
        if sys.excepthook is not sys.__excepthook__:
            sys.excepthook(type(error), error, frames)
            return
        import traceback

        script.print_error("".join(traceback.format_exception(type(error), error, frames)))
    except BaseException:
        pass


def _send(before: dict[str, str], descriptor: int) -> None:
    try:
        after = dict(os.environ)
        changed: dict[str, Any] = {k: v for k, v in after.items() if before.get(k) != v}
        changed.update((name, None) for name in before if name not in after)
        if changed:
            os.set_blocking(descriptor, False)
            os.write(descriptor, json.dumps(changed).encode())
    except Exception:
        pass  # caused by the code itself: the next command keeps the old environment
