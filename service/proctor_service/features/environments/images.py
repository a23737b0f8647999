"""Container images: fetched by skopeo, and unpacked by umoci into folders of the store.

    FOLDER/KEY/rootfs       file system of the image, all layers in one
    FOLDER/KEY/image.json   its digest and configuration

All users of the image are mapped to user ids of their own on the machine, as its sandboxes
run in a user namespace; an ordinary user owns all files himself. Formats: the image specification of
the Open Container Initiative, and the `config.json` of its runtime specification, which umoci writes.
All functions block.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from proctor_service.errors import StartError
from proctor_service.features.environments.folders import Folders
from proctor_service.features.environments.manifest import digest_of
from proctor_service.features.environments.packages import Progress, shortened
from proctor_service.features.environments.programs import run_program
from proctor_service.sandbox.environments import Ids, Image
from proctor_service.settings import worker_environment

_FORMAT = 1
_FILE, _ROOTFS = "image.json", "rootfs"
_KEY_CHARACTERS = 32
_POLICIES = ("/etc/containers/policy.json", "~/.config/containers/policy.json")
_RANGES = ((1_900_000_000, 65_536), (50_000, 11_000))
"""First user id of images on the host, and their number: systemd's documentation of user ids leaves
the first range free. The second is for a container that has no ids beyond 65,535."""
_FOLDERS = {
    "proc": 0o555, "dev": 0o755, "sys": 0o555, "tmp": 0o1777, "etc": 0o755, "run": 0o755,
    "var/tmp": 0o1777, "root": 0o700, "opt": 0o755, "opt/proctor": 0o755,
}  # fmt: skip
_MOUNTED = ("proc", "dev", "sys")
_HOSTS = b"127.0.0.1 localhost\n::1 localhost\n"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_STEPS, _OLDEST_MINOR = 400, 8
_PER_BUILD = ("TERM",)  # variables added by umoci
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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


def read_image(folder: Path) -> Image | None:
    """Return the image in a complete folder, or None."""
    try:
        read: dict[str, Any] = json.loads((folder / _FILE).read_text())
        if read.pop("format") != _FORMAT or not (folder / _ROOTFS).is_dir():
            return None
        ids = read.pop("ids")
        return Image(
            **{
                **read,
                "rootfs": folder / _ROOTFS,
                "groups": tuple(read["groups"]),
                "programs": tuple(read["programs"]),
                "ids": Ids(**ids) if ids else None,
            }
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def build_image(
    folders: Folders, name: str, reference: str, progress: Progress, rebuild: bool
) -> Image:
    """Fetch and unpack an image, unless built. Raises StartError, OSError."""
    key = key_of_image(reference)
    with folders.building(key, progress):
        image = None if rebuild else read_image(folders.folder / key)
        if image is None:
            with folders.filling(key, name) as part:
                try:
                    _fill(part, reference, progress)
                except StartError as error:
                    raise StartError(f"environment {name} cannot be built: {error}") from None
            image = read_image(folders.folder / key)
    if image is None:
        raise StartError(f"environment {name} cannot be built: its image is incomplete")
    return image


def _fill(part: Path, reference: str, progress: Progress) -> None:
    part.chmod(0o700)  # its programs are not for the users of this machine
    layout, ids = part / "layout", image_ids()
    source = reference if ":/" in reference else f"docker://{reference}"
    has_policy = any(Path(each).expanduser().exists() for each in _POLICIES)
    options = () if has_policy else ("--insecure-policy",)
    _run(["skopeo", *options, "copy", source, f"oci:{layout}:image"], part, progress)
    found = json.loads((layout / "index.json").read_text())["manifests"]
    progress("unpacking the image")
    rootless = ["--rootless"] if ids is None else []
    command = ["umoci", "unpack", *rootless, "--image", f"{layout}:image", str(part / "bundle")]
    _run(command, part, None)
    shutil.rmtree(layout)
    config = json.loads((part / "bundle" / "config.json").read_text())["process"]
    rootfs = part / _ROOTFS
    (part / "bundle" / _ROOTFS).rename(rootfs)
    shutil.rmtree(part / "bundle")
    variables = dict(each.split("=", 1) for each in config["env"] if "=" in each)
    variables = {name: value for name, value in variables.items() if name not in _PER_BUILD}
    variables.setdefault("PATH", _PATH)
    user = config["user"]
    _complete(rootfs, config["cwd"], user)
    if not _inside(rootfs, config["cwd"]).is_dir():
        raise StartError(f"the image's working directory {config['cwd']} is no folder")
    _own(rootfs, ids)
    image = {
        "format": _FORMAT,
        "reference": reference,
        "digest": found[0]["digest"],
        "variables": variables,
        "user": user["uid"],
        "group": user["gid"],
        "groups": user.get("additionalGids") or [],
        "workdir": config["cwd"],
        "programs": sorted(_programs(rootfs, variables["PATH"])),
        "python": _python_version(rootfs, variables["PATH"]),
        "ids": ids and asdict(ids),
    }
    (part / _FILE).write_text(json.dumps(image, indent=1) + "\n")


def _run(command: list[str], folder: Path, progress: Progress | None) -> None:
    try:
        ran = run_program(command, folder, worker_environment(), on_line=progress)
    except OSError as error:
        raise StartError(f"{command[0]} cannot be started: {error}") from None
    if ran.status == 127 and shutil.which(command[0]) is None:
        raise StartError(f"{command[0]} is missing: apt-get install skopeo umoci")
    if ran.status != 0:
        why = shortened(ran.output) or f"status {ran.status}"
        raise StartError(f"{command[0]} failed:\n{why}")


def _complete(rootfs: Path, workdir: str, user: Mapping[str, int]) -> None:
    """Make the folders of every sandbox, and the working directory.

    Links of the image would lead to files of this machine, so they stay unfollowed.
    """
    top = os.open(rootfs, _FOLDER)
    try:
        for name in _MOUNTED:
            try:
                if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                    os.unlink(name, dir_fd=top)
            except FileNotFoundError:
                pass
        for path, mode in _FOLDERS.items():
            _make_folder(top, path, mode, (0, 0))
        _make_folder(top, workdir, 0o755, (user["uid"], user["gid"]))
        _write_hosts(top)
    finally:
        os.close(top)


def _make_folder(top: int, path: str, mode: int, owner: tuple[int, int]) -> None:
    """Make a folder with its parents, unless a link or a file is in the way."""
    here = os.dup(top)
    try:
        for part in PurePosixPath(path.lstrip("/")).parts:
            if part == "..":
                return
            try:
                os.mkdir(part, 0o755, dir_fd=here)
                os.chmod(part, mode, dir_fd=here)
                if os.geteuid() == 0:
                    os.chown(part, *owner, dir_fd=here, follow_symlinks=False)
            except FileExistsError:
                pass
            try:
                below = os.open(part, _FOLDER, dir_fd=here)
            except OSError:
                return
            os.close(here)
            here = below
    finally:
        os.close(here)


def _write_hosts(top: int) -> None:
    """Let `localhost` be known, where the image leaves this to its runtime."""
    try:
        etc = os.open("etc", _FOLDER, dir_fd=top)
    except OSError:
        return
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        hosts = os.open("hosts", flags, 0o644, dir_fd=etc)
        try:
            if stat.S_ISREG(os.fstat(hosts).st_mode) and not os.read(hosts, 1):
                os.write(hosts, _HOSTS)
        finally:
            os.close(hosts)
    except OSError:
        pass  # a link: the image has its own way
    finally:
        os.close(etc)


def _own(rootfs: Path, ids: Ids | None) -> None:
    """Give all files to the image's ids; to an ordinary user, access to all his own files."""
    for parent, folders, names in os.walk(rootfs):
        here = Path(parent)
        _own_one(here, ids)
        for name in names:
            _own_one(here / name, ids)
        for name in folders:
            if (here / name).is_symlink():
                _own_one(here / name, ids)


