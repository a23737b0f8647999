"""A command of a stateful sandbox: another program, or Python code in a fork of the warm interpreter.

The code behaves as `python -c CODE` would on a terminal, but starts in a millisecond. What it changes in
`os.environ` is told on a descriptor, so that the next command finds it.
"""

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
    """Becomes another program; exit codes are a shell's."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, programs expect them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:
        os.write(2, f"{argv[0]}: {getattr(error, 'strerror', error)}\n".encode("utf-8", "replace"))
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        os._exit(_NOT_FOUND if missing else CANNOT_START)


def run(source: str, changes: int) -> NoReturn:
    """Runs the code to its end, and ends the process as Python would."""
    before = dict(os.environ)
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv = ["-c"]
    sys.path.insert(0, "")
    for stream in (sys.stdout, sys.stderr):
        # What was printed before a time limit is what a model learns from.
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
    """Ends as Python does then: of the signal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _show(error: BaseException) -> None:
    """The traceback, from the code's own frames on."""
    try:
        frames = error.__traceback__
        if frames is not None:
            frames = frames.tb_next  # the first is ours
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
        pass  # its own doing: the next command finds the environment as it was
