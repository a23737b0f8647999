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
import stat
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

from . import leaving, values
from .channel import Channel

_NAME = "/solution.py"
_TEXT_LIMIT = 4000
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

_exit, _getpid = os._exit, os.getpid
_format_exception = traceback.format_exception
_stdout, _stderr = sys.stdout, sys.stderr


class Left(Exception):
    """The program did not come to its end; the channel has been told how."""


class Unfit(Exception):
    """The submission's files cannot be put in place; the message says why."""


def prepare(job: dict[str, Any]) -> None:
    """Puts files and standard input in place, and makes `sys` look as a script finds it."""
    write_files(job.get("files") or {})
    if job.get("stdin"):
        feed_stdin(job["stdin"])
    if "random" in job["source"]:
        random.seed()  # or each sandbox would go on where the interpreter stood that it was forked from
    sys.argv = ["solution.py"]
    sys.orig_argv = [sys.executable, "solution.py"]
    sys.path.insert(0, os.getcwd())


def write_files(files: dict[str, str]) -> None:
    """Writes text files below the working directory, in place of whatever is there."""
    for path, text in files.items():
        write_file(path, to_bytes(text))


def write_file(path: str, data: bytes, mode: int = 0o644) -> None:
    """Writes one file. Raises Unfit."""
    try:
        make_way(path)
        with open(os.open(path, _NEW, mode), "wb") as file:
            file.write(data)
    except OSError as error:
        raise Unfit(f"{path}: {error.strerror}") from None


def make_way(path: str) -> None:
    """Leaves nothing where a file is to be, and real directories above it.

    A submission may have put links there, so that a write lands elsewhere, or a directory.
    """
    above = path.split("/")[:-1]
    for count in range(1, len(above) + 1):
        directory = "/".join(above[:count])
        try:
            mode = os.lstat(directory).st_mode
        except FileNotFoundError:
            os.mkdir(directory)
            continue
        if not stat.S_ISDIR(mode):
            os.unlink(directory)
            os.mkdir(directory)
        elif mode & 0o700 != 0o700:
            os.chmod(directory, 0o700)
    remove(path)


def remove(path: str) -> None:
    """Takes a file away, if there is one; a directory gets another name."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        os.rename(path, f"{path}.{os.urandom(8).hex()}")


def to_bytes(text: str) -> bytes:
    """UTF-8; lone surrogates as they are, since they came so."""
    return text.encode("utf-8", "surrogatepass")


def feed_stdin(text: str) -> None:
    """Makes `text` the standard input, without a pipe that could fill."""
    try:
        descriptor = os.memfd_create("stdin", 0)
    except OSError:
        descriptor = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
    with io.FileIO(descriptor, "r+") as file:
        data = memoryview(to_bytes(text))
        while data:
            data = data[file.write(data) or 0 :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.dup2(descriptor, 0)


def load(channel: Channel, job: dict[str, Any]) -> dict[str, Any]:
    """Runs the program's top level; its globals. Raises Left when it did not come to the end, or Unfit.

    A child that the program forked and that comes back here ends as a script would.
    """
    source = job["source"]
    main = types.ModuleType("__main__")
    namespace = main.__dict__
    path = namespace["__file__"] = os.getcwd() + _NAME
    namespace["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = main
    write_file(_NAME[1:], to_bytes(source))
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError) as error:  # ValueError: NUL, lone surrogates
        _tell(channel, ["syntax", describe(error), ""])
        raise Left from None
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    process = _getpid()
    try:
        exec(code, namespace)
        if _getpid() != process:
            finish(0)
    except SystemExit as error:
        if _getpid() != process:
            finish(_code_of(error))
        if not _ends_program(error, source, code, job.get("mode") == "script"):
            _tell(channel, ["exit", "load", exit_code(error)])
            raise Left from error
    except BaseException as error:
        if _getpid() != process:
            finish(_code_of(error))
        _tell(channel, ["raised", "load", *explain(error)])
        raise Left from error
    return namespace


def run_calls(channel: Channel, job: dict[str, Any]) -> None:
    """Loads the program, makes the calls that the job lists, and ends the process."""
    answer_calls(channel, job)
    leave(0)


def answer_calls(channel: Channel, job: dict[str, Any]) -> None:
    """Says `["loaded"]`, what each call gave, and `["done"]`; less when the program leaves."""
    decoded = [[values.decode(part) for part in call[1:]] for call in job["calls"]]
    try:
        namespace = load(channel, job)
    except Left:
        return
    for statement in job.get("imports", ()):
        try:
            exec(statement, namespace)
        except BaseException:
            continue  # tests that need it fail by themselves
    _tell(channel, ["loaded"])
    for index, ((name, *_), (args, kwargs)) in enumerate(zip(job["calls"], decoded, strict=True)):
        try:
            result = namespace[name](*args, **kwargs)
            line = values.dumps(["value", index, values.encode(result)])
        except SystemExit as error:
            _tell(channel, ["exit", index, exit_code(error)])
            return
        except (values.ValueTooLarge, values.ValueTooDeep) as error:
            line = values.dumps(["raised", index, "ValueError", str(error), "", []])
        except BaseException as error:
            line = values.dumps(["raised", index, *explain(_plainly(error, name, namespace))])
        channel.send(line)
    _flush(_stdout, _stderr, sys.stdout, sys.stderr)
    _tell(channel, ["done"])


def _plainly(error: BaseException, name: str, namespace: dict[str, Any]) -> BaseException:
    """A name that the program does not define is a NameError, as it would be in a script."""
    if isinstance(error, KeyError) and name not in namespace:
        return NameError(f"name {name!r} is not defined")
    return error


def run_script(channel: Channel, job: dict[str, Any]) -> None:
    """Runs the program to its end, as a script, and ends the process with its exit code."""
    code = 0
    try:
        # While the program runs, the word that proves its end has no name that leads to it.
        _tell_end(channel, job.pop("end", ""), load(channel, job))
    except Left as left:
        code = _code_of(left.__cause__)
    finish(code)


def _tell_end(channel: Channel, word: str, _: dict[str, Any]) -> None:
    _tell(channel, ["reached", word])


def _code_of(cause: BaseException | None) -> int:
    """Shows what ended the program early, as Python would; its exit code."""
    if not isinstance(cause, SystemExit):
        if cause is not None:
            _report(cause)
        return 1
    if not isinstance(cause.code, (int, types.NoneType)):
        _print_error(f"{cause.code}\n")
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
            _print_error(_traceback(error) or f"{type(error).__name__}\n")
        else:
            sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:
        pass


def _print_error(text: str) -> None:
    try:
        sys.stderr.write(text)
    except BaseException:
        pass


def _ends_program(error: SystemExit, source: str, code: types.CodeType, tests_behind: bool) -> bool:
    """Whether a SystemExit with code 0 is the program's end: it came from the last statement.

    Where tests may be pasted behind it, the program itself must be what leaves (`leaving.py`).
    """
    if exit_code(error) != 0:
        return False
    if tests_behind:
        return leaving.ends_program(error, source, code)
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


def _tell(channel: Channel, message: list[Any]) -> None:
    channel.send(values.dumps(message))