def _own_one(path: Path, ids: Ids | None) -> None:
    found = path.lstat()
    kind, mode = stat.S_IFMT(found.st_mode), stat.S_IMODE(found.st_mode)
    if kind in (stat.S_IFBLK, stat.S_IFCHR):
        path.unlink()
        return
    if ids is not None:
        os.lchown(path, _id(found.st_uid, ids), _id(found.st_gid, ids))
    if kind != stat.S_IFLNK:
        least = 0 if ids is not None else 0o700 if kind == stat.S_IFDIR else 0o400
        path.chmod(mode | least)


def _id(number: int, ids: Ids) -> int:
    if ids.first <= number < ids.first + ids.count:
        return number  # another name of an earlier file
    return ids.first + min(number, ids.count - 1)


def _programs(rootfs: Path, path: str) -> set[str]:
    """Return the names of programs in all folders of PATH."""
    found: set[str] = set()
    for folder in path.split(":"):
        try:
            with os.scandir(_inside(rootfs, folder)) as entries:
                found |= {
                    each.name
                    for each in entries
                    if each.is_symlink() or (each.is_file() and each.stat().st_mode & 0o111)
                }
        except OSError:
            continue
    return {name for name in found if re.fullmatch(r"[\w.+-]{1,100}", name)}  # "g++"


def _python_version(rootfs: Path, path: str) -> str | None:
    """Return `3.12` for the interpreter `python3` on PATH, from the name of its file."""
    for folder in path.split(":"):
        place = _inside(rootfs, f"{folder}/python3")
        found = re.fullmatch(r"python3\.(\d+)", place.name)  # "python3.12"
        if found is not None and int(found[1]) >= _OLDEST_MINOR and place.is_file():
            return f"3.{found[1]}"
    return None


def _inside(rootfs: Path, path: str) -> Path:
    """Return the place of an image's path on this machine, as its own programs would find it.

    All links are resolved from the image's root, as far as their targets exist.
    """
    todo = list(reversed(PurePosixPath(path.lstrip("/")).parts))
    found: list[str] = []
    for _ in range(_MOST_STEPS):
        if not todo:
            break
        part = todo.pop()
        if part == "..":
            del found[-1:]
            continue
        place = rootfs.joinpath(*found, part)
        if not place.is_symlink():
            found.append(part)
            continue
        target = str(place.readlink())
        if target.startswith("/"):
            found.clear()
        todo += reversed(PurePosixPath(target.lstrip("/")).parts)
    return rootfs.joinpath(*found)
