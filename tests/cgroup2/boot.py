"""Run pytest in user-mode Linux with cgroup v2: `boot.py ARGUMENTS…`, by default the tests beside this file.

User-mode Linux is a kernel that runs as an ordinary process, without privileges and without hardware support.
It sees the host's files, read-only; what the tests write is gone at its end.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
_SELECTED = (
    "tests/cgroup2",
    "tests/core/test_cgroups.py",
    "tests/core/contract/test_contract_sandbox.py",
    "tests/core/contract/test_contract_stateful.py",
    "tests/core/contract/test_contract_ordinary_user.py",
    "tests/attacks/test_hostile_programs.py",
    "-k",
    "not two_hundred",  # so many sandboxes take too long on its one core
)
_MEMORY_MB = 6144
_MOST_SECONDS = 3600
_TIME_FACTOR = "15"  # a page fault takes 0.1 ms: 250 MB take 6 s of CPU time


def main(arguments: list[str]) -> int:
    """Return the exit code of pytest in the machine."""
    kernel = shutil.which("linux.uml")
    if kernel is None:
        print("make test-cgroup2 needs user-mode Linux: the package user-mode-linux of Debian")
        return 1
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    data = os.environ.get("PROCTOR_SHARED_DATA") or str(_REPOSITORY.parent / "shared" / "data")
    with tempfile.TemporaryDirectory(prefix="cgroup2-") as name:
        folder = Path(name)
        (folder / "run").write_text(_script(folder, arguments or list(_SELECTED), data))
        shown = ":".join((data, sys.prefix, str(Path(sys.base_prefix).resolve())))
        with subprocess.Popen(
            [
                kernel, f"mem={_MEMORY_MB}M", "rootfstype=hostfs", "rootflags=/", "ro", "quiet",
                f"init={_REPOSITORY}/tests/cgroup2/init.sh", "con0=fd:0,fd:1", "con=null", "panic=-1",
                f"uml_dir={folder}/uml/", f"REPOSITORY={_REPOSITORY}", f"FOLDER={folder}", f"SHOWN={shown}",
            ],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": name},
        ) as machine:  # fmt: skip
            try:
                machine.wait(_MOST_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"the machine did not end within {_MOST_SECONDS} s")
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(machine.pid, signal.SIGKILL)
        status = folder / "status"
        return int(status.read_text()) if status.exists() else 1


def _script(folder: Path, arguments: list[str], data: str) -> str:
    variables = {
        "HOME": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
        "PROCTOR_SHARED_DATA": data,
        "PROCTOR_TEST_TIME_FACTOR": os.environ.get("PROCTOR_TEST_TIME_FACTOR", _TIME_FACTOR),
    }
    sets = [f"{variable}={shlex.quote(value)}" for variable, value in variables.items()]
    command = [sys.executable, "-m", "pytest", "--color=no", "--durations=5", *arguments]
    return f"export {' '.join(sets)}\nexec {shlex.join(command)}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
