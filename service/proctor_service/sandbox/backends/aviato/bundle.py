"""What a remote sandbox is furnished with: one file, compiled once by the image's own interpreter.

The first sandbox of a service is asked what its image holds (`PROBE`): interpreter, paths, languages,
the user that commands run as; and it compiles the code, so that no other has to. From that comes the
file that every sandbox gets, and the command that runs a warden from it. Nothing of a submission is
ever in a command.
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
from proctor_service.languages import Language
from proctor_service.sandbox.backends.local import bundle, seccomp

_SERVICE = Path(__file__).parents[3]
_ROOT = "proctor"  # the package that the modules are in, there
_MODULES = ("inside/*.py", "sandbox/backends/aviato/inside/*.py")
_LEAVES = tuple(f"sandbox/backends/local/{name}.py" for name in ("kernel", "procfs", "turns"))
_TOOLS = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
_LEXERS = ("__init__", "_mapping", "diff", "python", "special")  # of pygments' several hundred
_OLDEST = (3, 11)

_INSIDE = Path(__file__).parent / "inside"
PROBE = (_INSIDE / "probe.py").read_text()
_BOOT = (_INSIDE / "boot.py").read_text()
_SCRIPTS = ("__init__", "boot", "probe")  # given to an interpreter as text


@dataclass(frozen=True, slots=True)
class Walls:
    """What a warden found around its program: another user, and a system call filter."""

    own_user: bool = False
    seccomp: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """What the remote sandboxes hold. `root`: commands run as root there."""

    version: tuple[int, int, int]
    machine: str
    root: bool
    languages: tuple[str, ...]
    environment: Mapping[str, str]
    code: bytes  # what `boot.py` loads
    tools: bytes = b""  # what pytest needs, if the image lacks it
    walls: Walls = Walls()

    @property
    def place(self) -> str:
        """Where that is written: where no submission can change it, if there is such a place."""
        return "/opt/proctor-warden" if self.root else "/tmp/proctor-warden"

    @property
    def tools_place(self) -> str:
        """Where the tools are written."""
        return f"{self.place}-tools.zip"

    @property
    def files(self) -> dict[str, bytes]:
        """What a sandbox is furnished with: path to content."""
        return {self.place: self.code, **({self.tools_place: self.tools} if self.tools else {})}

    def command(self, python: str, uid: int, fresh: bool) -> list[str]:
        """The argv of a warden."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        how = "fresh" if fresh else "kept"
        words = [python, "-P", "-s", "-S", "-c", _BOOT, how, str(uid), self.place]
        return ["env", "-i", *variables, *words]


def question(languages: Mapping[str, Language]) -> bytes:
    """What `PROBE` reads."""
    programs = sorted({need for language in languages.values() for need in language.needs})
    text = json.dumps({"sources": sources(), "programs": programs}).encode()
    return f"{len(text):08d}".encode() + text


def understand(answer: bytes, languages: Mapping[str, Language]) -> Image:
    """The image, from what `PROBE` wrote. Raises SandboxUnavailable when it will not do."""
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
        "packages": sorted(_packages()),
        "warden": f"{_ROOT}.sandbox.backends.aviato.inside.warden",
        "walls": {"seccomp": filters},
    }
    return Image(
        version=version,
        machine=report["machine"],
        root=report["root"],
        languages=tuple(n for n, one in languages.items() if all(map(found.get, one.needs))),
        environment=bundle.environment(report["search_path"]),
        code=json.dumps(config).encode() + b"\n" + code,
        tools=b"" if report["pytest"] else _tools(),
    )


def sources() -> dict[str, str]:
    """Module names, as they are there, to their source."""
    found = dict.fromkeys(_packages(), "")
    paths = [path for pattern in _MODULES for path in sorted(_SERVICE.glob(pattern))]
    for path in (*paths, *(_SERVICE / leaf for leaf in _LEAVES)):
        if path.stem not in _SCRIPTS:
            parts = path.relative_to(_SERVICE).with_suffix("").parts
            found[".".join((_ROOT, *parts))] = path.read_text()
    return found


def _packages() -> set[str]:
    """The packages above all modules; they are empty there."""
    places = [Path(name).parent for name in (*_MODULES, *_LEAVES)]
    return {
        ".".join((_ROOT, *above.parts)) for place in places for above in (place, *place.parents)
    }


def _tools() -> bytes:
    """A zip archive of what the pytest grader needs, for an image that lacks it."""
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
