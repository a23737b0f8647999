"""Submission runner: run a submission like `python solution.py`, in its forked interpreter.

Send one line each on the channel: `["loaded"]`, or the reason for a failed load; for each requested call
(`function_calls.py`) `["value", i, value]` or `["raised", i, …]`; for a script, and for a program with
its tests, `["reached", word]` at its end.
"""

from __future__ import annotations

import ast
import atexit
import gc
import io
import linecache
import os
import posix
import random
import sys
import tokenize  # noqa: F401  by linecache, when the submission's folder may hold one
import traceback
import types
import unicodedata  # noqa: F401  by traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from ..codec import values
from . import exit_detection, work_files
from .channel import TIMED, Channel

_NAME = "/solution.py"
_TEXT_LIMIT = 4000
# ValueError: NUL bytes or lone surrogates. RecursionError, MemoryError: nesting too deep for the
# parser or the compiler.
UNCOMPILABLE = (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError)

_exit, _getpid = os._exit, os.getpid
_format_exception = traceback.format_exception
_stdout, _stderr = sys.stdout, sys.stderr


class Left(Exception):
    """Exception for an early end of the program; the reason is already on the channel."""


def prepare(job: dict[str, Any]) -> None:
    """Write files, set standard input, and give `sys` the values of a script."""
    work_files.write_files(job.get("files") or {})
    if job.get("stdin"):
        feed_stdin(job["stdin"])
    if "random" in job["source"]:
        random.seed()  # otherwise all sandboxes would share the zygote's random state
    sys.argv = ["solution.py", *job.get("argv", ())]
    sys.orig_argv = [sys.executable, *sys.argv]
    find_files(os.getcwd())


def find_files(*folders: str) -> None:
    """Let imports find the files of these folders, and of PYTHONPATH.

    In an image, the judge's own imports skip these folders: an agent may have changed them.
    """
    named = posix.environ.get(b"PYTHONPATH")  # `os.environ` costs a sandbox 16 pages
    late = _missing_folders(os.fsdecode(named)) if named else []
    sys.path[:0] = [*folders, *late]


def _missing_folders(named: str) -> list[str]:
    late = [
        path
        for path in map(os.path.abspath, filter(None, named.split(":")))
        if path not in sys.path
    ]
    for path in late:
        sys.path_importer_cache.pop(path, None)  # it may have been missing when Python started
    return late


