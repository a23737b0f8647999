"""Entry point of `proctor` and of `python -m proctor_service`."""

from __future__ import annotations

import sys

from proctor_service.http.process_end import end_process

_INTERRUPTED = 130  # as a shell has it for SIGINT


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        from proctor_service.cli import build  # here, since Ctrl-C during the imports is no fault

        command = build()
    except KeyboardInterrupt:
        print("proctor: stopped", file=sys.stderr)
        raise SystemExit(_INTERRUPTED) from None
    try:
        command(prog_name="proctor")
    except SystemExit as end:
        end_process(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise


if __name__ == "__main__":
    main()
