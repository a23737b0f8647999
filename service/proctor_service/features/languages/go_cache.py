"""`proctor go-cache`: fill a read-only build cache of Go for the sandboxes.

Without this cache, each evaluation compiles the packages of the standard library without a compiled form
in this version of Go: all since Go 1.20.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from proctor_service.cli.console import screen
from proctor_service.cli.failures import Trouble, friendly
from proctor_service.settings.languages import SANDBOX_PATH

_TEST = 'package main\n\nimport "testing"\n\nfunc TestNothing(t *testing.T) {}\n'
_COMMANDS = (
    ("go", "build", "std"),
    ("go", "test", "nothing_test.go"),
    ("go", "test", "-c", "-vet=off", "-o", "nothing.test", "nothing_test.go"),
)


def go_cache(
    folder: Annotated[Path, typer.Argument(help="Directory of the cache; made if it is missing.")],
) -> None:
    """Compile Go's standard library into a build cache for all sandboxes: PROCTOR_GO_CACHE."""
    with friendly():
        if shutil.which("go", path=SANDBOX_PATH) is None:
            raise Trouble("there is no go on the sandboxes' PATH")
        folder = folder.absolute()
        fill(folder)
        size_mb = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
        screen().print(
            f"PROCTOR_GO_CACHE={folder}  ({size_mb:.0f} MB)", markup=False, soft_wrap=True
        )


def fill(folder: Path) -> None:
    """Fill a build cache, without and with cgo. Raises Trouble and OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for cgo in ("0", "1"):
        _fill(folder, cgo)


def _fill(folder: Path, cgo: str) -> None:
    """Run the builds of submissions with this CGO_ENABLED. Raises Trouble."""
    old_umask = os.umask(0o022)  # the sandboxes' user reads the files
    try:
        with tempfile.TemporaryDirectory() as home:
            Path(home, "nothing_test.go").write_text(_TEST)
            variables = {"GOENV": "off", "GOFLAGS": "", "GOPROXY": "off", "CGO_ENABLED": cgo}
            variables |= {"PATH": SANDBOX_PATH, "HOME": home, "GOCACHE": str(folder)}
            for command in _COMMANDS:
                done = subprocess.run(
                    command, cwd=home, env=variables, capture_output=True, text=True, check=False
                )
                if done.returncode:
                    raise Trouble(f"{' '.join(command)}: {done.stderr.strip()[-1000:]}")
    finally:
        os.umask(old_umask)
