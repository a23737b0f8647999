"""Entry point of `proctor` and of `python -m proctor_service`."""

from __future__ import annotations

from proctor_service.cli import build


def main() -> None:
    """Run the command line and exit with its status."""
    build()(prog_name="proctor")


if __name__ == "__main__":
    main()
