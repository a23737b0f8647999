"""Isolation of a fork server and its sandboxes: namespaces, and the root file system.

Runs once in the fork server, before the first fork: standard library only. The root is a tmpfs with
the system's programs mounted read-only, a small /etc of copies, a few devices, and an empty /root
and /home. All other files are absent.
"""

from __future__ import annotations

import errno
import os

from ..linux import kernel

BOX = "/box"
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr")
_ETC_COPIED = (
    "ld.so.cache", "ld.so.conf", "localtime", "mime.types", "protocols", "services", "debian_version",
    "os-release", "timezone", "mono/config", "R/ldpaths", "R/Renviron",
    "R/Makeconf", "R/repositories",
)  # fmt: skip
"""Of the settings of languages, only files that packages own: others may hold passwords."""
_ETC_BOUND = ("ld.so.conf.d", "alternatives")
_PHP_EXTENSIONS = ("extension=", "zend_extension=")
_INODES = 16_384
DEVICES = ("null", "zero", "full", "random", "urandom")
# In a user namespace, per-user limits also count for the service's own user, and so for all its
# sandboxes together: no sandbox may use up a limit (an ordinary user's fork server has smaller
# bounds: `kernel_users.bounds`). Sandboxes need no namespaces of these kinds.
USER_SYSCTLS = {
    "user/max_inotify_instances": "8",
    "user/max_inotify_watches": "4096",
    "user/max_user_namespaces": "0",
    "user/max_net_namespaces": "0",
    "user/max_cgroup_namespaces": "0",
    "user/max_time_namespaces": "0",
    "user/max_fanotify_groups": "0",
}
# The network namespace in use, and some that the kernel is about to remove.
_FORK_SERVER_SYSCTLS = {**USER_SYSCTLS, "user/max_net_namespaces": "16"}
_MOUNT, _UMASK, _MKDIRAT, _CHDIR = kernel.numbers_of("mount", "umask", "mkdirat", "chdir")
_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"


def map_user(uid: int, gid: int, outer_uid: int, outer_gid: int) -> None:
    """Map an ordinary user to `uid` in a new user namespace, with all capabilities there."""
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{uid} {outer_uid} 1")
    write("/proc/self/gid_map", f"{gid} {outer_gid} 1")


def await_users(answers: int) -> None:
    """Wait until the zygote has mapped the users of this user namespace. Raises OSError.

    `answers`: end of a pipe, from which comes `+`, or else why the mapping failed.
    """
    with open(answers, "rb") as pipe:
        answer = pipe.read()
    if answer != b"+":
        why = answer.decode("utf-8", "replace").strip() or "the helper ended"
        raise OSError(f"the sandboxes' users cannot be mapped: {why}")


def settle_namespaces(bounds: dict[str, str] | None) -> None:
    """Set up the new namespaces of a fork server, except for the network's (`network.py`).

    `bounds`: sysctls of its user namespace, None without one.
    """
    try:
        # The fork server is already in its cgroup, which its sandboxes then see as the root.
        kernel.unshare(kernel.NEWCGROUP)
    except OSError:
        pass  # before Linux 4.6, or refused: /proc/self/cgroup then shows the group's path
    sysctls = {} if bounds is None else {**_FORK_SERVER_SYSCTLS, **bounds}
    for name, value in sysctls.items():
        try:
            write(f"/proc/sys/{name}", value)
        except OSError:
            pass  # a masked /proc/sys, or a file not specific to a namespace
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)


