"""Trees of files in an image, and changes of them in a sandbox: each tree has a number or a name."""

from __future__ import annotations

import hashlib
import io
import os
import random
import stat
import tarfile
from collections import defaultdict
from pathlib import Path

OWNER = 33
"""User id of all files of the trees in an image with many users."""
# A text in another encoding than UTF-8, and names that a shell or a program could take for more.
NAMES = ("a", "b", "src", "lib", "x y", "-n", ".hidden", "new\nline", "caf\udce9", "…", "*")
NAMED_CHANGES = {
    "nothing": ":",
    "edited": "echo more >> src/name/deep/er/file",
    "edited_below_a_folder_with_one_entry": "echo more >> only/name/one",
    "removed_below_a_folder_with_one_entry": "rm only/name/one",
    "mode_below_a_folder_with_one_entry": "chmod 700 only/name",
    "only_the_mode": "chmod 700 src/name",
    "removed": "rm -r src/name other/one",
    "all_removed": "rm -r src",
    "emptied": "rm -r src/* src/.dot",
    "remade": "rm -r src; mkdir src; echo x > src/new",
    "remade_with_the_same_names": "rm -r src; mkdir -p src/name/deep; echo x > src/name/deep/file",
    "remade_below": "rm -r src/name; mkdir -p src/name/deep/er; echo x > src/name/deep/er/new",
    "remade_and_removed_below": "rm -r src; mkdir -p src/name; touch src/name/x; rm -r src/name",
    "remade_and_edited": "cp -r src s; rm -r src; mv s src; rm src/name/one; echo x > src/name/two",
    "removed_and_moved_there": "rm -r src; mv other src; echo x > src/new",
    "renamed": "mv src s",
    "renamed_and_back": "mv src/name n; mv n src/name; rm src/name/one",
    "moved_into_a_new_folder": "mkdir new; mv src new/src; mkdir src; mv new/src/name src/name",
    "all_renamed": "mkdir old; mv src other old; mkdir src other; mv old/src/name/deep src/deep",
    "file_for_a_folder": "rm -r src/name; echo x > src/name",
    "folder_for_a_file": "rm src/name/one; mkdir src/name/one; echo x > src/name/one/x",
    "link_for_a_folder": "rm -r src/name; ln -s ../other src/name",
    "folder_for_a_link": "rm link; mkdir link; echo x > link/one",
    "link_changed": "ln -sfn src link; ln -s nowhere broken",
    "hard_links": "ln src/name/one second; ln second other/third; echo x >> second",
    "deep": "d=src; for i in $(seq 200); do d=$d/d; done; mkdir -p $d; echo x > $d/x; rm src/.dot",
    "deep_and_remade": "rm -r chain/c/c; mkdir -p chain/c/c/c; echo x > chain/c/c/c/x",
    "pipe_removed": "rm other/one; mkfifo other/one; rm other/one",
    "closed_to_changes": "echo x > closed/new; rm closed/one; chmod 555 closed",
    "closed_and_removed": "chmod -R u+w fixed; rm -r fixed",
    "pipe_for_a_file": "rm other/one; mkfifo other/one",
    "names_of_marks": "echo x > src/new; touch src/.wh.name src/.wh..wh..opq src/name/.wh..wh..opq",
}  # fmt: skip
"""Shell commands in a tree of its own, by the name of the tree."""

