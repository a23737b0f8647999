"""Images of real projects: one base, a layer with a tool, a layer with a project and what it needs.

A layer is made in the image itself: an overlay over the layers below, with a shell in it. The OCI
layout has each layer once.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTBED = "/testbed"
CONDA = "opt/miniconda3"
PATH = "/usr/local/go/bin:/usr/local/cargo/bin:/usr/local/bin:/usr/bin:/bin"
PACKAGES = "python3,python3-venv,python3-dev,git,make,ca-certificates,patch,gcc,libc6-dev,procps"
_ACTIVATE = """# Stands in for conda's script: an environment is a folder below envs.
_home=/opt/miniconda3
export CONDA_PREFIX="$_home/envs/$1" CONDA_DEFAULT_ENV="$1"
[ -d "$CONDA_PREFIX" ] || return 1
export PATH="$CONDA_PREFIX/bin:$PATH"
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a command in an image."""

    status: int
    output: str


@dataclass(slots=True)
class Layout:
    """An OCI image layout: layers from folders, images from layers."""

    folder: Path
    manifests: list[dict[str, Any]] = field(default_factory=list)

    def begin(self) -> None:
        """Make the layout's folders."""
        (self.folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def image(self, tag: str, layers: Sequence[Path]) -> str:
        """Add an image of these folders, the lowest first; return its name."""
        found = [self._layer(each) for each in layers]
        own = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": [f"PATH={PATH}"], "WorkingDir": TESTBED},
            "rootfs": {"type": "layers", "diff_ids": [each["diff"] for each in found]},
            "history": [{"created_by": "bench"} for _ in found],
        }
        config = {"mediaType": "application/vnd.oci.image.config.v1+json", **self._json(own)}
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": config,
            "layers": [
                {name: each[name] for name in ("mediaType", "digest", "size")} for each in found
            ],
        }
        entry = {"mediaType": kind, **self._json(manifest)}
        named = {"org.opencontainers.image.ref.name": tag}
        self.manifests.append({**entry, "annotations": named})
        index = {"schemaVersion": 2, "manifests": self.manifests}
        (self.folder / "index.json").write_text(json.dumps(index))
        return f"oci:{self.folder}:{tag}"

    def _json(self, value: Any) -> dict[str, Any]:
        return self._blob(json.dumps(value).encode())

    def _blob(self, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (self.folder / "blobs" / "sha256" / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    def _layer(self, folder: Path) -> dict[str, Any]:
        """The blob of a folder, made once: the folder is not changed any more."""
        note = folder.with_name(f"{folder.name}.layer.json")
        if note.exists():
            found: dict[str, Any] = json.loads(note.read_text())
            return found
        left_out = [f"--exclude=./{each}/*" for each in ("proc", "sys", "dev", "tmp")]
        options = ["--numeric-owner", "--sort=name", "--one-file-system", *left_out]
        blob = self._blob(run("tar", "-C", str(folder), *options, "-cf", "-", "."))
        kind = "application/vnd.oci.image.layer.v1.tar"
        made = {**blob, "diff": blob["digest"], "mediaType": kind}
        note.write_text(json.dumps(made))
        return made


def run(*argv: str, **more: Any) -> bytes:
    """Run a program and return what it printed. Raises RuntimeError with the end of its errors."""
    ended = subprocess.run(argv, capture_output=True, check=False, **more)
    if ended.returncode:
        words = (ended.stderr or ended.stdout)[-2000:].decode("utf-8", "replace")
        raise RuntimeError(f"{shlex.join(argv)[:200]} ended with {ended.returncode}: {words}")
    printed: bytes = ended.stdout
    return printed


@contextmanager
def mounted(work: Path, lower: Sequence[Path], upper: Path) -> Iterator[Path]:
    """An overlay over these folders, the lowest first, with /proc and /dev; changes go to `upper`."""
    name = hashlib.sha256(str(upper).encode()).hexdigest()[:12]
    root, scratch = work / "mounts" / name, work / "scratch" / name
    for each in (root, scratch, upper):
        each.mkdir(parents=True, exist_ok=True)
    folders = ":".join(str(each) for each in reversed(lower))
    options = f"lowerdir={folders},upperdir={upper},workdir={scratch}"
    run("mount", "-t", "overlay", "overlay", "-o", options, str(root))
    try:
        for name in ("proc", "dev"):
            (root / name).mkdir(exist_ok=True)
        run("mount", "-t", "proc", "proc", str(root / "proc"))
        run("mount", "--rbind", "/dev", str(root / "dev"))
        run("mount", "--make-rslave", str(root / "dev"))
        yield root
    finally:
        for place in (root / "dev", root / "proc", root):
            subprocess.run(["umount", "-R", str(place)], capture_output=True, check=False)
        shutil.rmtree(scratch, ignore_errors=True)
        with suppress(OSError):
            root.rmdir()


def inside(
    root: Path,
    script: str,
    variables: Mapping[str, str] = {},
    *,
    network: bool = False,
    seconds: float = 150,
) -> Ended:
    """Run a script of bash in the folder of an image."""
    own = {"PATH": PATH, "HOME": "/root", **variables}
    words = [f"{name}={value}" for name, value in own.items()]
    chroot = ["chroot", str(root), "env", "-i", *words, "bash", "-c", script]
    command = ["unshare", "--kill-child", "--pid", "--fork", "--mount", "--", *chroot]
    if not network:
        command = ["unshare", "--kill-child", "--net", "--pid", "--fork", "--mount", "--", "sh", "-c",
                   'ip link set lo up 2>/dev/null; exec "$@"', "sh", *chroot]  # fmt: skip
    try:
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as late:
        return Ended(124, (late.stdout or b"").decode("utf-8", "replace"))
    return Ended(ended.returncode, ended.stdout.decode("utf-8", "replace"))


def base_folder(work: Path) -> Path:
    """The files that all images share: Debian with Python, git and a C compiler. Made once."""
    root, done = work / "base", work / "base.done"
    if not done.exists():
        shutil.rmtree(root, ignore_errors=True)
        run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root))
        done.touch()
    home = root / CONDA / "bin"
    home.mkdir(parents=True, exist_ok=True)
    (home / "activate").write_text(_ACTIVATE)
    python = root / "usr" / "local" / "bin" / "python"
    if not python.is_symlink():
        python.symlink_to("/usr/bin/python3")
    return root


def tool_folder(work: Path, name: str, paths: Sequence[str], links: dict[str, str]) -> Path:
    """A layer with folders of this machine, at the same paths; made once."""
    root, done = work / "tools" / name, work / "tools" / f"{name}.done"
    if done.exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    for path in paths:
        source = Path(path).expanduser()
        target = root / str(source).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        run("cp", "-a", str(source), str(target))
    for link, points_to in links.items():
        place = root / link.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(Path(points_to).expanduser())
    done.touch()
    return root
