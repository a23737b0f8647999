"""Layers of images, each unpacked once for all images with the layer.

    FOLDER/images/layers/NAME        the files of a layer, in the form of overlayfs
    FOLDER/images/records/NAME.json  facts of the layer; written last
    FOLDER/images/NAME.RANDOM.part   a layer during unpacking

The name is a digest of the layer's diff-id, or of the source of a layer of this service's own. The name is
short, since mount(2) takes 4096 bytes for all layers of an image. A layer is never changed, and remains as
long as an image has the layer. All functions block.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from proctor_service.errors import StartError
from proctor_service.features.environments.layer_program import START
from proctor_service.features.environments.manifest import digest_of
from proctor_service.features.environments.programs import run_program
from proctor_service.sandbox.environments import Ids

_FORMAT = 1
_NAME_CHARACTERS = 16
_PRIVATE, _PASSABLE, _LOCK_MODE = 0o700, 0o711, 0o600
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_LAYERS = 127
"""Of an image: as many as other programs allow."""
_LONGEST_ARCHIVE_SECONDS = 86_400
UNBOUNDED = 1 << 50

Attributes = tuple[str, int, int, int]
"""Path of a folder, its mode, and its owner and group on this machine; -1: they stay."""
Room = Callable[[int], None]
"""Called with the bytes of a layer so far; raises StartError where there is no room for more."""


class DamagedImage(StartError):
    """An image breaks a rule of its format, or a bound: all machines like this must refuse the image."""


@dataclass(frozen=True, slots=True)
class Layer:
    """An unpacked layer.

    `source`: its diff-id, or words naming a layer of this service's own. `bytes`, `files`: their number.
    `implicit`: folders without a member of their own. `links`: hard links to files of lower layers. `blobs`:
    digests of its compressed archives.
    """

    name: str
    source: str
    bytes: int
    files: int
    implicit: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    blobs: tuple[str, ...] = ()


class Layers:
    """Layers below the folder of a store. Several processes may add and remove some at a time."""

    def __init__(self, folder: Path) -> None:
        self._own = folder / "images"
        self._locks = folder / "locks"
        self.folder = self._own / "layers"
        self._records = self._own / "records"

    @staticmethod
    def name_of(source: str, ids: Ids | None) -> str:
        """Return the name of a layer with files owned by these users."""
        return digest_of([_FORMAT, source, ids and asdict(ids)])[:_NAME_CHARACTERS]

    def read(self, name: str) -> Layer | None:
        """Return a complete layer, or None."""
        try:
            read: dict[str, Any] = json.loads((self._records / f"{name}.json").read_text())
            read["links"] = tuple((path, target) for path, target in read["links"])
            layer = Layer(
                **{**read, "implicit": tuple(read["implicit"]), "blobs": tuple(read["blobs"])}
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return layer if (self.folder / name).is_dir() else None

    def names(self) -> list[str]:
        """Return the names of all complete layers."""
        return sorted(each.stem for each in self._records.glob("*.json"))

    def by_blob(self) -> Mapping[str, Layer]:
        """Return the layers by the digests of their compressed archives."""
        found = [layer for name in self.names() if (layer := self.read(name)) is not None]
        return {blob: layer for layer in found for blob in layer.blobs}

    def size_bytes(self) -> int:
        """Return the size of all layers."""
        return sum(layer.bytes for name in self.names() if (layer := self.read(name)) is not None)

    def unpack(
        self,
        source: str,
        archive: Path,
        ids: Ids | None,
        *,
        blob: str = "",
        diff_id: str = "",
        below: Sequence[Layer] = (),
        room: Room = lambda size: None,
    ) -> Layer:
        """Return the layer of an archive; unpack a missing layer first.

        `diff_id`: required digest of the unpacked archive. `below`: the layers below, the topmost first, if
        they are always the same: folders without a member then get the attributes of the same folders below.
        Raises StartError, OSError.
        """
        name = self.name_of(source, ids)
        with self._building(name):
            layer = self.read(name)
            if layer is None:
                with self._filling(name) as part:
                    _own_folder(part, ids)
                    answer = self._run(
                        {
                            "kind": "unpack",
                            "archive": str(archive),
                            "folder": str(part),
                            "ids": ids and [ids.first, ids.count],
                            "attribute": _hiding_attribute(ids),
                            "most_bytes": UNBOUNDED,
                        },
                        room,
                    )
                    if diff_id and answer["diff_id"] != diff_id:
                        raise DamagedImage(
                            f"a layer is another than the image says: {answer['diff_id']}, not {diff_id}"
                        )
                    layer = Layer(
                        name,
                        source,
                        answer["bytes"],
                        answer["files"],
                        tuple(answer["implicit"]),
                        tuple((path, target) for path, target in answer["links"]),
                        (blob,) if blob else (),
                    )
                    if below and layer.links:
                        raise DamagedImage("a hard link leads to a file of another layer")
                    if below and (attributes := self._inherited_by(layer, below)):
                        order = {"kind": "attributes", "folder": str(part)}
                        self._run({**order, "attributes": attributes})
                    self._keep(part, layer)
            elif blob and blob not in layer.blobs:
                layer = replace(layer, blobs=(*layer.blobs, blob))
                self._write(layer)
        if layer.source != source:
            raise StartError("two layers have the same short name")
        return layer

    def complete(
        self, source: str, below: Sequence[Layer], ids: Ids | None, configuration: Mapping[str, Any]
    ) -> tuple[Layer, dict[str, Any]]:
        """Make the layer of an image with the other files for its sandboxes, beyond its own layers.

        `below`: its layers, the topmost first. `configuration`: `user`, `workdir` and `path` (its PATH).
        Returns the layer, and the findings of `layer_program`. Raises StartError, OSError.
        """
        name = self.name_of(source, ids)
        with self._building(name), self._filling(name) as part:
            for each in ("upper", "work", "merged"):
                (part / each).mkdir()
            _own_folder(part / "upper", ids)
            lower = [each.name for each in below]
            beside = Path("..", part.name)  # a path of this machine may have a colon
            if len(lower) == 1:  # an overlay needs two
                (part / "none").mkdir(mode=0o755)
                lower.append(str(beside / "none"))
            answer = self._run(
                {
                    "kind": "complete",
                    "layers": str(self.folder),
                    "lower": lower,
                    **{each: str(beside / each) for each in ("upper", "work", "merged")},
                    "ids": ids and [ids.first, ids.count],
                    "attributes": self.inherited(below),
                    "links": [link for each in reversed(below) for link in each.links],
                    **configuration,
                }
            )
            layer = Layer(name, source, 0, 0)
            if self.read(name) is None:
                self._keep(part / "upper", layer)
        return layer, answer

    def inherited(self, layers: Sequence[Layer]) -> list[Attributes]:
        """Return the attributes of folders which an upper layer has without saying them.

        `layers`: the topmost first.
        """
        found: dict[str, Attributes] = {}
        for index, layer in enumerate(layers):
            hidden = [
                path
                for path in layer.implicit
                if path in found or any(self._says(each, path) for each in layers[:index])
            ]
            more = self._inherited_by(layer, layers[index + 1 :])
            found |= {each[0]: each for each in more if each[0] not in hidden}
        return list(found.values())

    def _inherited_by(self, layer: Layer, below: Sequence[Layer]) -> list[Attributes]:
        """Return the attributes of folders which a layer names without saying them."""
        found: list[Attributes] = []
        for path in layer.implicit:
            for each in below:
                about = _about(self.folder / each.name, path)
                if about is not None and path not in each.implicit:
                    if stat.S_ISDIR(about.st_mode):
                        mode = stat.S_IMODE(about.st_mode)
                        owner = (about.st_uid, about.st_gid) if os.geteuid() == 0 else (-1, -1)
                        found.append((path, mode, *owner))
                    break
        return found

    def remove_unused(self, used: Iterable[str], dry_run: bool = False) -> int:
        """Remove all layers except for `used`; return their bytes.

        The caller holds `changing`. `dry_run`: only return the bytes. Raises OSError.
        """
        removed_bytes = 0
        wanted = set(used)
        for name in self.names():
            if name not in wanted:
                layer = self.read(name)
                removed_bytes += layer.bytes if layer is not None else 0
                if not dry_run:
                    self._remove(name)
        if self.folder.is_dir() and not dry_run:
            for folder in self.folder.iterdir():  # without a record: its removal was interrupted
                if (
                    folder.name not in wanted
                    and not (self._records / f"{folder.name}.json").exists()
                ):
                    with suppress(OSError):
                        self._remove(folder.name)
        return removed_bytes

    def discard(self, name: str) -> None:
        """Remove an unused layer, if present. The caller holds `changing`. Raises OSError."""
        if self.read(name) is not None:
            self._remove(name)

    @contextmanager
    def archive(self) -> Iterator[Path]:
        """Yield the path of a file for the archive of a layer; remove the file afterwards."""
        self._make_folders()
        with tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=self._own) as folder:
            yield Path(folder, "layer.tar")

    def remove_parts(self) -> None:
        """Remove remains of killed builds."""
        for part in self._own.glob(".*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > _LONGEST_ARCHIVE_SECONDS:
                    shutil.rmtree(part)
        for part in self._own.glob("[!.]*.part"):
            lock = self._lock(part.name.partition(".")[0])
            with suppress(OSError, TimeoutError):
                lock.acquire(blocking=False)
                try:
                    shutil.rmtree(part, ignore_errors=True)
                finally:
                    lock.release()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock under which an image gets its layers, and layers without an image go."""
        self._locks.mkdir(_PRIVATE, parents=True, exist_ok=True)
        with FileLock(self._locks / "layers", mode=_LOCK_MODE):
            yield

    def _says(self, layer: Layer, path: str) -> bool:
        return path not in layer.implicit and _about(self.folder / layer.name, path) is not None

    def _lock(self, name: str) -> FileLock:
        return FileLock(self._locks / f"layer-{name}", mode=_LOCK_MODE)

    def _make_folders(self) -> None:
        for folder, mode in (
            (self._locks, _PRIVATE),
            (self._own, _PRIVATE),
            (self.folder, _PASSABLE),  # with mapped ids, a sandbox's root is no owner of the folder
            (self._records, _PRIVATE),
        ):
            folder.mkdir(mode, parents=True, exist_ok=True)
            if stat.S_IMODE(folder.stat().st_mode) != mode:
                folder.chmod(mode)

    @contextmanager
    def _building(self, name: str) -> Iterator[None]:
        self._make_folders()
        with self._lock(name):
            for part in self._own.glob(f"{name}.*.part"):  # of a killed build
                shutil.rmtree(part, ignore_errors=True)
            yield

    @contextmanager
    def _filling(self, name: str) -> Iterator[Path]:
        part = Path(tempfile.mkdtemp(prefix=f"{name}.", suffix=".part", dir=self._own))
        try:
            yield part
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _keep(self, part: Path, layer: Layer) -> None:
        folder = self.folder / layer.name
        if folder.exists():  # without a record: its removal was interrupted
            shutil.rmtree(folder)
        os.sync()  # the record must not survive a crash without the files
        part.rename(folder)
        self._write(layer)

    def _write(self, layer: Layer) -> None:
        record = self._records / f"{layer.name}.json"
        part = record.with_suffix(".part")
        part.write_text(json.dumps(asdict(layer)))
        part.rename(record)

    def _remove(self, name: str) -> None:
        (self._records / f"{name}.json").unlink(missing_ok=True)
        gone = Path(tempfile.mkdtemp(prefix=f"{name}.", suffix=".part", dir=self._own))
        with suppress(FileNotFoundError):
            (self.folder / name).rename(gone)
        shutil.rmtree(gone)

    def _run(self, order: Mapping[str, Any], room: Room = lambda size: None) -> dict[str, Any]:
        """Carry out an order of `layer_program`. Raises StartError, OSError."""
        with tempfile.TemporaryDirectory() as folder:
            paths = (Path(folder, "order"), Path(folder, "answer"))
            paths[0].write_text(json.dumps(order))
            place = str(Path(__file__).parent)
            command = [sys.executable, "-I", "-S", "-c", START, place, *map(str, paths)]

            def progress(line: str) -> None:
                with suppress(ValueError):
                    room(int(json.loads(line)["bytes"]))

            ran = run_program(command, Path(folder), {"PATH": os.defpath}, on_line=progress)
            try:
                answer: dict[str, Any] = json.loads(paths[1].read_text())
            except (OSError, ValueError):
                raise StartError(f"a layer cannot be unpacked: {ran.output[-1000:]}") from None
        if "refused" in answer:
            raise DamagedImage(answer["refused"])
        if "unable" in answer:
            raise StartError(answer["unable"])
        if "failed" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), str(self._own))
        return answer


def _hiding_attribute(ids: Ids | None) -> str:
    """Return the attribute of a folder for hiding the same folder of lower layers, see overlayfs.rst."""
    return "user.overlay.opaque" if ids is None else "trusted.overlay.opaque"


def _own_folder(folder: Path, ids: Ids | None) -> None:
    if ids is not None:
        os.chown(folder, ids.first, ids.first)
    folder.chmod(0o755)


def _about(layer: Path, path: str) -> os.stat_result | None:
    """Return the status of a path in a layer, or None; links on the way are not followed."""
    here = os.open(layer, _FOLDER)
    try:
        *parents, name = path.split("/")
        for part in parents:
            below = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        return os.lstat(name, dir_fd=here)
    except OSError:
        return None
    finally:
        os.close(here)
