"""Writes a `.git` with one commit of a folder's files, by no program of the image.

Standard library only: this module runs in a sandbox, too, from Python 3.8.
"""

from __future__ import annotations


def write_repository(folder: bytes, tag: str = "", message: str = "base") -> str:
    """Make `folder`/.git with one commit of all its files, and return the commit's id (40 hex digits).

    `tag`: a name that `git describe` finds, as projects take their version from it.
    """
    raise NotImplementedError
