"""Changes in a sandbox of an image: saved, and applied in a fresh sandbox, they give the same files.

The image needs no container tools. What plain tar makes of the files before and after is compared.
"""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from changed_trees import (
    CHANGE,
    NAMED_CHANGES,
    NAMES,
    OWNER,
    listed,
    write_named_tree,
    write_random_tree,
)
from unpacked_image import VARIABLES, unpacked_image

from core.contract.test_contract_ordinary_user import as_ordinary_user
from proctor_service.sandbox.environments import BuiltEnvironment
from proctor_service.sandbox.interface import Command, Limits, StatefulSandbox
from proctor_service.sandbox.local import LocalBackend
from proctor_service.sandbox.local.launch import make_plan
from proctor_service.settings import Settings

LIMITS = Limits(120, 120, 512, 1 << 16, 64, 256)
SEEDS = range(max(1, round(8 * float(os.environ.get("PROCTOR_FUZZ") or 1))))
"""Random changes, each of a tree of its own: PROCTOR_FUZZ=25 makes 200 of them."""
WORK = "/work"
TOOLS = f"{WORK}/remade/tools"
Open = Callable[[], AbstractAsyncContextManager[StatefulSandbox]]
Trees = Mapping[str, Mapping[str, tuple[object, ...]]]
Act = Callable[[Open], Awaitable[None]]


def with_trees(folder: Path) -> BuiltEnvironment:
    """An image with a tree for each change, and with programs below the working directory."""

    def add(rootfs: Path) -> None:
        work = rootfs / WORK.strip("/")
        for seed in SEEDS:
            write_random_tree(work / f"{seed}", seed)
        for name in NAMED_CHANGES:
            write_named_tree(work / name)
        for name in ("tools/bin/judge", "tools/lib/judge", "old/one", "one"):
            path = work / "remade" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("the image's")

    variables = {**VARIABLES, "PATH": f"{VARIABLES['PATH']}:{TOOLS}/bin"}
    return unpacked_image(folder, add, WORK, variables)


def within(built: BuiltEnvironment, act: Act) -> None:
    """Run `act` with a function that opens a sandbox of the image."""

    async def acted() -> None:
        backend = LocalBackend(make_plan(Settings(slots=1), environments={"app": built}))
        await backend.start()
        try:
            await act(lambda: backend.open(LIMITS, "app"))
        finally:
            await backend.close()

    asyncio.run(acted())


def of_user(built: BuiltEnvironment, user: int) -> BuiltEnvironment:
    assert built.image is not None
    return replace(built, image=replace(built.image, user=user, group=user))


async def done(sandbox: StatefulSandbox, *argv: str) -> bytes:
    ended = await sandbox.exec(Command(argv=argv, timeout_seconds=120))
    assert ended.exit_code == 0, (argv, ended)
    return ended.stdout


async def trees(sandbox: StatefulSandbox) -> Trees:
    """What plain tar finds in all trees."""
    tar = ("tar", "-C", WORK, "--hard-dereference", "--format=pax", "-cf", "-", ".")
    return listed(await done(sandbox, *tar))


async def change(sandbox: StatefulSandbox) -> None:
    """Change each tree."""
    lines = (f"(set -e; cd {WORK}/{name}; {each})" for name, each in NAMED_CHANGES.items())
    await done(sandbox, "sh", "-ec", "\n".join(lines))
    await done(sandbox, "python3", "-c", CHANGE, WORK, str(len(SEEDS)), "/".join(NAMES))


def differing(one: Trees, other: Trees) -> dict[str, list[str]]:
    """Some of the paths that are different, by tree."""
    found = {}
    for name in {*one, *other}:
        tree, others = one.get(name, {}), other.get(name, {})
        paths = sorted(path for path in {*tree, *others} if tree.get(path) != others.get(path))
        if paths:
            found[name] = paths[:3]
    return found


def lost(built: BuiltEnvironment) -> dict[str, list[str]]:
    """What is different in a sandbox to which the changes in another are applied."""
    found = {}

    async def compared(opened: Open) -> None:
        async with opened() as sandbox:
            untouched = await trees(sandbox)
            await change(sandbox)
            changed = await trees(sandbox)
            archive = await sandbox.snapshot()
        assert {*NAMED_CHANGES} - {*differing(untouched, changed)} == {"nothing"}
        async with opened() as sandbox:
            await sandbox.restore(archive)
            found.update(differing(changed, await trees(sandbox)))

    within(built, compared)
    return found


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> BuiltEnvironment:
    return with_trees(tmp_path_factory.mktemp("image") / "app")


@pytest.mark.parametrize("user", [0, OWNER], ids=["root of the image", "another user of it"])
def test_no_file_is_lost(image: BuiltEnvironment, user: int) -> None:
    assert lost(of_user(image, user)) == {}


def test_no_file_is_lost_as_an_ordinary_user() -> None:
    said = as_ordinary_user("""
        import pathlib, tempfile
        from features.environments.e2e.test_image_changes import lost, with_trees
        with tempfile.TemporaryDirectory() as folder:
            print(lost(with_trees(pathlib.Path(folder, "app"))))
    """)
    assert said.splitlines() == ["{}"]


def test_of_a_remade_folder_the_programs_stay_and_other_files_go(image: BuiltEnvironment) -> None:
    async def act(opened: Open) -> None:
        async with opened() as sandbox:
            lines = f"rm -r {WORK}/remade; mkdir -p {TOOLS}/bin {WORK}/remade/new; echo x > {TOOLS}/bin/judge"
            await done(sandbox, "sh", "-ec", lines)
            archive = await sandbox.snapshot()
        async with opened() as sandbox:
            await sandbox.restore(archive)
            found = await done(sandbox, "sh", "-ec", f"cd {WORK}/remade; cat tools/*/judge; ls")
            assert found == b"the image's" * 2 + b"new\ntools\n"

    within(image, act)


def test_a_layer_of_other_programs_may_hide_a_folder(image: BuiltEnvironment) -> None:
    marks = io.BytesIO()
    with tarfile.open(fileobj=marks, mode="w") as layer:
        layer.addfile(tarfile.TarInfo("work/removed/src/.wh..wh..opq"))

    async def act(opened: Open) -> None:
        async with opened() as sandbox:
            await sandbox.restore(marks.getvalue())
            lines = f"cd {WORK}/removed; ls; ls -A src"
            assert (
                await done(sandbox, "sh", "-ec", lines)
                == b"chain\nclosed\nfixed\nlink\nonly\nother\nsrc\n"
            )

    within(image, act)


def test_a_command_gets_neither_the_image_nor_the_changes_as_a_folder(
    image: BuiltEnvironment,
) -> None:
    async def act(opened: Open) -> None:
        async with opened() as sandbox:
            lines = "for d in 1/fd/301 1/fd/302 self/fd/301 self/fd/302; do ls /proc/$d/ || echo no; done"
            assert await done(sandbox, "sh", "-c", lines) == b"no\n" * 4

    within(image, act)
