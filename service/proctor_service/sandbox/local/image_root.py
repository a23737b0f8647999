"""Root file system of a sandbox of a container image: an overlay of the image's layers and a tmpfs.

Runs in the fork server: standard library only. The fork server's own root has only the folders of
layers, read-only, an overlay of the image's, and devices. Each sandbox mounts a tmpfs and an overlay, and
pivots into the overlay. Its processes are in a user namespace of the image's own users: there root has the
few capabilities of an image's programs, without power over anything outside (see user_namespaces(7)).
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import os
import resource
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ..linux import kernel
from .isolation import BOX, DEVICES, USER_SYSCTLS, mounting_proc, show_device, write

LAYER = 301
"""Descriptor of a sandbox's first process: the folder with all changes."""
LOWER = 302
"""Another: the unchanged image. A snapshot needs both, and works without attributes of the overlay."""
CODE = 303
"""Another: the code for the image's interpreter."""
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_OPENING, _KIND_BYTES = b'{"kind": "', 4
_STATE = b"stat"
_OWN_KINDS = (b"sess", b"comm", b"comp")  # session, command, compile
_IMAGE, _ROOT, _UPPER, _WORK, _SHM = "/image", "/root", f"{BOX}/upper", f"{BOX}/work", f"{BOX}/shm"
_OUTER_SYSCTLS = {"user/max_user_namespaces": "1"}
_PENDING_SIGNALS = 1024
"""Of all users of a sandbox together; the machine counts all sandboxes' as root's."""
_IDS_OF_EACH, _MOST_RANGES = 65_536, 3000  # all below 2 ** 31
_INODES = 65_536
_TERMINALS = 64
_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 10)
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE: capability.h."""
_LINKS = {
    "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
}  # fmt: skip
_LAYERS = "lowerdir={},upperdir={},workdir={}"
_MOUNT, _UMOUNT, _UMASK, _MKDIRAT, _CHDIR, _OPENAT, _FCHOWNAT, _PIVOT_ROOT = kernel.numbers_of(
    "mount", "umount2", "umask", "mkdirat", "chdir", "openat", "fchownat", "pivot_root"
)
_SETNS, _SETGROUPS, _SETRESGID, _SETRESUID, _DUP3, _CLOSE, _CAPSET = kernel.numbers_of(
    "setns", "setgroups", "setresgid", "setresuid", "dup3", "close", "capset"
)


NETWORK_SYSCTLS = {"net/ipv4/ip_unprivileged_port_start": "0"}
"""If masked, services need ports from 1024."""


def build_root(image: dict[str, Any]) -> None:
    """Build the fork server's root and pivot there."""
    new = "/sys"  # hidden below the new root
    kernel.mount("tmpfs", new, "tmpfs", kernel.MS_NOSUID, "size=1m,mode=755")
    for name in ("image", "none", "root", "box", "dev", "dev/pts", "dev/shm", "proc", "tools"):
        os.mkdir(f"{new}/{name}")
    for path in image["holds"]:
        _hold(path)
    image["stores"], image["lower"] = [], []
    for layer in image["layers"]:
        _show_layer(image, layer, new)
    for target, source in image["tools"].items():
        if os.path.isdir(source):
            os.mkdir(new + target)
        else:
            open(new + target, "w").close()
        kernel.bind_read_only(source, new + target)
    for name in (*DEVICES, "tty"):
        show_device(name, f"{new}/dev/{name}")
    for name, target in _LINKS.items():
        os.symlink(target, f"{new}/dev/{name}")
    kernel.mount(
        "proc", f"{new}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    )
    kernel.pivot_root(new)
    kernel.libc.sethostname(b"sandbox", 7)
    kernel.mount(
        None, "/", None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID
    )


def _hold(path: str) -> None:
    """Hold a part of the image against its removal, as long as this fork server lives."""
    held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)  # a removal holds it exclusively
    if not os.path.samestat(os.stat(path), os.fstat(held)):
        raise FileNotFoundError(path)


