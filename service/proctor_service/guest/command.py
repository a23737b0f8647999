"""Runs a program that is not Python in this interpreter: a command, or a compiler and what it made."""

import binascii
import os
from typing import Any

from ..codec import values
from . import script, work_files
from .channel import BEGAN, Channel


def run_command(channel: Channel, job: dict[str, Any]) -> None:
    """Becomes the command: its exit code is the sandbox's. Says `["not started"]` if it can't."""
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
    """Puts text files, binary files and standard input in place."""
    work_files.write_files(job.get("files") or {})
    for path, data in (job.get("binaries") or {}).items():
        work_files.write_file(path, binascii.a2b_base64(data), 0o755)
    if job.get("stdin"):
        script.feed_stdin(job["stdin"])


def compile_program(channel: Channel, job: dict[str, Any]) -> None:
    """Compiles, and says `["compiled", exit code, {path: base64}]` with the files that came of it."""
    place(job)
    import subprocess  # dear, and only compilers need it

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
    """The regular files of the working directory and below, with what changes when one is written."""
    found = {}
    left = ["."]
    while left:  # no recursion, however deep it goes
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
            continue  # a path that is too long, or not to be read: nothing that a compiler made
    return found
