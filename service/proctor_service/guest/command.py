"""Jobs for programs in other languages: run a command, or compile and return the output files.

Files that a compiler made travel as raw bytes: out on standard output, and in on the channel behind
the job. The line before has their sizes.
"""

import os
import signal
from typing import Any

from ..codec import values
from . import script, work_files
from .channel import BEGAN, Channel

MAX_MADE_BYTES = 48 << 20
"""Total size of the files that a compiler may make."""
_MAX_MADE_FILES = 4096


def run_command(channel: Channel, job: dict[str, Any]) -> None:
    """Replace this process by the command (`exec`), so the sandbox ends with its exit code.

    Send `["not started"]` if the command cannot start.
    """
    place(channel, job)
    argv = job["argv"]
    os.environ.update(job.get("environment") or {})
    try:
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:
        channel.send(values.dumps(["not started"]))
        os.write(2, f"{argv[0]}: {error}\n".encode("utf-8", "replace"))
        os._exit(127)


def place(channel: Channel, job: dict[str, Any]) -> None:
    """Write the job's text files, and the binary files behind the job; set standard input."""
    work_files.write_files(job.get("files") or {})
    for path, size_bytes in job.get("binaries") or ():
        work_files.write_file(path, _received(channel, size_bytes), 0o755)
    if job.get("stdin"):
        script.feed_stdin(job["stdin"])


def _received(channel: Channel, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        piece = channel.read(size_bytes - len(data))
        if not piece:  # the service has hung up
            break
        data += piece
    return bytes(data)


def compile_program(channel: Channel, job: dict[str, Any]) -> None:
    """Run the compiler and send `["compiled", exit code, [[path, size in bytes], …]]`.

    The bytes of all files follow on standard output, without gaps. Without any path, the compiler
    failed, or the files were too large.
    """
    place(channel, job)
    channel.send(BEGAN)
    before = _files_here()
    code = _exit_code_of(job["argv"])
    if code is None:
        channel.send(values.dumps(["not started"]))
        script.leave(127)
    made = {} if code else _made_since(before)
    channel.send(
        values.dumps(["compiled", code, [[name, len(data)] for name, data in made.items()]])
    )
    for data in made.values():
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]
    script.leave(code)


def _exit_code_of(argv: list[str]) -> int | None:
    """Run a command without input, with its output on stderr; None if it cannot start.

    `subprocess` would do the same, but its import takes a part of the time of a small compilation.
    """
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
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
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _made_since(before: dict[str, tuple[int, int, int]]) -> dict[str, bytes]:
    """Return the new and changed files; none if they are too many or too large."""
    names = sorted(name for name, state in _files_here().items() if before.get(name) != state)
    if len(names) > _MAX_MADE_FILES:
        return {}
    made: dict[str, bytes] = {}
    left = MAX_MADE_BYTES
    for name in names:
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
                        found[entry.path.removeprefix("./")] = state
        except OSError:
            continue  # the path is too long or unreadable, so no compiler made the file
    return found