def _show_layer(image: dict[str, Any], layer: str, root: str) -> None:
    """Show the folder of a layer, once for all its layers: a single mount, and short names."""
    store, _, name = layer.rpartition("/")
    if store not in image["stores"]:
        place = f"{root}/l{len(image['stores'])}"
        os.mkdir(place)
        kernel.bind_read_only(store, place)
        image["stores"].append(store)
    os.stat(layer)
    image["lower"].append(f"/l{image['stores'].index(store)}/{name}")


def _lower(image: dict[str, Any]) -> str:
    """Return the image's layers as overlayfs takes them."""
    return ":".join(image["lower"])


def show_image(image: dict[str, Any]) -> None:
    """Mount the image without changes, for snapshots, after `own_ids`."""
    layers = image["lower"] if len(image["lower"]) > 1 else [*image["lower"], "/none"]
    options = "index=off,redirect_dir=nofollow" if image["ids"] else "userxattr"
    flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("overlay", _IMAGE, "overlay", flags, f"lowerdir={':'.join(layers)},{options}")


def open_user_namespace(ids: list[int] | None) -> int:
    """Return the descriptor of a user namespace with these ids, for all sandboxes of this fork server.

    The namespace lies in another namespace, with limits for all its users together: a sandbox has many
    users, and could else use up the limits of all of root's processes on the machine. -1 without `ids`:
    an ordinary user's fork server is already in a user namespace.
    """
    if ids is None:
        return -1
    first, count = ids
    found = _namespace(f"0 {first} {count}", partial(_namespace_inside, count))
    # A sandbox closes all descriptors below its own.
    namespace = fcntl.fcntl(found, fcntl.F_DUPFD_CLOEXEC, LOWER + 1)
    os.close(found)
    return namespace


def own_ids(image: dict[str, Any], number: int) -> None:
    """Give the sandboxes of fork server `number` user ids of their own, where the kernel can.

    The kernel counts some means of a user for all its processes on the machine, for example pipes and
    descriptors in transit: with the same ids, a sandbox could use up its neighbours' part. Needs Linux
    5.19; the ids of the image's files are then mapped by the mount.
    """
    ids = image["ids"]
    if ids is None or ids[1] != _IDS_OF_EACH:
        return
    first = ids[0] + _IDS_OF_EACH * (1 + number % _MOST_RANGES)
    mapping = f"{ids[0]} {first} {_IDS_OF_EACH}"
    mapped = []
    try:
        for index in range(len(image["stores"])):
            kernel.mount_with_ids(f"/l{index}", _namespace(mapping, _this_namespace))
            mapped.append(index)
        works = _overlay_works(image)
    except OSError:
        works = False
    if works:
        image["ids"] = [first, _IDS_OF_EACH]
    else:  # from Linux 5.12 to 5.18, an overlay refuses such a mount
        for index in mapped:
            kernel.umount(f"/l{index}")


