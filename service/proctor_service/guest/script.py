"""Runs a submission as `python solution.py` would, in the interpreter that was forked for it.

Says on the channel, a line each: `["loaded"]`, or why it was not; then for each call asked for
`["value", i, value]` or `["raised", i, …]`; for a script `["reached", word]` when it came to its end.
"""

import ast
import atexit
import gc
import io
import linecache
import os
import random
import sys
import traceback
import types
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from ..codec import values
from . import exit_detection, work_files
from .channel import BEGAN, Channel

_NAME = "/solution.py"
_TEXT_LIMIT = 4000
# ValueError: NUL, lone surrogates. The last two: nested too deep for the parser or the compiler.
UNCOMPILABLE = (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError)

_exit, _getpid = os._exit, os.getpid
_format_exception = traceback.format_exception
_stdout, _stderr = sys.stdout, sys.stderr


class Left(Exception):
    """The program did not come to its end; the channel has been told how."""


def prepare(job: dict[str, Any]) -> None:
    """Puts files and standard input in place, and makes `sys` look as a script finds it."""
    work_files.write_files(job.get("files") or {})
    if job.get("stdin"):
        feed_stdin(job["stdin"])
    if "random" in job["source"]:
        random.seed()  # or each sandbox would go on where the interpreter stood that it was forked from
    sys.argv = ["solution.py"]
    sys.orig_argv = [sys.executable, "solution.py"]
    sys.path.insert(0, os.getcwd())


def feed_stdin(text: str) -> None:
    """Makes `text` the standard input, without a pipe that could fill."""
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
    """Runs the top level of a job's program; its globals. Raises Left, or Unfit.

    With mode `script` the program is `__main__`; else it is loaded as the module `solution`, so that
    its main block does not run.
    """
    work_files.write_file(_NAME[1:], work_files.to_bytes(job["source"]))
    channel.send(BEGAN)
    as_script = job.get("mode") == "script"
    name = "__main__" if as_script else "solution"
    return load(partial(_send, channel), job["source"], name, tests_behind=as_script).__dict__