CHANGE = """
import os, random, shutil, sys

top, seeds, names, root = sys.argv[1], int(sys.argv[2]), sys.argv[3].split("/"), os.geteuid() == 0

def paths(kind):
    found = []
    for folder, folders, files in os.walk("."):
        folders.sort()
        for name in folders + sorted(files):
            path = os.path.join(folder, name)
            is_folder = os.path.isdir(path) and not os.path.islink(path)
            if kind == "any" or is_folder == (kind == "folder"):
                found.append(path)
    return found

def some(kind):
    return random.choice(paths(kind) or ["./a"])

def free():
    return os.path.join(random.choice([".", *paths("folder")]), random.choice(names))

def write(path, mode="w"):
    with open(path, mode) as file:
        file.write(str(random.random()) * random.randrange(20))
    os.utime(path, (10**9 + random.randrange(10**6),) * 2)

def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)

def fill(path, depth=2):
    for name in random.sample(names, random.randrange(4)):
        if depth and random.random() < 0.4:
            os.mkdir(os.path.join(path, name))
            fill(os.path.join(path, name), depth - 1)
        else:
            write(os.path.join(path, name))

def edit(): write(some("file"), random.choice("wa"))
def add(): write(free())
def remove_any(): remove(some("any"))
def add_folder():
    path = free()
    os.makedirs(path)
    fill(path)
def remake():
    path = some("folder")
    remove(path)
    os.mkdir(path)
    fill(path)
def copy_in_place():
    path = some("folder")
    shutil.copytree(path, "copied", symlinks=True)
    remove(path)
    os.rename("copied", path)
def rename():
    path, to = some("any"), free()
    if not (to + "/").startswith(path + "/"):
        if random.random() < 0.3: remove(to)
        shutil.move(path, to)
def replace():
    path = some("any")
    remove(path)
    random.choice([write, os.mkdir, lambda path: os.symlink(some("any"), path)])(path)
def link(): os.symlink(some("any"), free())
def hard_link(): os.link(some("file"), free(), follow_symlinks=False)
def mode_of_file():
    path = some("file")
    if not os.path.islink(path):
        os.chmod(path, random.choice([0o644, 0o600, 0o755, 0o444, 0o400] + [0, 0o222] * root))
def mode_of_folder():
    os.chmod(some("folder"), random.choice([0o755, 0o700, 0o555, 0o1777, 0o711] + [0, 0o222] * root))
def owner(): os.lchown(some("any"), random.randrange(99), random.randrange(99))

OPERATIONS = [edit, add, remove_any, add_folder, remake, remake, copy_in_place, rename, rename, replace,
              link, hard_link, mode_of_file, mode_of_folder, owner]
for seed in range(seeds):
    random.seed(seed)
    os.chdir(os.path.join(top, str(seed)))
    for _ in range(random.randrange(1, 25)):
        try:
            random.choice(OPERATIONS)()
        except (OSError, shutil.Error):
            pass  # it may have been done in part
"""
"""Program for a sandbox, with the arguments FOLDER NUMBER NAMES: random changes of so many trees in it."""


def write_random_tree(top: Path, seed: int) -> None:
    """Write a tree of up to a hundred files, folders and links."""
    choose = random.Random(seed)

    def fill(folder: Path, depth: int) -> None:
        for name in choose.sample(NAMES, choose.randrange(1, 7)):
            path = folder / name
            kind = choose.random()
            if depth and kind < 0.5:
                path.mkdir()
                fill(path, depth - 1)
            elif kind < 0.6:
                path.symlink_to(choose.choice(NAMES))
            else:
                _write(path, str(choose.random()))
                path.chmod(choose.choice([0o644, 0o600, 0o755, 0o444]))

    top.mkdir(parents=True)
    fill(top, 4)
    _own(top)


def write_named_tree(top: Path) -> None:
    """Write the tree that the changes with a name begin with."""
    for name in ("src/.dot", "src/name/one", "src/name/two", "src/name/deep/er/file", "other/one",
                 "only/name/one", "only/name/two", "chain/c/c/c/old", "chain/c/c/c/c/old",
                 "closed/one", "fixed/in/one"):  # fmt: skip
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        _write(top / name, name)
    (top / "link").symlink_to("other")
    for name in ("fixed/in", "fixed"):
        (top / name).chmod(0o555)
    _own(top)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (10**9, 10**9))


def _own(top: Path) -> None:
    """Give the tree to its owner, where there is more than one user."""
    if Path("/proc/self/uid_map").read_text().split()[2] == "1" or os.geteuid() != 0:
        return
    for folder, folders, names in os.walk(top):
        for each in (folder, *(f"{folder}/{name}" for name in folders + names)):
            os.lchown(each, OWNER, OWNER)


def listed(archive: bytes) -> dict[str, dict[str, tuple[object, ...]]]:
    """Return what is in the trees of which `archive` is a plain tar, by tree and path.

    Not what a layer loses: pipes, names of its marks, times of folders and links, the bits for another
    user or group.
    """
    found: defaultdict[str, dict[str, tuple[object, ...]]] = defaultdict(dict)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        for member in opened:
            if member.isfifo() or member.name.rpartition("/")[2].startswith(".wh."):
                continue
            file = opened.extractfile(member) if member.isreg() else None
            content = hashlib.sha256(file.read()).hexdigest() if file else ""
            time = member.mtime if member.isreg() else 0
            mode = member.mode & ~(stat.S_ISUID | stat.S_ISGID)
            tree, _, path = member.name.removeprefix("./").partition("/")
            found[tree][path] = (
                member.type, oct(mode), member.uid, member.gid, member.linkname, int(time), content,
            )  # fmt: skip
    return found
