"""Folder of files that make compilers start faster, read-only in every sandbox without an image.

The folder is beside the service's packages: files of one installation serve its compilers alone, and
an image has them from its build on. `proctor languages prepare` and `proctor serve` make it.
"""

from __future__ import annotations

import sys
from pathlib import Path

SHOWN_AT = "/opt/proctor/languages"
"""Path of the folder in sandboxes."""
FOLDER = Path(sys.prefix, "var", "proctor-languages")


def prepared_folder() -> Path:
    """Return the folder on this machine; it may be missing."""
    return FOLDER
