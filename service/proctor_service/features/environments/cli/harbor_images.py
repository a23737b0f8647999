"""Images and environments of Harbor tasks.

A `docker_image` is used directly. A Dockerfile is built by buildah into an OCI folder, and so is a
`docker_image` with changes of the task: with a working directory, or with files in `environment/`. The
steps of a Dockerfile run as the user of the command, outside of any sandbox, and with the network
of the machine: build only trusted tasks. buildah reads its own variables and files
(`STORAGE_DRIVER`, `BUILDAH_ISOLATION`, `storage.conf`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from proctor_client.harbor import HarborTask
from proctor_service.cli.failures import Trouble

Say = Callable[[str], None]
MOST_SHOWN_CHARACTERS = 3000


def build_images(tasks: Sequence[HarborTask], folder: Path, say: Say) -> str:
    """Build the images of tasks below a folder; return the text of an `environments.toml`.

    An image is built once for the same Dockerfile and files: to build on a newer base, remove the
    image. Raises Trouble for a failed build, and for two tasks with different environments of one
    name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, str] = {}
    builders: dict[str, HarborTask] = {}
    for task in tasks:
        other = builders.setdefault(task.environment, task)
        if other is task:
            tables[task.environment] = _table(task, _image(task, folder, say))
        elif _described(other) != _described(task):
            raise Trouble(
                f"{task.folder}: {other.folder} has another environment under the name "
                f"{task.environment}; name one in [metadata] proctor_environment"
            )
    return "\n".join(tables.values())


def _described(task: HarborTask) -> tuple[object, ...]:
    """Return all inputs of a task's environment."""
    return _digest(task), dict(task.variables), task.memory_mb, task.disk_mb


def _digest(task: HarborTask) -> str:
    """Return the digest of all inputs of a task's image."""
    found = hashlib.sha256(repr((task.image, task.working_directory)).encode())
    for path in sorted(task.context.rglob("*")):
        mode = path.lstat().st_mode
        content = path.read_bytes() if path.is_file() else b""
        name = path.relative_to(task.context)
        found.update(repr((str(name), mode, len(content))).encode() + content)
    return found.hexdigest()[:16]


def _table(task: HarborTask, image: str) -> str:
    """Return the table of a task's environment in TOML; JSON's texts are TOML's, too."""
    lines = [f"[environments.{json.dumps(task.environment)}]", f"image = {json.dumps(image)}"]
    if task.variables:
        lines.append(f"env = {_inline(task.variables)}")
    limits = {"memory_mb": task.memory_mb, "disk_mb": task.disk_mb}
    if own_limits := {name: value for name, value in limits.items() if value is not None}:
        lines.append(f"limits = {_inline(own_limits)}")
    return "\n".join(lines) + "\n"


def _inline(values: Mapping[str, object]) -> str:
    pairs = (f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items())
    return f"{{{', '.join(pairs)}}}"


def _image(task: HarborTask, folder: Path, say: Say) -> str:
    """Return the image of a task, built if necessary. Raises Trouble."""
    dockerfile = task.context / "Dockerfile"
    has_files = task.context.is_dir() and any(task.context.iterdir())
    if task.image is not None and task.working_directory is None and not has_files:
        return task.image
    target = (folder / "images" / f"{task.environment}-{_digest(task)}").resolve()
    if not target.exists():
        with tempfile.TemporaryDirectory(prefix="proctor-harbor-") as temporary:
            recipe = Path(temporary) / "Dockerfile"
            recipe.write_text(_recipe(task, dockerfile, has_files), encoding="utf-8")
            context = task.context if task.context.is_dir() else Path(temporary)
            _build(task, recipe, context, target, say)
    return f"oci:{target}:latest"


def _recipe(task: HarborTask, dockerfile: Path, has_files: bool) -> str:
    """Return the Dockerfile to build: the task's own, or a layer on its `docker_image`."""
    own = dockerfile.read_text(encoding="utf-8") if task.image is None else f"FROM {task.image}"
    lines = [own]
    if task.working_directory is not None:
        lines.append(f"WORKDIR {task.working_directory}")
    if task.image is not None and has_files and not dockerfile.exists():
        lines.append("COPY . .")  # beside a Dockerfile, the files are for that one, as in Harbor
    return "\n".join(lines) + "\n"


def _build(task: HarborTask, recipe: Path, context: Path, target: Path, say: Say) -> None:
    if shutil.which("buildah") is None:
        raise Trouble(f"{task.folder}: its image is built by buildah, which is not installed")
    say(f"{task.id}: building its image")
    name = f"localhost/proctor/{target.name}"
    seconds = task.build_timeout_seconds
    _buildah(task, seconds, "build", "--quiet", "-f", str(recipe), "-t", name, str(context))
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as fresh:
        made = Path(fresh) / "image"
        _buildah(task, seconds, "push", "--quiet", name, f"oci:{made}:latest")
        if target.exists():
            target.rename(Path(fresh) / "before")
        made.rename(target)


def _buildah(task: HarborTask, seconds: float, *arguments: str) -> None:
    command = ["buildah", *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        message = f"{task.folder}: buildah {arguments[0]} took longer than {seconds:g} s"
        raise Trouble(message) from None
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()[-MOST_SHOWN_CHARACTERS:]
        raise Trouble(f"{task.folder}: buildah {arguments[0]} failed:\n{output}")