def load(
    say: Callable[..., None], source: str, name: str, *, tests_behind: bool
) -> types.ModuleType:
    """Runs a program's top level as a module. Raises Left if it did not come to the end, which is said.

    `tests_behind`: whether tests may be pasted behind it. A child that the program forked and that
    comes back here ends as a script would.
    """
    module = types.ModuleType(name)
    namespace = module.__dict__
    path = namespace["__file__"] = os.getcwd() + _NAME
    namespace["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.modules[name] = module
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
    return module


def run_calls(channel: Channel, job: dict[str, Any]) -> None:
    """Loads the program, makes the calls that the job lists, and ends the process."""
    answer_calls(channel, job)
    leave(0)


def answer_calls(channel: Channel, job: dict[str, Any]) -> None:
    """Says `["loaded"]`, what each call gave, and `["done"]`; less when the program leaves."""
    decoded = [[values.decode(part) for part in call[1:]] for call in job["calls"]]
    try:
        namespace = load_job(channel, job)
    except Left:
        return
    for statement in job.get("imports", ()):
        try:
            exec(statement, namespace)
        except BaseException:
            continue  # tests that need it fail by themselves
    # Lines go out together where nothing of the submission runs in between: each costs the judge a turn.
    unsent = values.dumps(["loaded"])
    last = len(decoded) - 1
    plain_arrays = bool(job.get("plain_arrays"))
    for index, ((name, *_), (args, kwargs)) in enumerate(zip(job["calls"], decoded, strict=True)):
        try:
            result = _callee(name, namespace)(*args, **kwargs)
            encoder = values.Encoder()
            encoder.plain_arrays = plain_arrays
            line = values.dumps(["value", index, encoder.encode(result)])
        except SystemExit as error:
            channel.send(unsent + values.dumps(["exit", index, exit_code(error)]))
            return
        except (values.ValueTooLarge, values.ValueTooDeep) as error:
            line = values.dumps(["raised", index, "ValueError", str(error), "", []])
        except BaseException as error:
            line = values.dumps(["raised", index, *explain(error)])
        unsent += line
        if index < last:
            channel.send(unsent)
            unsent = b""
    _flush(_stdout, _stderr, sys.stdout, sys.stderr)
    channel.send(unsent + values.dumps(["done"]))


def _callee(name: Any, namespace: dict[str, Any]) -> Any:
    """Return what a call calls.

    `name` is that of a function, `""` for the last function that the program defines, or
    `[class, arguments, keywords, method]` for a method of a new object.
    """
    if type(name) is list:
        cls, args, kwargs, method = name
        made = _callee(cls, namespace)(*values.decode(args), **values.decode(kwargs))
        return getattr(made, method)
    if name == "":
        return last_function(namespace)
    if name not in namespace:
        builtin = getattr(sys.modules["builtins"], name, None)
        if builtin is None:
            raise NameError(f"name {name!r} is not defined")
        return builtin
    return namespace[name]


def last_function(namespace: dict[str, Any]) -> Any:
    """Return the last function that a program defines. Raises NameError when it defines none."""
    path = namespace.get("__file__")
    own = [
        value
        for value in namespace.values()
        if type(value) is types.FunctionType and value.__code__.co_filename == path
    ]
    if not own:
        raise NameError("the program defines no function")
    return max(own, key=lambda function: function.__code__.co_firstlineno)


def run_script(channel: Channel, job: dict[str, Any]) -> None:
    """Runs the program to its end, as a script, and ends the process with its exit code."""
    code = 0
    try:
        # While the program runs, the word that proves its end has no name that leads to it.
        _tell_end(channel, job.pop("end", ""), load_job(channel, job))
    except Left as left:
        code = code_of(left.__cause__)
    finish(code)


def _tell_end(channel: Channel, word: str, _: dict[str, Any]) -> None:
    _send(channel, "reached", word)


def code_of(cause: BaseException | None) -> int:
    """Shows what ended the program early, as Python would; its exit code."""
    if not isinstance(cause, SystemExit):
        if cause is not None:
            _report(cause)
        return 1
    if not isinstance(cause.code, (int, types.NoneType)):
        print_error(f"{cause.code}\n")
    return exit_code(cause)


def finish(code: int, leave: Callable[[int], NoReturn] = _exit) -> NoReturn:
    """What an interpreter does at its end: threads, exit functions, buffers, globals.

    Globals go as they do in CPython: the module is let go, and the collector runs finalizers while
    all that they may need is still there. No frame may hold the module's namespace by now.
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
    _flush(_stdout, _stderr)  # those of the start, if they are others and still there
    leave(code if good else 120)


def leave(code: int) -> NoReturn:
    """Ends the process at once, with its output written."""
    good = _flush(sys.stdout, sys.stderr)
    _flush(_stdout, _stderr)
    _exit(code if good else 120)


def exit_code(error: SystemExit) -> int:
    """The exit status that Python gives for a SystemExit."""
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def explain(error: BaseException) -> list[Any]:
    """[type name, message, traceback of the submission's own frames, names of its base classes]."""
    try:
        cls = type(error)
        names = [base.__name__ for base in type.__dict__["__mro__"].__get__(cls)]
        return [names[0], describe(error), _traceback(error), names]
    except BaseException:
        return ["Exception", "", "", []]


def describe(error: BaseException) -> str:
    """What the exception says, cut short; nothing when saying it fails."""
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
    """Shows an uncaught exception on stderr, by the submission's own hook if it has one."""
    try:
        if sys.excepthook is sys.__excepthook__:
            print_error(_traceback(error) or f"{type(error).__name__}\n")
        else:
            sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:
        pass


def print_error(text: str) -> None:
    """Writes to stderr, whatever the submission made of it."""
    try:
        sys.stderr.write(text)
    except BaseException:
        pass


def _ends_program(error: SystemExit, source: str, code: types.CodeType, tests_behind: bool) -> bool:
    """Tell whether a SystemExit with code 0 is the program's end: it came from the last statement.

    Where tests may be pasted behind it, the program itself must be what leaves (`leaving.py`).
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


def _flush(*streams: Any) -> bool:
    """Writes what is buffered; False when that fails, for which Python exits with 120."""
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
