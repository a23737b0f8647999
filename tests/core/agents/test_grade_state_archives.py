"""Archives of a sandbox's final state that were made to harm, or are large."""

from __future__ import annotations

import random
import tarfile

import pytest
from archives import Entry, archive, folder, hard, link
from state_judging import DOUBLE, EXEC, GRADERS, PYTEST, TESTS, WRONG, Ask, shell

from proctor_client.wire import Grader, PytestGrader

# ---------------------------------------------------------------- archives that were made to harm

UNTOUCHED = """
import os
assert sorted(os.listdir("..")) == ["home", "shm", "tmp", "work"], os.listdir("..")
assert sorted(os.listdir(".")) == ["good", "solution.py"], os.listdir(".")
assert os.listdir("../home") == os.listdir("../tmp") == os.listdir("../shm") == []
"""
OUTSIDE: dict[str, tuple[str, str | Entry]] = {
    "another place": ("etc/passwd", "x"),
    "the box": ("conftest.py", "x"),
    "beside": ("shm/x", "x"),
    "up": ("work/../x", "x"),
    "up twice": ("work/a/../../x", "x"),
    "absolute": ("/box/x", "x"),
    "doubled": ("//box/x", "x"),
    "empty part": ("work//x", "x"),
    "dot": ("./work/x", "x"),
    "the directory itself": ("work", link("/box/home")),
    "the home itself": ("home", "x"),
    "fifo": ("work/x", Entry(kind=tarfile.FIFOTYPE)),
    "character device": ("work/x", Entry(kind=tarfile.CHRTYPE)),
    "block device": ("work/x", Entry(kind=tarfile.BLKTYPE)),
    "another's name": ("work/x", hard("/etc/passwd")),
    "name of nothing": ("work/x", hard("work/none")),
    "up by name": ("work/x", hard("work/../../etc/passwd")),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_what_does_not_belong_is_left_out(judge: Ask, what: str) -> None:
    judged = judge(UNTOUCHED, EXEC, archive(OUTSIDE[what], ("work/good", "x")))
    assert (judged.verdict, judged.message) == ("passed", "")


THROUGH = ("/box/home", "../home", "/proc/self", "/proc/self/fd", "/dev", ".", "nothing")
BROKEN: dict[str, bytes] = {
    "nothing": bytes(10240),
    "no archive": b"x" * 5000,
    "cut": archive(("work/x", "y" * 5000))[:3000],
    "cut in a header": archive(("work/x", "y" * 600))[:700],
    "zip": b"PK\x03\x04" + bytes(2000),
    "gzip": b"\x1f\x8b\x08" + bytes(2000),
    "twice": archive(("work/x", "1"), ("work/x", "2")),
    "file and directory": archive(("work/x", "1"), ("work/x/y", "2")),
    "directory and file": archive(("work/x/y", "2"), ("work/x", "1")),
    "huge": archive(("work/x", Entry(b"1", size=1 << 40))),
    "endless name": archive(("work/x", Entry(b"1", kind=tarfile.GNUTYPE_LONGNAME, size=1 << 50))),
    "endless header": archive(("work/x", Entry(b"1", kind=tarfile.XHDTYPE, size=1 << 50))),
    "header in header": archive(*[("work/x", Entry(kind=tarfile.XHDTYPE))] * 3000),
    "deep": archive((f"work/{'d/' * 3000}x", "1")),
    "long": archive(("work/" + "n" * 300, "1")),
    "NUL": archive(("work/x\0y", "1"), ("work/to", link("a\0b"))),
    **{f"through {to}": archive(("work/d", link(to)), ("work/d/mem", "1")) for to in THROUGH},
}
FITS = ("nothing", "NUL", "deep")


@pytest.mark.parametrize("what", BROKEN)
def test_no_archive_is_a_way_out_of_a_verdict(judge: Ask, what: str) -> None:
    graders: list[tuple[str, Grader]] = [(WRONG + "assert f(1) == 2", EXEC)]
    graders += [("import os\nos._exit(1)", shell("exit 1", code=1))] if what not in FITS else []
    graders += [(WRONG, grader) for grader in GRADERS.values()]
    for source, grader in graders:
        judged = judge(source, grader, BROKEN[what])
        assert judged.verdict in ("runtime_error", "failed"), (grader.kind, judged)
        if what not in FITS:
            assert judged.message.startswith("its files could not be put in place: "), judged


def test_a_mangled_archive_is_a_verdict_too(judge: Ask) -> None:
    chance = random.Random(1)
    whole = archive(
        ("work/a", "x" * 700), ("work/to", link("a")), ("work/same", hard("work/a")),
        ("work/" + "long" * 40, "y"), ("home/é", "z"), ("tmp/d", folder()),
    )  # fmt: skip
    for _ in range(60):
        mangled = bytearray(whole)
        for _ in range(chance.choice((1, 3, 30))):
            mangled[chance.randrange(len(mangled))] = chance.randrange(256)
        assert judge("x = 1", EXEC, bytes(mangled)).verdict in ("passed", "runtime_error")


# ---------------------------------------------------------------- how large it may be


def test_a_large_state_takes_no_memory_but_its_own(judge: Ask) -> None:
    block = random.Random(2).randbytes(1 << 20)
    state = archive(*((f"work/{number}", Entry(block)) for number in range(64)))
    limits = {"disk_mb": 64, "memory_mb": 64 + 32}
    source = "import os\nassert sum(os.path.getsize(n) for n in os.listdir()) > 64 << 20"
    judged = judge(source, EXEC, state, limits=limits)
    assert (judged.verdict, judged.message) == ("passed", "")
    assert judge(source, EXEC, state, limits={"memory_mb": 32}).verdict == "memory_limit"


def test_a_full_disk_is_no_reason_to_fail(judge: Ask) -> None:
    """The agent kept to its limit; what tests need on top is not the agent's affair."""
    state = archive(("work/full", Entry(b"x" * (15 << 20))), ("work/solution.py", DOUBLE))
    files = {"test_it.py": TESTS, "big.txt": "y" * (3 << 20)}
    grader = PytestGrader(kind="pytest", files=files)
    assert judge("", grader, state).verdict == "passed"
    small = archive(*((f"work/{n}", "x") for n in range(4000)), ("work/solution.py", DOUBLE))
    assert judge("", grader, small).verdict == "passed"


def test_more_files_than_a_sandbox_may_have_are_a_verdict(judge: Ask) -> None:
    state = archive(*((f"work/{n}", "") for n in range(17_000)), ("work/solution.py", DOUBLE))
    judged = judge("", PYTEST, state, limits={"cpu_seconds": 20})
    assert (judged.verdict, judged.exit_code) == ("runtime_error", 1)
    assert "No space left on device" in judged.message
    exactly = archive(*((f"work/{n}", "") for n in range(16_379)))
    verdicts = [
        judge(DOUBLE, grader, exactly, limits={"cpu_seconds": 20}).verdict
        for grader in (PYTEST, EXEC, GRADERS["calls"], GRADERS["asserts in two rooms"])
    ]
    assert set(verdicts) <= {"passed", "failed", "runtime_error", "early_exit"}