def feed_stdin(text: str) -> None:
    """Set standard input to `text`, without the limits of a pipe."""
    try:
        descriptor = os.memfd_create("stdin", 0)
    except OSError:
        descriptor = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
    with io.FileIO(descriptor, "r+") as file:
        data = memoryview(work_files.to_bytes(text))
        while data:
            data = data[file.write(data) or 0 :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.dup2(descriptor, 0)


def load_job(channel: Channel, job: dict[str, Any]) -> dict[str, Any]:
    """Run the top level of a job's program and return its globals. Raises Left or Unfit.

    In mode `script` the program is `__main__`. In other modes the program is the module `solution`,
    so its main block is skipped. The job's `setup` runs before, in the same globals.
    """
    work_files.write_file(_NAME[1:], work_files.to_bytes(job["source"]))
    as_script = job.get("mode") == "script"
    module, path = new_module("__main__" if as_script else "solution")
    _run_setup(channel, job.get("setup") or "", module.__dict__)
    channel.began()
    say = partial(_send, channel)
    execute(say, job["source"], path, module.__dict__, tests_behind=as_script)
    return module.__dict__


def load(
    say: Callable[..., None], source: str, name: str, *, tests_behind: bool
) -> types.ModuleType:
    """Run a program's top level as a module. Raises Left if the program ends early, after a report.

    `tests_behind`: tests may be appended to the program. If the program forked, a child which
    returns here ends like a script.
    """
    module, path = new_module(name)
    execute(say, source, path, module.__dict__, tests_behind=tests_behind)
    return module


def new_module(name: str) -> tuple[types.ModuleType, str]:
    """Return the empty module for a program, and the path of the program's file."""
    module = types.ModuleType(name)
    path = module.__dict__["__file__"] = os.getcwd() + _NAME
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.modules[name] = module
    return module, path


def _run_setup(channel: Channel, setup: str, namespace: dict[str, Any]) -> None:
    """Run the tests' setup before the program; its failure is the tests'."""
    if not setup:
        return
    if os.listdir(os.getcwd()) != [_NAME[1:]] or b"PYTHONPATH" in posix.environ:
        channel.began(TIMED)
    try:
        exec(compile(setup, "<setup>", "exec", dont_inherit=True), namespace)
    except BaseException as error:
        _send(channel, "unusable", f"setup: {type(error).__name__}: {describe(error)}")
        leave(1)


def execute(
    say: Callable[..., None],
    source: str,
    path: str,
    namespace: dict[str, Any],
    *,
    tests_behind: bool,
) -> None:
    """Run statements in a namespace. Raises Left if they end early, after a report."""
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except UNCOMPILABLE as error:
        say("syntax", describe(error))
        raise Left from None
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    process = _getpid()
    try:
        exec(code, namespace)
        if _getpid() != process:
            finish(0)
    except SystemExit as error:
        if _getpid() != process:
            finish(code_of(error))
        if not _ends_program(error, source, code, tests_behind):
            say("exit", "load", exit_code(error))
            raise Left from error
    except BaseException as error:
        if _getpid() != process:
            finish(code_of(error))
        say("raised", "load", *explain(error))
        raise Left from error


def run_script(channel: Channel, job: dict[str, Any]) -> None:
    """Run the program to its end as a script, and end the process with its exit code."""
    code = 0
    try:
        # While the program runs, no name leads to the secret word that proves the end.
        _tell_end(channel, job.pop("end", ""), load_job(channel, job))
    except Left as left:
        code = code_of(left.__cause__)
    finish(code)


def run_tested(channel: Channel, job: dict[str, Any]) -> None:
    """Run the program as the module `solution`, and then its tests as the script, in the same globals."""
    code = 0
    try:
        _tell_end(channel, job.pop("end"), _load_tests(channel, job.pop("tests"), job))
    except Left as left:
        code = code_of(left.__cause__)
    finish(code)


def _load_tests(channel: Channel, tests: str, job: dict[str, Any]) -> dict[str, Any]:
    namespace = load_job(channel, job)
    namespace["__name__"] = "__main__"
    sys.modules["__main__"] = sys.modules.get("solution") or types.ModuleType("__main__")
    path = os.getcwd() + "/tests.py"
    execute(partial(_send, channel), tests, path, namespace, tests_behind=True)
    return namespace


def _tell_end(channel: Channel, word: str, _: dict[str, Any]) -> None:
    _send(channel, "reached", word)


def code_of(cause: BaseException | None) -> int:
    """Print the cause of an early end like Python, and return the exit code."""
    if not isinstance(cause, SystemExit):
        if cause is not None:
            _report(cause)
        return 1
    if cause.code is not None and not isinstance(cause.code, int):
        print_error(f"{cause.code}\n")
    return exit_code(cause)


def finish(code: int, leave: Callable[[int], NoReturn] = _exit) -> NoReturn:
    """Shut down like an interpreter: join threads, run exit functions, flush buffers, drop globals.

    Globals are dropped as in CPython: the module is released, and the collector runs finalizers while
    their dependencies still exist. All frames must have released the module's namespace by this point.
    """
    good = True
    try:
        threading = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()
        good = _flush(sys.stdout, sys.stderr)
        sys.modules["__main__"] = types.ModuleType("__main__")
        gc.collect()
    except BaseException as error:
        _report(error)
    _flush(_stdout, _stderr)  # the program may have replaced sys.stdout or sys.stderr
    leave(code if good else 120)


def leave(code: int) -> NoReturn:
    """End the process at once, after flushing its output."""
    good = _flush(sys.stdout, sys.stderr)
    _flush(_stdout, _stderr)
    _exit(code if good else 120)


def exit_code(error: SystemExit) -> int:
    """Return Python's exit status for a SystemExit."""
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def explain(error: BaseException) -> list[Any]:
    """Return [type name, message, traceback of the submission's frames, class names of the MRO]."""
    try:
        cls = type(error)
        names = [base.__name__ for base in type.__dict__["__mro__"].__get__(cls)]
        return [names[0], describe(error), _traceback(error), names]
    except BaseException:
        return ["Exception", "", "", []]


def describe(error: BaseException) -> str:
    """Return the exception's message, truncated; empty if `str()` fails."""
    try:
        text = str(error)
        return text[:_TEXT_LIMIT] if type(text) is str else ""
    except BaseException:
        return ""


def _traceback(error: BaseException) -> str:
    try:
        frames = error.__traceback__
        while frames is not None and not frames.tb_frame.f_code.co_filename.endswith(_NAME):
            frames = frames.tb_next
        text = "".join(_format_exception(type(error), error, frames, limit=-12))
        return text if len(text) <= _TEXT_LIMIT else "…" + text[-_TEXT_LIMIT:]
    except BaseException:
        return ""


def _report(error: BaseException) -> None:
    """Print an uncaught exception to stderr, by the submission's own hook if set."""
    try:
        if sys.excepthook is sys.__excepthook__:
            print_error(_traceback(error) or f"{type(error).__name__}\n")
        else:
            sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:
        pass


def print_error(text: str) -> None:
    """Write to stderr, and ignore errors: the submission may have replaced the stream."""
    try:
        sys.stderr.write(text)
    except BaseException:
        pass


def _ends_program(error: SystemExit, source: str, code: types.CodeType, tests_behind: bool) -> bool:
    """Tell whether a SystemExit with code 0 is the program's end: raised in the last statement.

    If tests may be appended, the program itself must exit (`exit_detection.py`).
    """
    if exit_code(error) != 0:
        return False
    if tests_behind:
        return exit_detection.ends_program(error, source, code)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code is not code:
        frames = frames.tb_next
    try:
        last = ast.parse(source).body[-1]
    except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        return False
    return frames is not None and frames.tb_lineno >= last.lineno


def flush_all() -> None:
    """Flush standard output and standard error: the program's, and the earlier modules."""
    _flush(_stdout, _stderr, sys.stdout, sys.stderr)


def _flush(*streams: Any) -> bool:
    """Flush the streams; return False on an error, for which Python exits with 120."""
    good = True
    for stream in streams:
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            good = False
    return good


def _send(channel: Channel, *message: Any) -> None:
    channel.send(values.dumps(message))
