"""Reader process of the journal, started by the service."""

from __future__ import annotations

import sys

from proctor_service.features.journal.answering.process import run

if __name__ == "__main__":
    run(sys.argv[1:])