def _overlay_works(image: dict[str, Any]) -> bool:
    """Mount an overlay of the image once; return False if the kernel refuses."""
    kernel.mount("tmpfs", BOX, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=64k")
    os.mkdir(_UPPER)
    os.mkdir(_WORK)
    try:
        layers = _LAYERS.format(_lower(image), _UPPER, _WORK)
        kernel.mount("overlay", _ROOT, "overlay", kernel.MS_NOSUID | kernel.MS_NODEV, layers)
    except OSError:
        return False
    else:
        kernel.umount(_ROOT)
        return True
    finally:
        kernel.umount(BOX)


def _namespace(mapping: str, finish: Callable[[], int]) -> int:
    """Return the descriptor from `finish` in a new user namespace with these ids.

    `mapping`: first id inside, first id here, and number, as in user_namespaces(7).
    """
    ours, theirs = socket.socketpair()
    pid = kernel.clone(0)
    if pid == 0:
        try:
            ours.close()
            kernel.unshare(kernel.NEWUSER)
            theirs.send(b"!")
            theirs.recv(1)  # until the ids are set
            socket.send_fds(theirs, [b"!"], [finish()])
        finally:
            os._exit(0)
    theirs.close()
    try:
        ours.recv(1)
        for kind in ("uid", "gid"):
            write(f"/proc/{pid}/{kind}_map", mapping)
        ours.send(b"!")
        found = socket.recv_fds(ours, 1, 1)[1]
        if not found:
            raise OSError("the user namespace of the image cannot be set up")
        return found[0]
    finally:
        ours.close()
        os.waitpid(pid, 0)


def _this_namespace() -> int:
    return os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def _limited_namespace(sysctls: dict[str, str]) -> int:
    """As root of this user namespace, set limits of its users, and return its descriptor."""
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # its files in /proc are then its own
    for name, value in sysctls.items():
        write(f"/proc/sys/{name}", value)
    return _this_namespace()


def _namespace_inside(count: int) -> int:
    """Limit this user namespace, and return another inside."""
    os.close(_limited_namespace(USER_SYSCTLS | _OUTER_SYSCTLS))
    most = resource.getrlimit(resource.RLIMIT_SIGPENDING)[1]
    most = _PENDING_SIGNALS if most == resource.RLIM_INFINITY else min(most, _PENDING_SIGNALS)
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (most, most))  # for the namespace inside
    return _namespace(f"0 0 {count}", partial(_limited_namespace, USER_SYSCTLS))


def entering_image(image: dict[str, Any], disk_mb: int, proc: bytes | None) -> list[kernel.Call]:
    """Return the calls which mount a sandbox's root, and pivot there."""
    here = kernel.AT_FDCWD
    owner = image["ids"][0] if image["ids"] else image["user"]
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    box = f"size={disk_mb}m,nr_inodes={_INODES},mode=755"
    layers = _LAYERS.format(_lower(image), _UPPER, _WORK)
    # Renamed folders and changed modes as copies: a snapshot then sees them without attributes of
    # the overlay, which only root of the machine may read.
    options = "index=off,metacopy=off,redirect_dir=nofollow" if image["ids"] else "userxattr"
    calls: list[kernel.Call] = [
        (_MOUNT, b"tmpfs", BOX.encode(), b"tmpfs", flags, box.encode()),
        (_UMASK, 0),
        (_MKDIRAT, here, _UPPER.encode(), 0o755),
        (_FCHOWNAT, here, _UPPER.encode(), owner, owner, 0),
        (_MKDIRAT, here, _WORK.encode(), 0o700),
        (_MKDIRAT, here, _SHM.encode(), 0o1777),
        (_UMASK, 0o022),
        (_MOUNT, b"overlay", _ROOT.encode(), b"overlay", flags, f"{layers},{options}".encode()),
        mounting_proc(proc, f"{_ROOT}/proc".encode()),
        (_MOUNT, b"/dev", f"{_ROOT}/dev".encode(), None, kernel.MS_BIND | kernel.MS_REC, None),
        (_MOUNT, _SHM.encode(), f"{_ROOT}/dev/shm".encode(), None, kernel.MS_BIND, None),
    ]
    if os.path.isdir(f"{_IMAGE}{image['tools_folder']}"):
        tools = f"{_ROOT}{image['tools_folder']}".encode()
        calls.append((_MOUNT, b"/tools", tools, None, kernel.MS_BIND | kernel.MS_REC, None))
    if image["terminals"]:
        calls.append(mounting_terminals(f"{_ROOT}/dev/pts"))
    for folder, descriptor in ((_UPPER, LAYER), (_IMAGE, LOWER)):
        calls += [
            (_OPENAT, here, folder.encode(), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0),
            (_DUP3, 3, descriptor, os.O_CLOEXEC),  # 3 is the lowest free descriptor
            (_CLOSE, 3),
        ]
    return [
        *calls,
        (_CHDIR, _ROOT.encode()),
        (_PIVOT_ROOT, b".", b"."),
        (_UMOUNT, b".", kernel.MNT_DETACH),
        (_CHDIR, b"/"),
    ]


