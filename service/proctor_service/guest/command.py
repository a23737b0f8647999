"""Jobs for programs in other languages: run a command, or compile and return the output files."""

import binascii
import os
from typing import Any

from ..codec import values
from . import script, work_files
from .channel import BEGAN, Channel


def run_command(channel: Channel, job: dict[str, Any]) -> None:
    """Replace this process by the command (`exec`), so the sandbox ends with its exit code.

    Send `["not started"]` if the command cannot start.
    """
    place(job)
    argv = job["argv"]
    os.environ.update(job.get("environment") or {})
    try:
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:
        channel.send(values.dumps(["not started"]))
        os.write(2, f"{argv[0]}: {error}\n".encode("utf-8", "replace"))
        os._exit(127)


def place(job: dict[str, Any]) -> None:
    """Write the job's text files and binary files, and set standard input."""
    work_files.write_files(job.get("files") or {})
    for path, data in (job.get("binaries") or {}).items():
        work_files.write_file(path, binascii.a2b_base64(data), 0o755)
    if job.get("stdin"):
        script.feed_stdin(job["stdin"])


def compile_program(channel: Channel, job: dict[str, Any]) -> None:
    """Run the compiler and send `["compiled", exit code, {path: base64}]` with the files made."""
    place(job)
    import subprocess  # imported here: slow to import, and only compilers need subprocess

    channel.send(BEGAN)
    before = _files_here()
    try:
        done = subprocess.run(job["argv"], check=False, stdin=subprocess.DEVNULL, stdout=2)
    except (FileNotFoundError, PermissionError):
        channel.send(values.dumps(["not started"]))
        script.leave(127)
    code = done.returncode
    made: dict[str, str] = {}
    for name in sorted(name for name, state in _files_here().items() if before.get(name) != state):
        with open(name, "rb") as file:
            made[name] = binascii.b2a_base64(file.read(), newline=False).decode()
    try:
        line = values.dumps(["compiled", code, made])
    except values.ValueTooLarge:
        line = values.dumps(["compiled", code, {}])
    channel.send(line)
    script.leave(code)


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
