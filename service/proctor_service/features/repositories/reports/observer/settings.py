"""Settings of one run; the service writes this module anew for each."""

from typing import Dict, Tuple

SOCKET = ""
"""Path of the listener's socket."""
DIRECTORY = ""
"""Real path of the repository's folder."""
CHANGED: Tuple[str, ...] = ()
"""Absolute paths of the files that the submission wrote."""
DOCTESTS: Dict[str, str] = {}
"""Text of source files by absolute path whose doctests count in place of the submission's."""