def mounting_terminals(path: str) -> kernel.Call:
    """Return the call which mounts pseudo-terminals of a sandbox's own."""
    options = f"newinstance,ptmxmode=0666,mode=0620,max={_TERMINALS}"
    flags = kernel.MS_NOSUID | kernel.MS_NOEXEC
    return _MOUNT, b"devpts", path.encode(), b"devpts", flags, options.encode()


def has_terminals() -> bool:
    """Return True if the kernel lets this process mount pseudo-terminals."""
    try:
        kernel.perform([mounting_terminals("/dev/pts")])
    except OSError:
        return False
    kernel.umount("/dev/pts")
    return True


def changing_user(image: dict[str, Any]) -> list[kernel.Call]:
    """Return the calls which enter the user namespace and become the image's user."""
    calls: list[kernel.Call] = []
    namespace = image["namespace"]
    if namespace >= 0:
        groups = (ctypes.c_uint32 * len(image["groups"]))(*image["groups"])
        calls = [
            (_SETNS, namespace, kernel.NEWUSER),
            (_CLOSE, namespace),
            *dropping_bounding(),
            (_SETGROUPS, len(image["groups"]), ctypes.byref(groups)),
            (_SETRESGID, *[image["group"]] * 3),
            (_SETRESUID, *[image["user"]] * 3),
        ]
    capabilities = sum(1 << each for each in _CAPABILITIES) if image["user"] == 0 else 0
    return [*calls, kernel.keeping_capabilities(capabilities)]


def keep_code(image: dict[str, Any]) -> None:
    """Keep the code for the image's interpreter, once for all sandboxes, safe from changes."""
    code = base64.b64decode(image.pop("code", None) or b"")
    if not code:
        return
    made = os.memfd_create("code", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(made, "wb", closefd=False) as file:
        file.write(code)
    fcntl.fcntl(made, fcntl.F_ADD_SEALS, _SEALS)
    os.dup2(made, CODE, inheritable=False)
    os.close(made)


def running_job(
    image: dict[str, Any], hash_seed: str, own_main: Callable[[int], None]
) -> Callable[[int], None]:
    """Return the runner of a job: `own_main` in this interpreter, or else the image's interpreter.

    Commands and sessions work without the image's. The channel has the descriptor before the layer's.
    """
    words = [*image["python"], "-S", "-c", image["boot"]]

    def run(descriptor: int) -> None:
        kind = _kind(descriptor)
        if image["python"] and kind not in _OWN_KINDS:
            for each in (descriptor, CODE, *([LAYER] if kind == _STATE else [])):
                os.set_inheritable(each, True)
            os.environ.update(PYTHONHASHSEED=hash_seed, PYTHONDONTWRITEBYTECODE="1")
            os.execv(words[0], [*words, f"{descriptor} {LAYER} {CODE}"])
        own_main(descriptor)

    return run


def _kind(descriptor: int) -> bytes:
    """Return how the kind of the waiting job on the channel begins; the job remains
    there."""
    channel = socket.socket(fileno=descriptor)
    first = channel.recv(len(_OPENING) + _KIND_BYTES, socket.MSG_PEEK | socket.MSG_WAITALL)
    channel.detach()
    return first.removeprefix(_OPENING)


def take_variables(variables: dict[str, str]) -> None:
    """Set the variables of the image's programs, and import nothing from the image's files."""
    os.environ.clear()
    os.environ.update(variables)
    sys.path.clear()
    sys.path_importer_cache.clear()


def dropping_bounding() -> list[kernel.Call]:
    """Return the calls which limit all programs to the capabilities of an image."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    return [
        kernel.setting(kernel.PR_CAPBSET_DROP, each)
        for each in range(last + 1)
        if each not in _CAPABILITIES
    ]
