"""Jobs for programs in other languages: run a command, or compile and return the output files.

Files from a compiler travel as raw bytes: out on standard output, and in on the channel behind
the job. The line before has their sizes.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from typing import TYPE_CHECKING, Any, NoReturn

from ..codec import values
from . import script, work_files
from .channel import Channel
from .session.main import set_dumpable
from .session.streams import write_all

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_MADE_BYTES = 48 << 20
"""Most bytes of a compiler's files together."""
END_DESCRIPTOR = 3
MAX_END_BYTES = 4 << 20
"""Most bytes of a program's report at its end: the names of some 50,000 tests."""
TOO_LONG = values.dumps(["too long"])
NO_OUTPUT = b'["no output"]'
"""Line in place of a missing file with the output."""
_MAX_MADE_FILES = 4096
_PIECE_BYTES = 1 << 20


def run_command(channel: Channel, job: dict[str, Any]) -> None:
    """Replace this process by the command (`exec`), so the sandbox ends with its exit code.

    Send `["not started"]` if the command cannot start. Raises OSError where the machine is the cause.
    """
    place(channel, job)
    argv = job["argv"]
    os.environ.update(job.get("environment") or {})
    channel.began()
    if job.get("end"):
        _run_with_end(channel, argv, job.pop("end"))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored in Python; programs need the default
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) in work_files.SHORTAGES:  # a broken program causes EIO
            raise
        channel.send(values.dumps(["not started"]))
        os.write(2, f"{argv[0]}: {error}\n".encode("utf-8", "replace"))
        os._exit(127)


def _run_with_end(channel: Channel, argv: list[str], word: str) -> NoReturn:
    """Run a command which can prove its end: send `["reached", text]`, the text of descriptor 3.

    Descriptor 3 is a file with the secret word. A launcher reads and empties the descriptor's file,
    and writes the word and a line break behind the tests. End with the command's exit code, or 128
    plus its signal. Send `["too long"]` for a text above MAX_END_BYTES, which may end with failed
    tests.
    """
    end = os.memfd_create("end", 0)
    os.write(end, word.encode())
    os.lseek(end, 0, os.SEEK_SET)
    set_dumpable(0)  # the program cannot read the word in this process
    code = _exit_code_of(argv, [(os.POSIX_SPAWN_DUP2, end, END_DESCRIPTOR)])
    if code is None:
        channel.send(values.dumps(["not started"]))
        script.leave(127)
    text = os.pread(end, MAX_END_BYTES + 1, 0)
    if len(text) > MAX_END_BYTES:
        channel.send(TOO_LONG)
    elif text:
        channel.send(values.dumps(["reached", text.decode("utf-8", "replace")]))
    script.leave(code if code >= 0 else 128 - code)


def run_for_file(channel: Channel, path: str, run: Callable[[], object]) -> None:
    """Run a program in a child process, and then print its file, instead of its own output.

    End with the program's exit code, or 128 plus its signal. Without a regular file send NO_OUTPUT.
    """
    cpu_seconds = time.process_time()
    pid = os.fork()
    if not pid:
        channel.adopt(cpu_seconds)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
        run()
        script.leave(0)
    status = os.waitpid(pid, 0)[1]
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for a writer
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise IsADirectoryError(path)
    except OSError:
        channel.send(NO_OUTPUT + b"\n")
    else:
        while data := os.read(file, _PIECE_BYTES):
            write_all(1, data)
    script.leave(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def place(channel: Channel, job: dict[str, Any]) -> None:
    """Write the job's text files, and the binary files behind the job; set standard input."""
    work_files.write_files(job.get("files") or {})
    place_binaries(channel, job)
    if job.get("stdin"):
        script.feed_stdin(job["stdin"])


def place_binaries(channel: Channel, job: dict[str, Any]) -> None:
    """Write the files with their bytes behind the job. `stdin_file`: the file on stdin, if any."""
    for path, size_bytes in job.get("binaries") or ():
        work_files.write_file(path, _received(channel, size_bytes), 0o755)
    if job.get("stdin_file"):
        descriptor = os.open(job["stdin_file"], os.O_RDONLY)
        os.dup2(descriptor, 0)
        os.close(descriptor)


def _received(channel: Channel, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        piece = channel.read(size_bytes - len(data))
        if not piece:  # the service has hung up
            break
        data += piece
    return bytes(data)


def compile_program(channel: Channel, job: dict[str, Any]) -> None:
    """Run the compiler and send `["compiled", exit code, [[path, size in bytes], …], is prepared]`.

    The bytes of all files follow on standard output, without gaps. Without any path, the compiler failed,
    or the files were too large. `prepared`: folder with a script `compile` to run the compiler's command,
    where the sandbox has the script.
    """
    place(channel, job)
    before = _files_here()
    argv, prepared = job["argv"], f"{job.get('prepared') or ''}/compile"
    is_prepared = bool(job.get("prepared")) and os.access(prepared, os.X_OK)
    if is_prepared:
        argv = [prepared, *argv]
    channel.began()
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, 2, 1),
    ]
    code = _exit_code_of(argv, actions)
    if code is None:
        channel.send(values.dumps(["not started"]))
        script.leave(127)
    made = {} if code else _made_since(before)
    sizes = [[name, len(data)] for name, data in made.items()]
    channel.send(values.dumps(["compiled", code, sizes, is_prepared]))
    for data in made.values():
        write_all(1, data)
    script.leave(code)


def _exit_code_of(argv: list[str], actions: list[tuple[Any, ...]]) -> int | None:
    """Run a command after these actions on descriptors; None if the start fails.

    `subprocess` would do the same, but its import takes a part of the time of a small compilation.
    """
    try:
        pid = os.posix_spawnp(
            argv[0],
            argv,
            os.environ,
            file_actions=actions,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
    except (FileNotFoundError, PermissionError):
        return None
    status = os.waitpid(pid, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _made_since(before: dict[str, tuple[int, int, int]]) -> dict[str, bytes]:
    """Return the new and changed files; empty if they are too many or too large."""
    names = sorted(name for name, state in _files_here().items() if before.get(name) != state)
    if len(names) > _MAX_MADE_FILES:
        return {}
    made: dict[str, bytes] = {}
    left = MAX_MADE_BYTES
    for name in names:
        os.chmod(name, 0o700)  # a compiler keeps the mode of a file that a snapshot had
        with open(name, "rb") as file:
            made[name] = file.read(left + 1)
        left -= len(made[name])
        if left < 0:
            return {}
    return made


def _files_here() -> dict[str, tuple[int, int, int]]:
    """Map each regular file below the working directory to (inode, mtime, ctime), times in ns."""
    found = {}
    left = ["."]
    while left:  # a loop, since deep directories would exceed the recursion limit
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        state = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
                        found[entry.path[len("./") :]] = state
        except OSError:
            continue  # the path is too long or unreadable, so no compiler made the file
    return found
