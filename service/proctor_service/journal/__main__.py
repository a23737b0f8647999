"""The process that writes the journal: `python -m proctor_service.journal`, started by the service."""

from __future__ import annotations

import sys

from proctor_service.journal.process import run

if __name__ == "__main__":
    run(sys.argv[1:])
