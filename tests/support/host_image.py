"""An image made of programs of this machine: a shell, Python, and a C compiler where there is one.

It takes seconds and no network. Each program comes with the libraries that it loads.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

PROGRAMS = (
    "awk", "base64", "bash", "cat", "chmod", "chown", "cmp", "cp", "cut", "date", "dd", "diff",
    "dirname", "echo", "env", "false", "find", "grep", "head", "id", "install", "kill", "ln", "ls",
    "mkdir", "mkfifo", "mktemp", "mv", "nohup", "od", "printf", "ps", "pwd", "readlink", "rm",
    "rmdir", "sed", "seq", "setsid", "sh", "sleep", "sort", "stat", "tail", "tar", "tee", "test",
    "timeout", "touch", "tr", "true", "uname", "uniq", "wc", "xargs",
)  # fmt: skip
COMPILER = ("gcc", "as", "ld")
HEADERS = ("stdio.h", "stdlib.h", "string.h")
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")
_LEFT_OUT = {"__pycache__", "test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3",
             "site-packages", "dist-packages", "turtledemo", "pydoc_data"}  # fmt: skip


def write_image(
    folder: Path,
    *,
    directory: str = "/app",
    variables: Iterable[str] = (),
    compiler: bool = False,
    python: Path | None = None,
) -> str:
    """Write an OCI folder with one layer; return its name as skopeo and Proctor take it.

    `python`: an interpreter that takes the place of the system's, below /usr/local; it can judge.
    """
    layer = image_layer(compiler, python)
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def stored(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    first = stored(layer, "application/vnd.oci.image.layer.v1.tar")
    own = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", *variables],
            "WorkingDir": directory,
        },
        "rootfs": {"type": "layers", "diff_ids": [first["digest"]]},
        "history": [{"created_by": "the tests"}],
    }
    config = stored(json.dumps(own).encode(), "application/vnd.oci.image.config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [first],
    }
    entry = stored(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    index = {"schemaVersion": 2, "manifests": [entry]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return f"oci:{folder}:latest"


def image_layer(compiler: bool = False, python: Path | None = None) -> bytes:
    """Return the only layer of the image, as a tar archive."""
    files: dict[str, Path] = {}
    links: dict[str, str] = {}
    for name in PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/bin")
        if found is not None:
            files[f"/usr/bin/{name}"] = Path(found).resolve()
    if python is None:
        files["/usr/bin/python3"] = _python()
        for path in _python_library(_python()):
            files[str(path)] = path
    else:
        for path in _python_library(python):
            files[f"/usr/local/lib/{path.relative_to(python.parents[1] / 'lib')}"] = path
        files[f"/usr/local/bin/{python.name}"] = python
        links["usr/local/bin/python3"] = python.name
    if compiler:
        files.update(_compiler())
    for path in list(files.values()):
        if path.suffix != ".py":
            files.update(libraries(path))
    return _packed(files, links)


def _packed(files: dict[str, Path], links: dict[str, str]) -> bytes:
    stored = io.BytesIO()
    seen: set[str] = set()
    with tarfile.open(fileobj=stored, mode="w") as out:

        def folder(name: str, mode: int = 0o755) -> None:
            for each in (*reversed(Path(name).parents), Path(name)):
                text = str(each).lstrip("/")
                if text and text not in seen:
                    seen.add(text)
                    made = tarfile.TarInfo(text)
                    made.type, made.mode = tarfile.DIRTYPE, mode if each == Path(name) else 0o755
                    out.addfile(made)

        for name in ("bin", "sbin", "lib", "lib64"):
            folder(f"/usr/{name}")
        folder("/usr/local/bin")
        merged = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
        for name, target in (merged | links).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            out.addfile(link)
            seen.add(name)
        for name in ("/app", "/dev", "/etc", "/proc", "/root", "/run", "/sys"):
            folder(name)
        for name in ("/tmp", "/var/tmp"):
            folder(name, 0o1777)
        for name, source in sorted(files.items()):
            name = re.sub(r"^/(bin|sbin|lib|lib64)/", r"/usr/\1/", name)
            folder(str(Path(name).parent))
            if name in seen:
                continue
            seen.add(name)
            made = tarfile.TarInfo(name.lstrip("/"))
            made.size = source.stat().st_size
            made.mode = 0o755 if os.access(source, os.X_OK) else 0o644
            with source.open("rb") as data:
                out.addfile(made, data)
        for name, text in (
            ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/sh\n"),
            ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
        ):
            made = tarfile.TarInfo(name)
            made.size = len(text)
            out.addfile(made, io.BytesIO(text.encode()))
    return stored.getvalue()


def libraries(program: Path) -> dict[str, Path]:
    """Return the libraries that a program loads, by their path."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    found = {match[1] for match in _LIBRARY.finditer(listed.stdout)}
    return {each: Path(each).resolve() for each in found}


def _python() -> Path:
    """The system's Python, whose library lies below /usr."""
    for name in ("/usr/bin/python3", sys.executable):
        if Path(name).exists():
            return Path(name).resolve()
    raise AssertionError("no Python")


def _python_library(python: Path) -> Iterator[Path]:
    said = subprocess.run(
        [python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    for folder, folders, names in os.walk(said.stdout.strip()):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        folders[:] = [each for each in folders if not each.startswith("config-")]
        yield from (Path(folder, name) for name in names if Path(folder, name).is_file())


def _compiler() -> dict[str, Path]:
    """gcc for C: its passes, the assembler, the linker, some headers, and what programs link."""

    def asked(option: str) -> str:
        return subprocess.run(
            ["gcc", option], capture_output=True, text=True, check=True
        ).stdout.strip()

    found = {f"/usr/bin/{name}": Path(str(shutil.which(name))).resolve() for name in COMPILER}
    names = [f"-print-prog-name={each}" for each in ("cc1", "collect2")]
    names += [
        f"-print-file-name={each}"
        for each in ("crt1.o", "Scrt1.o", "crti.o", "crtn.o", "crtbegin.o", "crtbeginS.o",
                     "crtend.o", "crtendS.o", "libgcc.a", "libgcc_s.so", "libgcc_s.so.1", "libc.so",
                     "libc.so.6", "libc_nonshared.a", "liblto_plugin.so")
    ]  # fmt: skip
    for name in names:
        path = Path(asked(name))
        if path.is_absolute():
            found[os.path.normpath(path)] = path.resolve()
    included = "".join(f"#include <{each}>\n" for each in HEADERS)
    listed = subprocess.run(
        ["gcc", "-O1", "-M", "-x", "c", "-"],
        input=included,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.replace("\\", " ").split()[1:]:
        if name.startswith("/"):
            found[os.path.normpath(name)] = Path(name).resolve()
    for each in list(found.values()):
        if each.suffix == "" or ".so" in each.name:
            found.update(libraries(each))
    loader = Path("/lib64/ld-linux-x86-64.so.2")
    if loader.exists():
        found[str(loader)] = loader.resolve()
    return found
