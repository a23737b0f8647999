"""Layers of images: what an archive may do to the folder that it is unpacked into, and derived layers."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from unpacked_image import unpacked_image

from proctor_service.errors import NotLayered, StartError
from proctor_service.features.environments.by_name import KnownEnvironments, full_name
from proctor_service.features.environments.images import image_ids
from proctor_service.features.environments.layers import Layer, Layers
from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.sandbox.environments import MakeLayer
from proctor_service.sandbox.interface import Command, Limits, StatefulSandbox, derived_environment
from proctor_service.sandbox.local import LocalBackend
from proctor_service.sandbox.local.image_store import image_store_checks
from proctor_service.sandbox.local.launch import make_plan
from proctor_service.settings import Settings

LIMITS = Limits(60, 60, 512, 1 << 16, 64, 64)
OPAQUE = "user.overlay.opaque" if image_ids() is None else "trusted.overlay.opaque"


@dataclass(frozen=True, slots=True)
class Entry:
    """A member of an archive; `data` is None for all but files."""

    name: str
    kind: bytes = tarfile.REGTYPE
    data: bytes = b""
    link: str = ""
    mode: int = 0o644


def folder(name: str, mode: int = 0o755) -> Entry:
    return Entry(name, tarfile.DIRTYPE, mode=mode)


def link(name: str, target: str) -> Entry:
    return Entry(name, tarfile.SYMTYPE, link=target)


def hard(name: str, target: str) -> Entry:
    return Entry(name, tarfile.LNKTYPE, link=target)


def packed(*entries: Entry) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for each in entries:
            member = tarfile.TarInfo(each.name)
            member.type, member.linkname, member.mode = each.kind, each.link, each.mode
            member.size = len(each.data)
            archive.addfile(member, io.BytesIO(each.data))
    return out.getvalue()


@pytest.fixture
def layers(tmp_path: Path) -> Layers:
    return Layers(tmp_path / "store")


def unpack(
    layers: Layers, archive: bytes, source: str = "one", below: tuple[Layer, ...] = ()
) -> Layer:
    with layers.archive() as path:
        path.write_bytes(archive)
        return layers.unpack(source, path, image_ids(), below=below)


def found(root: Path) -> dict[str, str]:
    """The files below a folder: contents, targets, or kinds."""
    names = {}
    for parent, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                words = f"-> {path.readlink()}"
            elif stat.S_ISDIR(mode):
                words = "hides" if OPAQUE in os.listxattr(path, follow_symlinks=False) else "folder"
            elif stat.S_ISCHR(mode):
                words = "removed" if path.lstat().st_rdev == 0 else "device"
            else:
                words = path.read_text() if stat.S_ISREG(mode) else "other"
            names[str(path.relative_to(root))] = words
    return names


ADMITTED: dict[str, tuple[tuple[Entry, ...], dict[str, str]]] = {
    "files": ((folder("a"), Entry("./a/b", data=b"x")), {"a": "folder", "a/b": "x"}),
    "an absolute path": ((Entry("/a", data=b"x"),), {"a": "x"}),
    "removed": ((folder("a"), Entry("a/.wh.b")), {"a": "folder", "a/b": "removed"}),
    "hidden": ((folder("a"), Entry("a/.wh..wh..opq")), {"a": "hides"}),
    "removed, and made again": ((Entry(".wh.a"), folder("a")), {"a": "hides"}),
    "made, and what was there before removed": ((folder("a"), Entry(".wh.a")), {"a": "hides"}),
    "a file in place of another": ((Entry("a", data=b"x"), Entry(".wh.a")), {"a": "x"}),
    "twice": ((Entry("a", data=b"x"), Entry("a", data=b"y")), {"a": "y"}),
    "a file for a folder": ((folder("a"), Entry("a/b"), Entry("a", data=b"y")), {"a": "y"}),
    "a folder for a link": ((link("a", "/etc"), folder("a"), Entry("a/b", data=b"x")),
                            {"a": "folder", "a/b": "x"}),
    "of aufs": ((Entry(".wh..wh.aufs"), Entry(".wh..wh.plnk/1.2")), {}),
    "a hard link": ((Entry("a", data=b"x"), hard("b", "a")), {"a": "x", "b": "x"}),
    "a device": ((Entry("a", tarfile.CHRTYPE), Entry("b", tarfile.BLKTYPE)), {}),
    "through a link of its own": ((folder("usr/lib"), link("lib", "/usr/lib"), Entry("lib/a")),
                                  {"usr": "folder", "usr/lib": "folder", "lib": "-> /usr/lib",
                                   "usr/lib/a": ""}),
    "a link up": ((link("up", "../../.."), Entry("up/a")), {"up": "-> ../../..", "a": ""}),
    "a link to this machine": ((link("a", "/proc/self/root/etc"),), {"a": "-> /proc/self/root/etc"}),
    "a folder without a member": ((Entry("a/b/c"),), {"a": "folder", "a/b": "folder", "a/b/c": ""}),
    "through what it removes": ((Entry(".wh.a"), Entry("a/b", data=b"x")), {"a": "hides", "a/b": "x"}),
}  # fmt: skip


def test_archives_that_are_admitted(layers: Layers) -> None:
    for name, (entries, files) in ADMITTED.items():
        layer = unpack(layers, packed(*entries), name)
        root = layers.folder / layer.name
        assert found(root) == files, name
        if (ids := image_ids()) is not None:
            owners = {path.lstat().st_uid for path in root.rglob("*") if not is_mark(path)}
            assert owners <= {ids.first}, name
    assert not list(layers.folder.parent.glob("*.part"))
    assert not list(layers.folder.parent.glob(".*.part"))


def is_mark(path: Path) -> bool:
    return stat.S_ISCHR(path.lstat().st_mode)


REFUSED: dict[str, bytes] = {
    "a path up": packed(Entry("../a", data=b"x")),
    "a path up, further inside": packed(folder("a"), Entry("a/../../b", data=b"x")),
    "below a file": packed(Entry("a", data=b"x"), Entry("a/b", data=b"x")),
    "below a link to nowhere": packed(link("a", "/proc/self/cwd"), Entry("a/b", data=b"x")),
    "below a link to itself": packed(link("a", "a"), Entry("a/b", data=b"x")),
    "removes itself": packed(folder("a"), Entry("a/.wh..")),
    "removes what is above": packed(folder("a"), Entry("a/.wh...")),
    "removes nothing": packed(Entry(".wh.")),
    "a long path": packed(Entry("/".join(["a" * 200] * 30))),
    "a long name": packed(Entry("a" * 300)),
    "no archive": b"x" * 10_000,
    "cut": packed(Entry("a", data=b"x" * 100_000))[:50_000],
    "a damaged head": packed(Entry("a", data=b"x" * 512)) [:1024] + b"x" * 512 + bytes(1024),
    "a cut compression": gzip.compress(packed(Entry("a", data=os.urandom(100_000))))[:50_000],
    "heads of a gigabyte": b"",
}  # fmt: skip


def large_head() -> bytes:
    """An archive whose extended head says that it has 3 GB, compressed a thousandfold."""
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, 3 << 30
    return gzip.compress(head.tobuf(tarfile.USTAR_FORMAT)) + b"".join(
        [gzip.compress(bytes(1 << 20))] * 1200
    )


def test_archives_that_are_refused(layers: Layers) -> None:
    for name, archive in REFUSED.items():
        with pytest.raises(StartError):
            unpack(layers, archive or large_head(), name)
        assert layers.names() == [], name
        assert list(layers.folder.iterdir()) == [], name


def test_a_bomb_ends_where_there_is_no_more_room(layers: Layers) -> None:
    archive = gzip.compress(packed(*(Entry(f"a{n}", data=bytes(30 << 20)) for n in range(4))))

    def room(size_bytes: int) -> None:
        if size_bytes > 50 << 20:
            raise StartError("no more room")

    with layers.archive() as path:
        path.write_bytes(archive)
        with pytest.raises(StartError, match="no more room"):
            layers.unpack("bomb", path, image_ids(), room=room)
    assert list(layers.folder.iterdir()) == []


def test_a_layer_has_the_digest_that_its_image_says(layers: Layers) -> None:
    archive = packed(Entry("a"))
    own = f"sha256:{hashlib.sha256(archive).hexdigest()}"
    with layers.archive() as path:
        path.write_bytes(gzip.compress(archive))
        with pytest.raises(StartError, match="another than the image says"):
            layers.unpack("sha256:1", path, image_ids(), diff_id="sha256:1")
        assert layers.unpack(own, path, image_ids(), diff_id=own).files == 1


@pytest.fixture
def known(tmp_path: Path) -> KnownEnvironments:
    def add(files: Path) -> None:
        (files / "app/data").mkdir()
        (files / "app/data").chmod(0o1777)
        (files / "app/data/old").write_text("old")

    built = unpacked_image(tmp_path / "store", add, "/app")
    return KnownEnvironments({"app": built}, tmp_path / "store")


@pytest.mark.slow
def test_a_derived_layer_is_made_once_and_lies_over_the_image(known: KnownEnvironments) -> None:
    calls = []

    async def sh(sandbox: StatefulSandbox, line: str) -> str:
        ended = await sandbox.exec(Command(argv=("sh", "-ec", line)))
        assert ended.exit_code == 0, ended
        return ended.stdout.decode()

    async def acted() -> None:
        backend = LocalBackend(make_plan(Settings(slots=1), environments=known))
        await backend.start()
        try:

            async def by_commands(path: Path) -> bytes:
                calls.append("commands")
                async with backend.open(LIMITS, "app") as sandbox:
                    await sh(sandbox, "rm /app/data/old; echo x > /app/data/new; chmod 700 /app")
                    await asyncio.to_thread(path.write_bytes, await sandbox.snapshot())
                return b"notes of commands"

            async def by_hand(path: Path) -> bytes:
                archive = packed(Entry("app/data/more", data=b"more"))
                await asyncio.to_thread(path.write_bytes, archive)
                return b""

            async def failing(path: Path) -> bytes:
                raise ValueError("not made")

            async def derive(make: MakeLayer, key: str, name: str = "app") -> str:
                derived = await derived_environment(backend, name, key, make)
                assert derived.notes == (b"notes of commands" if key == "1" else b"")
                return derived.name

            with pytest.raises(ValueError, match="not made"):
                await derive(failing, "1")
            names = await asyncio.gather(*(derive(by_commands, "1") for _ in range(3)))
            assert (len(set(names)), calls) == (1, ["commands"])
            second = await derive(by_hand, "2", names[0])
            async with backend.open(LIMITS, names[0]) as sandbox:
                assert await sh(sandbox, "ls /app/data; stat -c %a /app") == "new\n700\n"
            async with backend.open(LIMITS, second) as sandbox:
                assert (
                    await sh(sandbox, "ls /app/data; stat -c %a /app/data") == "more\nnew\n1777\n"
                )
                assert await sh(sandbox, "rm /app/data/more; ls /app/data") == "new\n"
            async with backend.open(LIMITS, "app") as sandbox:
                assert await sh(sandbox, "ls /app/data") == "old\n"
            with pytest.raises(NotLayered, match="no image"):
                await derive(by_hand, "1", "default")
        finally:
            await backend.close()

    asyncio.run(acted())


@pytest.mark.slow
def test_derived_layers_make_room_for_others(known: KnownEnvironments) -> None:
    built, folder, calls = known["app"], known.folder / ("0" * 32), []
    assert built.image is not None
    folder.mkdir()
    names = [each.name for each in built.image.layers]
    (folder / "image.json").write_text(json.dumps({"layers": names}))
    bounded = KnownEnvironments(
        {"app": replace(built, folder=folder)}, known.folder, most_bytes=3 << 20
    )

    async def make(path: Path) -> bytes:
        calls.append(path)
        archive = packed(Entry("app/large", data=bytes(2 << 20)))
        await asyncio.to_thread(path.write_bytes, archive)
        return b"notes"

    async def acted() -> None:
        first = await bounded.derived("app", "1", make)
        second = await bounded.derived("app", "2", make)
        assert (bounded.get(first.name), len(calls)) == (None, 2)
        assert await bounded.derived("app", "2", make) == second
        assert (bounded.get(second.name) is not None, len(calls)) == (True, 2)
        assert await bounded.derived("app", "1", make) == first
        assert (bounded.get(second.name), len(calls)) == (None, 3)

    asyncio.run(acted())


def test_requests_name_no_derived_layer(tmp_path: Path) -> None:
    known = KnownEnvironments({}, tmp_path, ("docker.io/*",))
    for name, is_known in (
        ("docker.io/a/b:1", True),
        ("docker.io/a/b", False),
        ("docker.io/a/b:1+0123456789abcdef", False),
        ("docker.io/a/../b:1", False),
        ("docker.io/" + "+0123456789abcdef" * 100_000, False),
        ("quay.io/a/b:1", False),
    ):
        assert (name in known) == is_known, name[:100]


def test_a_pattern_names_no_other_registry_and_no_file_of_the_machine(tmp_path: Path) -> None:
    known = KnownEnvironments({}, tmp_path, ("*.example.org/*", "ghcr.io/me-*", "oci:/images/*"))
    for name, is_known in (
        ("eu.example.org/a/b:1", True),
        ("ghcr.io/me-1/deep/b:1", True),
        ("oci:/images/a:1", True),
        ("10.0.0.1:80/a.example.org/b:1", False),
        ("oci:/a.example.org/b", False),
        ("docker-archive:/images/a", False),
    ):
        assert (name in known) == is_known, name
    everything = KnownEnvironments({}, tmp_path, ("*",))
    assert "10.0.0.1:80/a/b:1" in everything
    assert "oci:/etc/image" not in everything


def test_doctor_names_the_file_system_of_the_store(tmp_path: Path) -> None:
    assert image_store_checks(Settings(environments=None)) == []
    for folder in (tmp_path / "not/there", Path("/proc")):
        [check] = image_store_checks(Settings(images=["*"], environments_folder=folder))
        assert (check.name, check.ok) == ("image_store", True)
        assert f"{folder} lies on " in check.detail


def test_names_of_images() -> None:
    for given, name in (
        ("debian", "docker.io/library/debian:latest"),
        ("docker://swebench/a:1", "docker.io/swebench/a:1"),
        ("ghcr.io/a/b@sha256:1", "ghcr.io/a/b@sha256:1"),
        ("localhost:5000/a", "localhost:5000/a:latest"),
        ("localhost/a:1", "localhost/a:1"),
        ("oci:/srv/a:1", "oci:/srv/a:1"),
    ):
        assert full_name(given) == name
    for wrong in (
        "",
        "oci:a",
        "a b",
        "oci:/srv/../etc:1",
        "dir:/a",
        "a+b",
        "-a",
        "a/../b",
        "A" * 2000,
    ):
        with pytest.raises(ValueError, match="is no image"):
            full_name(wrong)


def test_what_killed_fetches_have_left_is_removed(tmp_path: Path) -> None:
    store = EnvironmentStore(tmp_path / "store")
    layers = Layers(store.folder)
    layer = unpack(layers, packed(Entry("a", data=b"x")))
    key = "0f" * 16
    for name in (f"{key}.x1.part/layout", f"images/{layer.name}.x2.part/a", "images/layers/cut"):
        (store.folder / name).mkdir(parents=True)
    (store.folder / f"{key}.x1.part/layers.json").write_text(f'["{layer.name}"]')
    with store._folders.lock(key).acquire():
        store.remove_unfinished()
        assert store.prune(()) != []
        assert layers.read(layer.name) is not None  # a running fetch needs it
    store.remove_unfinished()
    assert store.prune(()) != []
    assert layers.names() == []
    assert list(layers.folder.iterdir()) == []
    assert not list(store.folder.rglob("*.part"))


def test_folders_keep_the_attributes_of_lower_layers(layers: Layers) -> None:
    lower = unpack(
        layers, packed(folder("tmp", 0o1777), folder("a", 0o700), folder("b", 0o711)), "1"
    )
    middle = unpack(layers, packed(folder("b", 0o750)), "2")
    upper = unpack(layers, packed(Entry("tmp/x"), Entry("a/x"), Entry("b/x"), Entry("new/x")), "3")
    found = {path: mode for path, mode, *_ in layers.inherited((upper, middle, lower))}
    assert found == {"tmp": 0o1777, "a": 0o700, "b": 0o750}
