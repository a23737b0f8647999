"""`proctor`, and `python -m proctor_service`."""

from __future__ import annotations

from proctor_service.cli import build


def main() -> None:
    """Runs the command line and exits with its status."""
    build()(prog_name="proctor")


if __name__ == "__main__":
    main()
