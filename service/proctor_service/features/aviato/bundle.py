"""Files for a remote sandbox: mainly a single file, compiled once by the image's own interpreter.

`PROBE` runs in the first sandbox of a service, reports the content of the image (interpreter,
paths, languages, the user of commands), and compiles the code for all later sandboxes. From the
report comes the file for every sandbox, and the command for running a supervisor. Commands are free
of a submission's parts.
"""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor_service.errors import SandboxUnavailable
from proctor_service.sandbox import code_bundle
from proctor_service.sandbox.linux import seccomp
from proctor_service.settings.languages import Language

_MODULES = (
    *code_bundle.GUEST,
    *(
        f"features/aviato/guest/{name}.py"
        for name in ("child", "clock", "processes", "supervisor", "workdir")
    ),
    *(f"sandbox/linux/{name}.py" for name in ("kernel", "procfs", "syscalls", "time_limits")),
)
_TOOLS = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
_LEXERS = ("__init__", "_mapping", "diff", "python", "special")  # pygments has several hundred
_OLDEST = (3, 11)

_GUEST = Path(__file__).parent / "guest"
PROBE = (code_bundle.SERVICE / "sandbox" / "probe.py").read_text()
_BOOT = (_GUEST / "boot.py").read_text()


@dataclass(frozen=True, slots=True)
class Protections:
    """Isolation around the supervisor's program: a separate user, and a system call filter."""

    own_user: bool = False
    seccomp: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """Content of the remote sandboxes. `root`: commands run as root.

    `secrets`: variables set by Aviato, for every program.
    """

    version: tuple[int, int, int]
    machine: str
    root: bool
    languages: tuple[str, ...]
    environment: Mapping[str, str]
    code: bytes  # loaded by `boot.py`
    tools: bytes = b""  # pytest and its dependencies, if missing from the image
    protections: Protections = Protections()
    secrets: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Path of the code; where possible, a path not writable by submissions."""
        return "/opt/proctor-warden" if self.root else "/tmp/proctor-warden"

    @property
    def tools_place(self) -> str:
        """Path of the tools."""
        return f"{self.place}-tools.zip"

    @property
    def files(self) -> dict[str, bytes]:
        """Files for a new sandbox: path to content."""
        return {self.place: self.code, **({self.tools_place: self.tools} if self.tools else {})}

    def command(self, python: str, uid: int, fresh: bool, hash_seed: int) -> list[str]:
        """Return the argv of a supervisor, which the program's process is a fork of."""
        environment = {**self.environment, code_bundle.HASH_SEED: str(hash_seed)}
        variables = [f"{name}={value}" for name, value in environment.items()]
        how = "fresh" if fresh else "kept"
        words = [*variables, python, "-P", "-s", "-S", "-c", _BOOT, how, str(uid), self.place]
        if not self.secrets:
            return ["env", "-i", *words]
        # The values are known in the sandbox only. One that is missing is an error of the shell.
        assignments = " ".join(f'"{name}=${{{name}?}}"' for name in self.secrets)
        return ["sh", "-c", f'exec env -i {assignments} "$@"', "sh", *words]


def question(languages: Mapping[str, Language]) -> bytes:
    """Return the input of `PROBE`."""
    programs = sorted({need for language in languages.values() for need in language.needs})
    text = json.dumps({"sources": code_bundle.sources(_MODULES), "programs": programs}).encode()
    return f"{len(text):08d}".encode() + text


def understand(
    answer: bytes,
    languages: Mapping[str, Language],
    variables: Mapping[str, str],
    secrets: tuple[str, ...] = (),
) -> Image:
    """Return the image from the output of `PROBE`. Raises SandboxUnavailable if unsuitable.

    `variables`: of every program, beside the sandbox's own. `secrets`: see `Image`.
    """
    line, newline, code = answer.partition(b"\n")
    try:
        report: dict[str, Any] = json.loads(line)
        version = tuple(report["version"])
    except (ValueError, KeyError, TypeError):
        raise SandboxUnavailable("the image's Python does not answer as it should") from None
    if version < _OLDEST or not newline:
        wanted = ".".join(map(str, _OLDEST))
        raise SandboxUnavailable(f"the image's Python is {version}; {wanted} or later is needed")
    try:
        filters = tuple(
            code.hex()
            for code in (seccomp.outer(report["machine"], True), seccomp.inner(report["machine"]))
        )
    except KeyError:
        filters = ()
    found = report["programs"]
    config = {
        "path": report["path"],
        "prefix": report["prefix"],
        "packages": _packages(),
        "warden": f"{code_bundle.ROOT}.features.aviato.guest.supervisor",
        "walls": {"seccomp": filters},
    }
    return Image(
        version=version,
        machine=report["machine"],
        root=report["root"],
        languages=tuple(n for n, one in languages.items() if all(map(found.get, one.needs))),
        environment={**code_bundle.environment(report["search_path"]), **variables},
        code=json.dumps(config).encode() + b"\n" + code,
        tools=b"" if report["pytest"] else _tools(),
        secrets=secrets,
    )


def _packages() -> list[str]:
    """Return the packages among the modules; each is empty."""
    return sorted(name for name, source in code_bundle.sources(_MODULES).items() if not source)


def _tools() -> bytes:
    """Return a zip archive of pytest and its dependencies, for an image without pytest."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _TOOLS:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:
                continue
            origin = Path(spec.origin)
            if not spec.submodule_search_locations:
                archive.write(origin, origin.name)
                continue
            for path in sorted(origin.parent.rglob("*.py")):
                if path.parent.name != "lexers" or path.stem in _LEXERS:
                    archive.write(path, path.relative_to(origin.parent.parent))
    return out.getvalue()
