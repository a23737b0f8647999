"""Build hook: the wheel has the commit that it is built from, in `proctor_service/commit.txt`.

The commit is PROCTOR_COMMIT, or that of the source tree; without either, the file is empty.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[misc]
    """Adds the file to a wheel; an editable installation reads the tree itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the commit to a temporary file, which the wheel takes."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "commit.txt"
        path.write_text((os.environ.get("PROCTOR_COMMIT") or self._commit())[:40])
        build_data["force_include"][str(path)] = "proctor_service/commit.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary file."""
        if version != "editable":
            self._folder.cleanup()

    def _commit(self) -> str:
        command = ["git", "rev-parse", "HEAD"]
        try:
            done = subprocess.run(command, cwd=self.root, capture_output=True, text=True)
        except OSError:  # without git
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""
