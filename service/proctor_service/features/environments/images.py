"""Container images: fetched by skopeo, each a list of layers of the store.

    FOLDER/KEY/image.json   its digest, its configuration, and the names of its layers
    FOLDER/KEY/derived/NAME  an empty file for each layer derived from it; its time is that of the last use
    FOLDER/KEY/notes/NAME    the notes of the layer's maker
    FOLDER/KEY.RANDOM.part/layers.json  names of the layers which an unfinished image needs

All users of the image are mapped to user ids of their own on the machine, as its sandboxes
run in a user namespace; an ordinary user owns all files himself. Formats: the image specification of
the Open Container Initiative. All functions block.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from proctor_service.errors import StartError
from proctor_service.features.environments.folders import Folders
from proctor_service.features.environments.layers import (
    MOST_LAYERS,
    DamagedImage,
    Layer,
    Layers,
    Room,
)
from proctor_service.features.environments.manifest import digest_of
from proctor_service.features.environments.packages import Progress, shortened
from proctor_service.features.environments.programs import run_program
from proctor_service.sandbox.environments import Ids, Image
from proctor_service.settings import worker_environment

_FORMAT = 2
_FILE, _PINNED = "image.json", "layers.json"
DERIVED, NOTES = "derived", "notes"
USED = "used"
"""File in the folder of an image by name; its time is that of the last use."""
_KEY_CHARACTERS = 32
_MOST_JSON_BYTES = 16 << 20
_POLICIES = ("/etc/containers/policy.json", "~/.config/containers/policy.json")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")  # "sha256:" and "0f" 32 times
_RANGES = ((1_900_000_000, 65_536), (50_000, 11_000))
"""First user id of images on the host, and their number: systemd's documentation of user ids leaves
the first range free. The second is for a container that has no ids beyond 65,535."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


_UNKNOWN = re.compile(
    r"(?i)manifest unknown|name unknown|repository name not known|not found|no such file or directory"
    r"|no descriptor found|unauthorized|access to the resource is denied|name invalid|invalid reference"
    r"|no image found"
)
"""Matches what skopeo says of an image that its registry lacks or does not show to this machine: `reading
manifest 9 in localhost:5000/a: manifest unknown`. It does not match `connection refused`."""
_BLOCK_BYTES, _SPARE_BLOCKS = 512, 32_768  # of ulimit; for manifests and configurations
_MOST_BYTES = 1 << 43
_FULL = "no space left on device"
_INSPECT_SECONDS = 120.0
_COPY_SECONDS = 7200.0


class UnknownImage(StartError):
    """The registry lacks the image, or hides the image."""


class RegistryDown(StartError):
    """The registry gives no answer, or a wrong answer."""


def key_of_image(reference: str) -> str:
    """Return the name of the folder of an image for the calling user."""
    ids = image_ids()
    return digest_of([_FORMAT, reference, ids and asdict(ids)])[:_KEY_CHARACTERS]


def image_ids() -> Ids | None:
    """Return the ids of images on this machine; None for an ordinary user."""
    if os.geteuid() != 0:
        return None
    maps = [Path(f"/proc/self/{kind}_map").read_text().splitlines() for kind in ("uid", "gid")]
    for first, count in _RANGES:
        if all(any(_has(line, first, count) for line in each) for each in maps):
            return Ids(first, count)
    return None


def _has(line: str, first: int, count: int) -> bool:
    start, _, size = map(int, line.split())
    return start <= first and first + count <= start + size


