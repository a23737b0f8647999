"""Files of a repository in a real sandbox: listed, read, put in place and saved."""

from __future__ import annotations

import pytest
from repository_sandboxes import OpenRepository, Repositories

from proctor_service.errors import FileRefused
from proctor_service.features.repositories.change import FileState
from proctor_service.features.repositories.trees import TooMuch

pytestmark = pytest.mark.slow

FILES = {"a.py": "1\n", "pkg/b.py": "2\n", "node_modules/x/y.js": "", ".git/config": "x"}


def test_files_are_listed_by_size_without_git_and_environments(repositories: Repositories) -> None:
    async def work(repository: OpenRepository) -> None:
        await repository.shell(
            "chmod +x a.py; ln -s /etc l; mkfifo p; mkdir -p v sub/.git; touch v/pyvenv.cfg v/z sub/f"
        )
        sizes, environments = await repository.tree.sizes()
        assert sizes == {b"a.py": 2, b"l": 4, b"pkg/b.py": 2, b"sub/f": 0}
        assert environments == {b"node_modules", b"v"}
        states = await repository.tree.states([b"a.py", b"l", b"l/passwd", b"p", b"none"])
        assert states == {
            b"a.py": FileState("755", b"1\n"),
            b"l": FileState("link", b"/etc"),
            **dict.fromkeys((b"l/passwd", b"p", b"none")),
        }

    repositories.within(FILES, work)


def test_files_are_put_in_place_with_modes_and_deletions(repositories: Repositories) -> None:
    async def work(repository: OpenRepository) -> None:
        await repository.shell(
            "mkdir pkg/__pycache__; cd pkg/__pycache__; touch b.cpython-311.pyc bb.cpython-311.pyc"
        )
        await repository.tree.put(
            {
                b"link": FileState("link", b"pkg"),
                b"a.py/now/a/folder": FileState("644", b"n"),
                b"a.py": None,
                b"pkg/b.py": FileState("755", b"3\n"),
                b"\xff \n": FileState("644", b""),
                b"gone/x": None,
            }
        )
        sizes, _ = await repository.tree.sizes()
        states = await repository.tree.states(sizes)
        assert states == {
            b"link": FileState("link", b"pkg"),
            b"a.py/now/a/folder": FileState("644", b"n"),
            b"pkg/b.py": FileState("755", b"3\n"),
            b"pkg/__pycache__/bb.cpython-311.pyc": FileState("644", b""),
            b"\xff \n": FileState("644", b""),
        }
        await repository.tree.put({b"a.py/now/a/folder": None, b"pkg": FileState("644", b"file")})
        assert (await repository.shell("cat pkg; test ! -e a.py")) == "file"

    repositories.within(FILES, work)


@pytest.mark.parametrize("path", [b"../x", b"/x", b"a//b", b"out/x", b""])
def test_no_file_is_put_outside_of_the_repository(repositories: Repositories, path: bytes) -> None:
    async def work(repository: OpenRepository) -> None:
        await repository.shell("ln -s /tmp out")
        with pytest.raises(FileRefused):
            await repository.tree.put({path: FileState("644", b"")})
        assert await repository.shell("ls -A /tmp ..") == "..:\nrepo\n\n/tmp:\n"

    repositories.within(FILES, work)


def test_a_repository_is_saved_while_its_processes_are_stopped(repositories: Repositories) -> None:
    async def work(repository: OpenRepository) -> None:
        await repository.shell(
            "ln -s / root; mkfifo p; ln a.py hard; mkdir -p sub/.git; : > sub/.git/config\n"
            "sh -c 'while :; do echo x > busy; mv busy busy2; done' > /dev/null 2>&1 &"
        )
        for _ in range(5):
            files, saved = await repository.saved()
            assert files.keys() - {b"busy", b"busy2"} == {b"a.py", b"hard", b"pkg/b.py", b"root"}
            assert files[b"hard"] == files[b"a.py"] == FileState("644", b"1\n")
            assert (saved.others, saved.nested) == ([b"p"], [b"sub/.git"])
            assert saved.environments == [b"node_modules"]

    repositories.within(FILES, work)


@pytest.mark.parametrize(
    "script",
    [
        "truncate -s 1T sparse",
        "d=x; for i in $(seq 300); do mkdir $d && cd $d; done; touch f",
    ],
)
def test_a_repository_beyond_the_bounds_is_too_much(
    repositories: Repositories, script: str
) -> None:
    async def work(repository: OpenRepository) -> None:
        await repository.shell(f"({script}) 2> /dev/null || true")
        with pytest.raises(TooMuch):
            await repository.saved()

    repositories.within(FILES, work)


def test_later_commands_have_the_directory_and_variables(repositories: Repositories) -> None:
    async def work(repository: OpenRepository) -> None:
        sandbox = repository.sandbox
        await sandbox.set_command_defaults(repository.tree.directory, {"MARK": "set"})
        assert await sandbox.read_file("a.py", 100) == b"1\n"
        assert await repository.shell("echo $MARK") == "set\n"

    repositories.within(FILES, work)


def test_files_of_earlier_runs_are_dropped(repositories: Repositories) -> None:
    async def work(repository: OpenRepository) -> None:
        await repository.shell(
            "mkdir -p out/xml; touch out/a.xml out/xml/b.xml out/c.txt; ln -s c.txt out/l.xml"
        )
        await repository.tree.drop(["out/*.xml"])
        sizes, _ = await repository.tree.sizes()
        assert {b"out/c.txt", b"out/l.xml"} <= sizes.keys()
        assert not {b"out/a.xml", b"out/xml/b.xml"} & sizes.keys()

    repositories.within(FILES, work)
