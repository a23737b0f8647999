"""Files of a stateful sandbox, for every backend: each operation is a command inside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from proctor_service.errors import FileMissing, FileRefused, SandboxLost
from proctor_service.guest.session.file_operations import MISSING, REFUSED
from proctor_service.sandbox.interface import Ended, Limits, Operation

_SECONDS_PER_MB = 0.05


def limits_of_operation(sandbox: Limits, seconds: float, keep_bytes: int) -> Limits:
    """Return the limits of an operation in a sandbox with these limits.

    The operation has `seconds`, and more for a large disk, of CPU time and as much of waiting. Its
    output is stored up to `keep_bytes`.
    """
    seconds += _SECONDS_PER_MB * sandbox.disk_mb
    output_kb = max(64, -(-keep_bytes // 1024))
    return replace(sandbox.with_time(seconds), output_kb=output_kb)


class FileOperations(ABC):
    """The file methods of `sandbox.interface.StatefulSandbox`, for its implementations."""

    _limits: Limits

    @abstractmethod
    async def _file_operation(
        self, kind: str, what: list[object], keep_bytes: int = 0, stdin: bytes = b""
    ) -> Ended:
        """Run the operation `kind` of `guest/session/file_operations.py`.

        Its CPU time has the ending `cpu_limit`, its time of waiting `wall_limit`.
        """

    async def _operation(self, operation: Operation, keep_bytes: int) -> Ended:
        """Run code of the service, which may print up to `keep_bytes`. For a backend with operations."""
        raise NotImplementedError

    async def operate(self, operation: Operation, most_bytes: int = 1 << 16) -> bytes:
        """See `StatefulSandbox.operate`."""
        ended = await self._operation(operation, most_bytes)
        _check_waiting(ended)
        return _check(ended, f"printed more than {most_bytes} bytes")

    async def set_command_defaults(self, directory: str, variables: Mapping[str, str]) -> None:
        """See `StatefulSandbox.set_command_defaults`. For backends with command defaults."""
        raise NotImplementedError

    async def make_read_only(self, directory: str, paths: Sequence[bytes]) -> int:
        """See `StatefulSandbox.make_read_only`. For a backend that has it."""
        raise NotImplementedError

    async def write_file(self, path: str, data: bytes) -> None:
        """See `StatefulSandbox.write_file`."""
        _check(await self._file_operation("write", [path], stdin=data), "")

    async def read_file(self, path: str, max_bytes: int) -> bytes:
        """See `StatefulSandbox.read_file`."""
        ended = await self._file_operation("read", [path, max_bytes], max_bytes)
        return _check(ended, f"{path}: grew beyond {max_bytes} bytes while it was read")

    async def snapshot(self) -> bytes:
        """See `StatefulSandbox.snapshot`."""
        room = self._limits.archive_bytes
        ended = await self._file_operation("save", [self._limits.disk_mb << 20], room)
        _check_waiting(ended)
        return _check(ended, "the sandbox's files do not fit an archive of their size")

    async def restore(
        self, archive: bytes, kept_paths: Sequence[str] = (), left_out: Sequence[str] = ()
    ) -> None:
        """See `StatefulSandbox.restore`."""
        what: list[object] = [len(archive), list(kept_paths), list(left_out)]
        ended = await self._file_operation("take_over", what, stdin=archive)
        _check_waiting(ended)
        _check(ended, "")


def _check_waiting(ended: Ended) -> None:
    """Raise SandboxLost for an operation which waited too long, without other running processes.

    The operation waited for the machine or for the service: unlike the use of CPU time, this wait is
    beyond the sandbox's programs.
    """
    if ended.ending == "wall_limit":
        raise SandboxLost("the sandbox's files could not be transferred in time")


def _check(ended: Ended, too_long: str) -> bytes:
    """Return the output. Raises FileMissing and FileRefused; `too_long`: message for a cut output.

    The exit codes are defined in `guest/session/file_operations.py`.
    """
    if ended.exit_code != 0:
        why = ended.stderr.decode("utf-8", "replace") or f"ended by {ended.ending}"
        if ended.exit_code == MISSING:
            raise FileMissing(why)
        if ended.exit_code == REFUSED:
            raise FileRefused(why)
        raise FileRefused(f"the sandbox has no means left for it: {why}")
    if ended.truncated and too_long:
        raise FileRefused(too_long)
    return ended.stdout
