"""Files of records that a stop left unwritten: the next start writes them into the journal.

A stop writes a file before it waits for the writer, since it may be killed while it waits, and removes
the file once the journal has all of its records. A record may so come twice, and the journal keeps it
once. Services with the same journal write files of their own, and each reads the files of all.
"""

from __future__ import annotations

import logging
import marshal
import os
import secrets
import stat
from collections.abc import Collection
from dataclasses import dataclass, field
from glob import escape
from hashlib import blake2b
from pathlib import Path

from proctor_service.settings.state_folder import PRIVATE_FILE, NoStateFolder, make_private

log = logging.getLogger(__name__)

_MARK = "-unwritten-"


@dataclass(slots=True)
class Leftover:
    """Files of unwritten records. All methods block; `remove` only for as long as `unlink`.

    `beside`: the begin of their paths. `is_own_folder`: their folder is made if it is missing.
    """

    beside: Path
    is_own_folder: bool = False
    _files: set[Path] = field(default_factory=set)

    def save(self, records: Collection[bytes]) -> Path:
        """Write the records into a file, in place of all files so far. Raises OSError."""
        path = self.beside.with_name(f"{self.beside.name}{_MARK}{secrets.token_hex(8)}")
        begun = path.with_name(f".{path.name}")
        try:
            if self.is_own_folder:
                make_private(begun)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(begun, flags, PRIVATE_FILE), "wb") as file:
                file.write(marshal.dumps((_shape(), list(records))))
                file.flush()
                os.fsync(file.fileno())
            begun.rename(path)
        except NoStateFolder as error:
            raise OSError(str(error)) from None
        except OSError:
            begun.unlink(missing_ok=True)
            raise
        self.remove()
        self._files.add(path)
        return path

    def load(self) -> list[bytes]:
        """Return the records of all files; a file that cannot be read is logged, and stays."""
        found: list[bytes] = []
        for path in sorted(self.beside.parent.glob(f"{escape(self.beside.name)}{_MARK}*")):
            try:
                found += _read(path)
            except (OSError, ValueError, EOFError, TypeError) as error:
                fields = {"file": str(path), "why": str(error)}
                log.error("unwritten records of the journal cannot be read", extra=fields)
            else:
                self._files.add(path)
        return found

    def remove(self) -> None:
        """Remove the files that were read and saved: the journal has their records."""
        for path in self._files:
            path.unlink(missing_ok=True)
        self._files.clear()


def _read(path: Path) -> list[bytes]:
    """Return the records of a file. Raises OSError, ValueError, EOFError and TypeError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        private = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o022
        if not private or status.st_uid != os.geteuid():
            raise PermissionError("others can write it")  # `marshal` trusts its input
        shape, records = marshal.loads(file.read())
    if shape != _shape():
        raise ValueError(f"its {len(records)} records are of another version of the service")
    return list(records)


def _shape() -> str:
    """Return a name for the values in a record, which differs when a version changes them."""
    from proctor_service.features.journal.rows import NAMES  # here: a start does without

    return blake2b(repr(NAMES).encode(), digest_size=8).hexdigest()