def read_image(folder: Path, layers: Layers) -> Image | None:
    """Return the image in a complete folder, or None."""
    try:
        read: dict[str, Any] = json.loads((folder / _FILE).read_text())
        if read.pop("format") != _FORMAT:
            return None
        ids = read.pop("ids")
        places = tuple(layers.folder / name for name in read["layers"])
        if not all(layers.read(place.name) for place in places):
            return None
        return Image(
            **{
                **read,
                "layers": places,
                "groups": tuple(read["groups"]),
                "programs": tuple(read["programs"]),
                "ids": Ids(**ids) if ids else None,
                "holds": (folder,),
            }
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def build_image(
    folders: Folders,
    layers: Layers,
    name: str,
    reference: str,
    progress: Progress,
    rebuild: bool,
    room: Room = lambda size: None,
) -> Image:
    """Fetch and unpack an image, unless built. Raises StartError, OSError."""
    key = key_of_image(reference)
    with folders.building(key, progress):
        image = None if rebuild else read_image(folders.folder / key, layers)
        if image is None:
            with folders.filling(key, name) as part:
                try:
                    _Fetch(part, layers, reference, progress, room).run()
                except StartError as error:
                    text = f"environment {name} cannot be built: {error}"
                    raise type(error)(text) from None
            image = read_image(folders.folder / key, layers)
    if image is None:
        raise StartError(f"environment {name} cannot be built: its image is incomplete")
    return image


def missing_blobs(name: str, folder: Path, layers: Layers) -> dict[str, int]:
    """Return digest and compressed bytes of the layers of an image still to be fetched.

    Raises StartError, OSError.
    """
    if read_image(folder / key_of_image(name), layers) is not None:
        return {}
    with TemporaryDirectory() as part:
        fetch = _Fetch(Path(part), layers, name, lambda line: None, lambda size: None)
        return fetch.missing_blobs()


class _Fetch:
    """The fetching of an image into a folder of the store."""

    def __init__(
        self, part: Path, layers: Layers, reference: str, progress: Progress, room: Room
    ) -> None:
        self._room = room
        self._part = part
        self._layers = layers
        self._reference = reference
        self._progress = progress
        self._largest_bytes = 0
        self._layout = part / "layout"
        self._source = reference if ":/" in reference else f"docker://{reference}"
        self._ids = image_ids()
        self._skopeo = ["skopeo"]
        if not any(Path(each).expanduser().exists() for each in _POLICIES):
            self._skopeo.append("--insecure-policy")

    def run(self) -> None:
        """Fetch the missing layers, unpack them, and complete the image.

        Raises StartError, OSError.
        """
        try:
            self._run_all()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DamagedImage(f"the description of the image is wrong: {error!r}"[:500]) from None

    def _run_all(self) -> None:
        self._part.chmod(0o700)  # its programs are not for the users of this machine
        source = self._source
        if source.startswith("docker://"):
            self._leave_out_known_layers(source)
        words = [*self._skopeo, "copy", source, f"oci:{self._layout}:image"]
        if self._largest_bytes:  # or a hostile registry could fill the disk
            blocks = self._largest_bytes // _BLOCK_BYTES + _SPARE_BLOCKS
            words = ["sh", "-c", f"ulimit -f {blocks}; exec {shlex.join(words)}"]
        self._run_words(words, _COPY_SECONDS, self._progress)
        [found] = _read_json(self._layout / "index.json")["manifests"]
        manifest = _read_json(self._blob(found["digest"]))
        config = _read_json(self._blob(manifest["config"]["digest"]))
        diff_ids = config.get("rootfs", {}).get("diff_ids") or []
        blobs = [each["digest"] for each in manifest["layers"]]
        if len(blobs) != len(diff_ids) or not blobs:
            raise DamagedImage(f"the image has {len(blobs)} layers, and says {len(diff_ids)}")
        if len(blobs) > MOST_LAYERS:
            raise DamagedImage(f"the image has more than {MOST_LAYERS} layers: {len(blobs)}")
        names = [self._layers.name_of(each, self._ids) for each in diff_ids]
        with self._layers.changing():
            _write_json(self._part / _PINNED, names)
        own = [
            self._unpacked(blob, diff_id, index, len(blobs))
            for index, (blob, diff_id) in enumerate(zip(blobs, diff_ids, strict=True), 1)
        ]
        self._complete(found["digest"], config.get("config") or {}, own)
        shutil.rmtree(self._layout)

    def _leave_out_known_layers(self, source: str) -> None:
        """Put an empty file in place of each layer already unpacked here, so that skopeo leaves the layer
        out.

        skopeo skips files present in its target.
        """
        unpacked, missing = self._layers.by_blob(), dict[str, int]()
        blobs = self._layout / "blobs" / "sha256"
        sizes = self._sizes(source)
        if not sizes:
            raise DamagedImage("it has no layers for this machine, or a manifest of an old format")
        self._largest_bytes = max(sizes.values())
        for digest, size in sizes.items():
            if digest not in unpacked:
                missing[digest] = size
                continue
            blobs.mkdir(parents=True, exist_ok=True)
            with self._blob(digest).open("wb") as file:
                file.truncate(size)  # without blocks on the disk
        size_bytes = sum(missing.values())
        self._progress(f"fetching {size_bytes} bytes")
        self._room(size_bytes)

    def missing_blobs(self) -> dict[str, int]:
        """Return digest and compressed bytes of the layers still to be fetched."""
        unpacked = self._layers.by_blob()
        sizes = self._sizes(self._source).items()
        return {digest: size for digest, size in sizes if digest not in unpacked}

    def _sizes(self, source: str) -> dict[str, int]:
        """Return digest and compressed bytes of each layer, as far as the manifest says them."""
        found = {}
        for each in self._manifest(source).get("layers") or []:
            digest, size = each.get("digest"), each.get("size")
            is_size = isinstance(size, int) and 0 <= size < _MOST_BYTES
            if is_size and isinstance(digest, str) and _DIGEST.fullmatch(digest):
                found[digest] = size
        return found

    def _manifest(self, source: str) -> dict[str, Any]:
        """Return the manifest of an image for this machine from its registry."""
        manifest = self._inspected(source)
        entries = manifest.get("manifests")
        if not entries:
            return manifest
        machine = _ARCHITECTURES.get(os.uname().machine, "")
        for each in entries:
            platform = each.get("platform", {})
            if (platform.get("os"), platform.get("architecture")) == ("linux", machine):
                name = re.sub(
                    r"(@[^@/]*|:[^:/]*)$", "", source
                )  # "docker://a/b:1", "docker://a/b@x"
                return self._inspected(f"{name}@{each['digest']}")
        return {}

    def _inspected(self, source: str) -> dict[str, Any]:
        answer = self._part / "manifest"
        # The text of a manifest may be longer than what remains of an output.
        words = shlex.join([*self._skopeo, "inspect", "--raw", source])
        self._run_words(
            ["sh", "-c", f"{words} > {shlex.quote(str(answer))}"], _INSPECT_SECONDS, None
        )
        found = _read_json(answer)
        return found if isinstance(found, dict) else {}

    def _unpacked(self, blob: str, diff_id: str, number: int, count: int) -> Layer:
        self._progress(f"unpacking layer {number} of {count}")
        archive = self._blob(blob)
        layer = self._layers.unpack(
            diff_id, archive, self._ids, blob=blob, diff_id=diff_id, room=self._room
        )
        archive.unlink(missing_ok=True)  # a layer may be there twice
        return layer

    def _complete(self, digest: str, config: Mapping[str, Any], own: list[Layer]) -> None:
        variables = dict(each.split("=", 1) for each in config.get("Env") or [] if "=" in each)
        variables.setdefault("PATH", _PATH)
        below = list(reversed(own))
        configuration = {
            "user": config.get("User") or "",
            "workdir": config.get("WorkingDir") or "/",
            "path": variables["PATH"],
        }
        source = f"top {_FORMAT} {digest}"
        name = self._layers.name_of(source, self._ids)
        with self._layers.changing():
            _write_json(self._part / _PINNED, [name, *(each.name for each in own)])
        top, found = self._layers.complete(source, below, self._ids, configuration)
        variables.setdefault("HOME", found.pop("home"))
        image = {
            "format": _FORMAT,
            "reference": self._reference,
            "digest": digest,
            "variables": variables,
            **found,
            "ids": self._ids and asdict(self._ids),
            "layers": [top.name, *(each.name for each in below)],
        }
        with self._layers.changing():
            _write_json(self._part / _FILE, image)

    def _blob(self, digest: str) -> Path:
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise DamagedImage(f"the image has a wrong digest: {str(digest)[:100]!r}")
        return self._layout / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def _run_words(self, words: list[str], seconds: float, progress: Progress | None) -> None:
        if shutil.which("skopeo") is None:
            raise StartError("skopeo is missing: apt-get install skopeo")
        ran = run_program(
            words, self._part, worker_environment(), wall_seconds=seconds, on_line=progress
        )
        if ran.status == 0 and not ran.timed_out:
            return
        why = shortened(ran.output) or f"status {ran.status}"
        if ran.timed_out:
            raise RegistryDown(f"skopeo was not ready within {seconds:g} s:\n{why}")
        if _FULL in ran.output:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._part.parent))
        kind = UnknownImage if _UNKNOWN.search(ran.output) else RegistryDown
        raise kind(f"skopeo failed:\n{why}")


def used_layers(folder: Path) -> list[str]:
    """Return the names of an image's layers in a folder, or of the layers needed for its unfinished fetch.

    Includes layers derived from the image.
    """
    derived = [each.name for each in (folder / DERIVED).glob("*")]
    for name in (_FILE, _PINNED):
        with suppress(OSError, StartError, KeyError, TypeError):
            read = _read_json(folder / name)
            return [*(read["layers"] if name == _FILE else read), *derived]
    return []


def _read_json(path: Path) -> Any:
    """Return a JSON file of an image, or of this module. Raises StartError, OSError."""
    with path.open("rb") as file:
        text = file.read(_MOST_JSON_BYTES + 1)
    if len(text) > _MOST_JSON_BYTES:
        raise DamagedImage("the description of the image is too long")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedImage("the description of the image is no JSON") from None


def _write_json(path: Path, value: object) -> None:
    part = path.with_name(f"{path.name}.new")
    part.write_text(json.dumps(value, indent=1) + "\n")
    part.rename(path)