def build_root(config: dict[str, object]) -> None:
    """Build the read-only root and pivot to the new root.

    `config` has `paths` (further paths to mount read-only), `tools` (target to source), `uid`.
    """
    new = "/sys"  # hidden below the new root during the build; the code below makes no use of /sys
    kernel.mount("tmpfs", new, "tmpfs", kernel.MS_NOSUID, "size=4m,mode=755")
    for name in _SYSTEM:
        _show("/" + name, new)
    paths = config["paths"]
    assert isinstance(paths, list)
    for path in paths:
        _show(path, new)
    tools = config["tools"]
    assert isinstance(tools, dict)
    for target, source in tools.items():
        os.makedirs(
            new + (target if os.path.isdir(source) else os.path.dirname(target)), exist_ok=True
        )
        if not os.path.isdir(source):
            open(new + target, "w").close()
        kernel.bind_read_only(source, new + target)
    for name in ("proc", "box", "etc", "dev", "root", "home", "run", "var", "opt", "srv", "mnt"):
        os.makedirs(f"{new}/{name}", exist_ok=True)
    for link, target in (("tmp", "box/tmp"), ("dev/shm", "../box/shm"), ("var/tmp", "../box/tmp"),
                         ("dev/fd", "/proc/self/fd"), ("dev/stdin", "/proc/self/fd/0"),
                         ("dev/stdout", "/proc/self/fd/1"), ("dev/stderr", "/proc/self/fd/2")):  # fmt: skip
        if not os.path.lexists(f"{new}/{link}"):
            os.symlink(target, f"{new}/{link}")
    for name in DEVICES:
        show_device(name, f"{new}/dev/{name}")
    _make_etc(f"{new}/etc", config)
    # The fork server's own /proc. Each sandbox mounts its /proc on top: in a user namespace, the
    # kernel permits this mount only if a /proc is already visible.
    kernel.mount(
        "proc", f"{new}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    )
    kernel.pivot_root(new)
    kernel.libc.sethostname(b"sandbox", 7)
    kernel.mount(
        None, "/", None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID
    )


def proc_options() -> bytes | None:
    """Return the options with which the kernel mounts a sandbox's /proc."""
    options = b"subset=pid"
    try:
        kernel.perform([mounting_proc(options)])
    except OSError:
        return None  # before Linux 5.8
    kernel.umount("/proc")
    return options


def entering_root(size: str, uid: int, proc: bytes | None) -> list[kernel.Call]:
    """Return the calls which mount the sandbox's own file systems: a tmpfs, and /proc.

    /proc is read-only and shows only the sandbox's own processes. `size` is a size as in mount(8),
    `proc` are the `proc_options`.
    """
    options = f"size={size},nr_inodes={_INODES},mode=755,uid={uid},gid={uid}".encode()
    box, flags = BOX.encode(), kernel.MS_NOSUID | kernel.MS_NODEV
    return [(_MOUNT, b"tmpfs", box, b"tmpfs", flags, options), mounting_proc(proc)]


def moving_in() -> list[kernel.Call]:
    """Return the calls with which the sandbox's user makes and enters its directories.

    These are the workdir, /tmp and /dev/shm. A single tmpfs holds all three, so a single limit
    counts for them together.
    """
    box = BOX.encode()
    return [
        (_UMASK, 0),
        (_MKDIRAT, kernel.AT_FDCWD, box + b"/tmp", 0o1777),
        (_MKDIRAT, kernel.AT_FDCWD, box + b"/shm", 0o1777),
        (_UMASK, 0o022),
        (_MKDIRAT, kernel.AT_FDCWD, box + b"/home", 0o777),
        (_MKDIRAT, kernel.AT_FDCWD, box + b"/work", 0o777),
        (_CHDIR, box + b"/work"),
    ]


def mounting_proc(options: bytes | None, path: bytes = b"/proc") -> kernel.Call:
    """Return the call which mounts a sandbox's /proc: read-only, with its own processes alone."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC | kernel.MS_RDONLY
    return _MOUNT, b"proc", path, b"proc", flags, options


def make_place(uid: int, owned: bool) -> str:
    """Create a workdir on the host, for sandboxes without namespaces; provides no isolation."""
    import tempfile  # imported late, since every fork pays for loaded modules

    place = tempfile.mkdtemp(prefix="proctor-")
    os.chmod(place, 0o755)
    for name in ("work", "tmp", "home"):
        os.mkdir(f"{place}/{name}")
        if owned:
            os.chown(f"{place}/{name}", uid, uid)
    return place


def remove(place: str) -> None:
    """Remove a directory created by `make_place`."""
    import shutil

    shutil.rmtree(place, ignore_errors=True)


def show_device(name: str, target: str) -> None:
    """Mount a device of the host: its data pass, and its times and modes stay."""
    open(target, "w").close()
    kernel.bind_read_only(f"/dev/{name}", target)
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_NOCTTY))
    except OSError as error:
        if error.errno == errno.EROFS:  # not Linux itself, which writes to it all the same
            kernel.umount(target)
            kernel.mount(f"/dev/{name}", target, None, kernel.MS_BIND)


def _show(path: str, root: str) -> None:
    """Mount `path` of the host at the same path below `root`."""
    target = root + path
    if os.path.lexists(target) and not os.path.isdir(path):
        return
    if os.path.islink(path):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(os.readlink(path), target)
    elif os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
        kernel.bind_read_only(path, target)


def _make_etc(etc: str, config: dict[str, object]) -> None:
    for name in _ETC_COPIED:
        if os.path.isfile(f"/etc/{name}"):
            with open(f"/etc/{name}", "rb") as file:
                data = file.read()
            os.makedirs(os.path.dirname(f"{etc}/{name}"), exist_ok=True)
            with open(f"{etc}/{name}", "wb") as file:
                file.write(data)
    _make_php_settings(etc)
    java = [name for name in os.listdir("/etc") if name.startswith("java")]
    for name in (*_ETC_BOUND, *java):
        _show(f"/etc/{name}", etc.removesuffix("/etc"))
    uid = config["uid"]
    texts = {
        "passwd": f"root:x:0:0::/root:/bin/sh\nsandbox:x:{uid}:{uid}::{BOX}/home:/bin/sh\n",
        "group": f"root:x:0:\nsandbox:x:{uid}:\n",
        "hosts": _HOSTS,
        "hostname": "sandbox\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    for name, text in texts.items():
        write(f"{etc}/{name}", text)


def _make_php_settings(etc: str) -> None:
    """Write only the names of PHP's extensions, as the rest of its settings may be secrets."""
    for version in os.listdir("/etc/php") if os.path.isdir("/etc/php") else ():
        folder = f"/php/{version}/cli/conf.d"
        if not os.path.isdir(f"/etc{folder}"):
            continue
        os.makedirs(etc + folder)
        for name in os.listdir(f"/etc{folder}"):
            if os.path.isfile(f"/etc{folder}/{name}"):
                with open(f"/etc{folder}/{name}", errors="replace") as file:
                    lines = [line for line in file if line.startswith(_PHP_EXTENSIONS)]
                write(f"{etc}{folder}/{name}", "".join(lines))


def write(path: str, text: str) -> None:
    """Write a text file. Raises OSError."""
    with open(path, "w") as file:
        file.write(text)
