"""Another program in place of this interpreter: what a command of a stateful sandbox is."""

import os
import signal
from typing import NoReturn

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
