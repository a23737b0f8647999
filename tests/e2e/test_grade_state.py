"""Submissions that are judged in the final state of a sandbox that a hostile agent had to itself.

The real judge, in real sandboxes. What the agent left may break its own solution and nothing else: an
honest solution passes among the same files with which a wrong one tries to.
"""

from __future__ import annotations

import asyncio
import importlib.util
import marshal
import random
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from archives import WHEN, Entry, archive, folder, hard, link

from proctor_client.wire import (
    AssertsGrader,
    Call,
    CallsGrader,
    CommandGrader,
    ExecGrader,
    Grader,
    PytestGrader,
    StdioCase,
    StdioGrader,
)
from proctor_service.judge.judge import Judge
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.backends import make_backend
from proctor_service.sandbox.interface import Backend, Command, Limits
from proctor_service.settings import Settings
from proctor_service.settings.languages import LANGUAGES, Language

LIMITS = Limits(
    cpu_seconds=5, wall_seconds=20, memory_mb=256, output_kb=64, processes=32, disk_mb=16
)
GLUED = Language(
    source="solution.glue",
    compile=("sh", "-c", "cat head solution.glue > solution && chmod +x solution"),
    run=("./solution",),
    needs=("sh",),
)
EXEC = ExecGrader(kind="exec")
DOUBLE = "def f(x):\n    return 2 * x\n"
WRONG = "def f(x):\n    return 3 * x\n"
TESTS = (
    "from solution import f\ndef test_one(): assert f(1) == 2\ndef test_two(): assert f(2) == 4\n"
)
PYTEST = PytestGrader(kind="pytest", files={"test_it.py": TESTS})


Ask = Callable[..., Judgement]


@dataclass(frozen=True)
class Places:
    """An open backend, the judge, and the loop that they run in."""

    runner: asyncio.Runner
    backend: Backend
    whole: Judge

    def judge(self, source: str, grader: Grader, state: bytes | None, **fields: Any) -> Judgement:
        """Judges a source by a grader, in a state."""
        limits = replace(LIMITS, **fields.pop("limits", {}))
        submission = Submission(source, grader, limits, state=state, **fields)
        return self.runner.run(self.whole(submission, self.backend))


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    settings = Settings(slots=2, languages={**LANGUAGES, "glued": GLUED})
    backend = make_backend(settings)
    with asyncio.Runner() as runner:
        runner.run(backend.open())
        try:
            yield Places(runner, backend, Judge(settings.languages))
        finally:
            runner.run(backend.close())


@pytest.fixture
def judge(places: Places) -> Ask:
    return places.judge


def shell(script: str, code: int = 0) -> CommandGrader:
    return CommandGrader(kind="command", argv=["sh", "-c", script], expect_exit_code=code)


# ---------------------------------------------------------------- what is there again

LOOK = f"""
import os, stat
def mode(path): return stat.S_IMODE(os.lstat(path).st_mode)
assert open("a/b.bin", "rb").read() == bytes(range(256)) * 300
assert mode("a/b.bin") == 0o640 and os.lstat("a/b.bin").st_mtime == {WHEN}
assert os.readlink("to") == "a/b.bin" and os.readlink("nowhere") == "/x/y"
assert os.path.samefile("twin", "a/b.bin")
assert os.listdir("empty") == [] and mode("empty") == 0o711 and os.lstat("empty").st_mtime == {WHEN}
assert mode("shut") == 0o500 and mode("shut/fixed") == 0o400 and open("shut/fixed").read() == "f"
assert mode("run.sh") == 0o755 and os.lstat("run.sh").st_uid == os.getuid()
assert open("../home/.rc").read() == "home" and open("/tmp/t").read() == "tmp"
assert os.path.exists("né \\n.txt") and os.path.exists(b"raw-\\xff")
"""


def test_everything_is_as_it_was(judge: Ask) -> None:
    state = archive(
        ("work", folder()),
        ("work/a", folder()),
        ("work/a/b.bin", Entry(bytes(range(256)) * 300, 0o640)),
        ("work/to", link("a/b.bin")),
        ("work/nowhere", link("/x/y")),
        ("work/twin", hard("work/a/b.bin")),
        ("work/empty", folder(0o711)),
        ("work/shut", folder(0o500)),
        ("work/shut/fixed", Entry(b"f", 0o400)),
        ("work/run.sh", Entry(b"#!/bin/sh\n", 0o4755)),
        ("work/né \n.txt", ""),
        ("work/raw-\udcff", ""),
        ("home/.rc", "home"),
        ("tmp/t", "tmp"),
    )
    judged = judge(LOOK, EXEC, state)
    assert (judged.verdict, judged.message) == ("passed", "")


BESIDE = "from beside import two\ndef f(x):\n    return two() * x\n"
GRADERS: dict[str, Grader] = {
    "asserts": AssertsGrader(kind="asserts", tests=["assert f(1) == 2", "assert f(4) == 8"]),
    "asserts in two rooms": AssertsGrader(
        kind="asserts", tests=["for n in range(5):\n    assert f(n) == n + n"]
    ),
    "calls": CallsGrader(kind="calls", entry_point="f", cases=[Call(args=[2], expected=4)]),
    "pytest": PYTEST,
    "command": shell("python3 -c 'from solution import f; assert f(3) == 6'"),
}


@pytest.mark.parametrize("kind", GRADERS)
def test_the_solution_imports_what_was_written_beside_it(judge: Ask, kind: str) -> None:
    good = archive(("work/beside.py", "def two(): return 2\n"))
    bad = archive(("work/beside.py", "def two(): return 3\n"))
    judged = judge(BESIDE, GRADERS[kind], good)
    assert (judged.verdict, judged.message) == ("passed", "")
    separate = kind not in ("pytest", "command")
    assert judged.integrity == ("separated" if separate else "in_process")
    assert judge(BESIDE, GRADERS[kind], bad).verdict == "failed"


def test_whole_programs_find_their_files(judge: Ask) -> None:
    state = archive(("work/data", "41"), ("work/beside.py", "more = 1\n"))
    program = "from beside import more\nprint(int(open('data').read()) + more)"
    grader = StdioGrader(kind="stdio", cases=[StdioCase(stdout="42"), StdioCase(stdout="42\n")])
    assert judge(program, grader, state).verdict == "passed"
    assert judge(f"{program}\nassert more == 1", EXEC, state).verdict == "passed"
    # Each run has the state as it was.
    spoiler = f"{program}\nopen('data', 'w').write('0')"
    assert judge(spoiler, grader, state).verdict == "passed"


def test_a_compiler_finds_them_too_and_so_does_what_it_made(judge: Ask) -> None:
    state = archive(
        ("work/head", "#!/bin/sh\n"),
        ("work/data", "42"),
        ("work/solution", Entry(b"#!/bin/sh\necho old\n", 0o755)),
    )
    grader = StdioGrader(kind="stdio", cases=[StdioCase(stdout="42")])
    judged = judge("cat data", grader, state, language="glued")
    assert (judged.verdict, judged.message) == ("passed", "")
    assert judge("cat dat", grader, state, language="glued").verdict == "runtime_error"


def test_tests_that_look_at_files_see_the_state(judge: Ask) -> None:
    spy = "import os\nassert os.path.exists('beside.py')\nassert f(1) == 2\n"
    grader = AssertsGrader(kind="asserts", tests=[spy])
    state = archive(("work/beside.py", "def two(): return 2\n"))
    judged = judge(BESIDE, grader, state)
    assert (judged.verdict, judged.message) == ("passed", "")


LEFT = """
import os, subprocess
os.makedirs("pkg/empty")
open("pkg/__init__.py", "w").write("from .core import two\\n")
open("pkg/core.py", "w").write("def two(): return 2\\n")
os.chmod("pkg/core.py", 0o400)
os.symlink("pkg", "alias")
os.chmod("pkg/empty", 0o100)
open("../home/.profile", "w").write("x")
subprocess.Popen(["sh", "-c", "while :; do date > busy; done"])
open("solution.py", "w").write("from alias import two\\ndef f(x): return two() * x\\n")
try:
    with open("/tmp/full", "wb") as file:
        while True:
            file.write(bytes(65536))
except OSError:
    pass
"""


def test_what_a_real_agent_leaves(places: Places) -> None:
    async def live() -> bytes:
        async with places.backend.open_stateful(LIMITS) as sandbox:
            ended = await sandbox.exec(Command(code=LEFT))
            assert ended.exit_code == 0, ended
            return await sandbox.snapshot()

    state = places.runner.run(live())
    assert len(state) > 15 << 20
    for kind in ("pytest", "command"):
        assert places.judge("", GRADERS[kind], state).verdict == "passed"
    text = "from alias import two\ndef f(x): return two() * x\n"
    for kind in ("asserts", "asserts in two rooms", "calls"):
        judged = places.judge(text, GRADERS[kind], state)
        assert (judged.verdict, judged.integrity) == ("passed", "separated")
    look = "import os\nassert os.path.exists('/tmp/full') and os.listdir('/proc/self/task')\n"
    alone = "assert [name for name in os.listdir('/proc') if name.isdigit()] == ['1']\n"
    assert places.judge(look + alone, EXEC, state).verdict == "passed"


# ---------------------------------------------------------------- the submission's own source


@pytest.mark.parametrize("grader", [PYTEST, shell("grep -q 2 solution.py")], ids=["pytest", "sh"])
def test_without_a_source_the_state_has_the_solution(judge: Ask, grader: Grader) -> None:
    assert judge("", grader, archive(("work/solution.py", DOUBLE))).verdict == "passed"
    assert judge("", grader, archive(("work/solution.py", WRONG))).verdict == "failed"
    assert judge("", grader, archive(("work/x", ""))).verdict in ("failed", "runtime_error")


IN_THE_WAY: dict[str, bytes] = {
    "a file": archive(("work/solution.py", Entry(WRONG.encode(), 0o400))),
    "a link": archive(("work/other.py", WRONG), ("work/solution.py", link("other.py"))),
    "a link to nothing": archive(("work/solution.py", link("/nowhere/at/all"))),
    "a directory": archive(("work/solution.py/x", "y")),
    "a cache": archive(("work/solution.py", WRONG), ("work/__pycache__/solution.cpython-311.pyc", "")),
}  # fmt: skip


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_a_source_stands_in_place_of_whatever_was_there(judge: Ask, what: str) -> None:
    for grader in (*GRADERS.values(), EXEC):
        judged = judge(DOUBLE, grader, IN_THE_WAY[what])
        assert (judged.verdict, judged.message) == ("passed", ""), grader.kind


def test_files_of_the_submission_go_over_the_state(judge: Ask) -> None:
    state = archive(("work/d", link("/box/home")), ("work/d2/e", Entry(b"old", 0o400)))
    files = {"d/one": "1", "d2/e": "new"}
    look = "import os\nassert open('d/one').read() == '1' and open('d2/e').read() == 'new'\n"
    judged = judge(look + "assert not os.listdir('../home')", EXEC, state, files=files)
    assert (judged.verdict, judged.message) == ("passed", "")


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
FITS = ("nothing", "NUL")


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


# ---------------------------------------------------------------- pytest: what the agent left for it

Members = list[tuple[str, str | Entry]]

PASS = "def test_one(): pass\ndef test_two(): pass\n"
POSE = f"__file__ = '/box/work/test_it.py'\n{PASS}"
HOOK = """
import pytest
@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem): return True
def pytest_collection_modifyitems(items): items[:] = items[:0]
"""
# Would end any run in which it is imported, with the best of exit codes.
LEAVE = "import os\nos.write(2, b'imported ' + __name__.encode())\nos._exit(0)\n"
MINOR = sys.version_info.minor
SITE = f"home/.local/lib/python3.{MINOR}/site-packages"
CACHE = "work/.pytest_cache/v/cache"


def pyc(source: str, name: str, pytest_tag: bool = False) -> Entry:
    """A cache that claims never to need a look at its source, or to be of the tests' own source."""
    code = marshal.dumps(compile(source, f"/box/work/{name}.py", "exec"))
    head = b"\1\0\0\0" + bytes(8)
    if pytest_tag:
        head = b"\3\0\0\0" + importlib.util.source_hash(TESTS.encode())
    return Entry(importlib.util.MAGIC_NUMBER + head + code)


def cached(name: str, tag: str = "") -> str:
    return f"work/__pycache__/{name}.{sys.implementation.cache_tag}{tag}.pyc"


def at(place: str, **files: str) -> Members:
    return [(f"{place}/{name}.py", text) for name, text in files.items()]


def packages(*names: str) -> Members:
    return [(f"work/{name}/__init__.py", LEAVE) for name in names]


SHADOWS = at("work", **dict.fromkeys(sorted(sys.stdlib_module_names - {"antigravity"}), LEAVE))
SETTINGS: dict[str, Members] = {
    "conftest": at("work", conftest=HOOK),
    "a conftest that is a package": [("work/conftest/__init__.py", HOOK)],
    "a conftest that is a link": [*at("work", mine=HOOK), ("work/conftest.py", link("mine.py"))],
    "conftests around": [*at("home", conftest=HOOK), *at("tmp", conftest=HOOK)],
    "a conftest in a cache": [(cached("conftest"), pyc(HOOK, "conftest"))],
    "pytest.ini": [("work/pytest.ini", "[pytest]\naddopts = -p mine\n"), *at("work", mine=HOOK)],
    ".pytest.ini": [("work/.pytest.ini", "[pytest]\naddopts = --co\n")],
    "pytest.toml": [("work/pytest.toml", "[pytest]\naddopts = ['--co']\n")],
    "tox.ini": [("work/tox.ini", "[pytest]\naddopts = --co\n")],
    "setup.cfg": [("work/setup.cfg", "[tool:pytest]\naddopts = --co\n")],
    "pyproject": [("work/pyproject.toml", "[tool.pytest.ini_options]\naddopts = '--co'\n")],
    "settings at home": [("home/.pytest.ini", "[pytest]\naddopts = --co\n")],
    "a cache for pytest": [(f"{CACHE}/lastfailed", "{}"), (f"{CACHE}/stepwise", '"x"')],
    "pytest's place in tmp": [("tmp/pytest-of-sandbox", link("/box/work"))],
}
MODULES: dict[str, Members] = {
    "site packages": at(SITE, sitecustomize=LEAVE, usercustomize=LEAVE, pytest=LEAVE, json=LEAVE),
    "customization": at("work", sitecustomize=LEAVE, usercustomize=LEAVE),
    "path files": [
        ("work/a.pth", "import os; os._exit(0)"),
        (f"{SITE}/a.pth", "import os; os._exit(0)"),
    ],
    "pytest": at("work", pytest=LEAVE, _pytest=LEAVE, pluggy=LEAVE),
    "pytest's packages": packages("pytest", "_pytest", "pluggy", "py", "pygments", "packaging"),
    "the standard library": SHADOWS,
    "its packages": packages("unittest", "importlib", "json", "xml", "asyncio", "concurrent"),
    "tests of its own": at("work", test_aa=PASS, test_zz=PASS, it_test=PASS, test_bad="assert 0"),
    "a package of the test's name": [("work/test_it/__init__.py", POSE)],
    "extension modules of its name": [
        (f"work/test_it{suffix}.so", LEAVE)
        for suffix in ("", ".abi3", f".cpython-3{MINOR}-x86_64-linux-gnu")
    ],
    "a cache of it": [(cached("test_it"), pyc(PASS, "test_it"))],
    "a cache beside it": [("work/test_it.pyc", pyc(PASS, "test_it"))],
    "a rewritten cache of it": [
        (cached("test_it", f"-pytest-{pytest.__version__}"), pyc(PASS, "test_it", True))
    ],
}
PLACES: dict[str, Members] = {
    "a link to elsewhere": [*at("work", mine=PASS), ("work/test_it.py", link("mine.py"))],
    "a link to nothing": [("work/test_it.py", link("/box/home/none.py"))],
    "a link to itself": [("work/test_it.py", link("test_it.py"))],
    "a directory": [("work/test_it.py/test_it.py", PASS)],
    "a directory that is shut": [("work/test_it.py/x", PASS), ("work/test_it.py", folder(0))],
    "a file that is fixed": [("work/test_it.py", Entry(PASS.encode(), 0o400))],
    "a file of another name": [*at("work", mine=PASS), ("work/test_it.py", hard("work/mine.py"))],
}
CHEATS = {**SETTINGS, **MODULES, **PLACES}


@pytest.mark.parametrize("what", CHEATS)
def test_what_lies_around_decides_no_pytest_run(judge: Ask, what: str) -> None:
    for source in (WRONG, ""):
        state = archive(*CHEATS[what], *([] if source else at("work", solution=WRONG)))
        judged = judge(source, PYTEST, state)
        assert (judged.verdict, judged.passed, judged.total) == ("failed", 0, 2)
        assert judged.hack_signals == ()
    judged = judge(DOUBLE, PYTEST, archive(*CHEATS[what]))
    assert (judged.verdict, judged.message, judged.total) == ("passed", "", 2)


NESTED: dict[str, Members] = {
    "a link": [*at("home/mine", test_it=PASS), ("work/tests", link("/box/home/mine"))],
    "a file": [("work/tests", "x")],
    "shut": [("work/tests/test_it.py", PASS), ("work/tests", folder(0o500))],
    "with a conftest": at("work/tests", conftest=HOOK),
    "a module": [("work/tests.py", LEAVE), ("work/tests.so", "x")],
    "a package": at("work/tests", __init__="", helper="1"),
    **{f"nothing but {name}": members for name, members in CHEATS.items()},
}


@pytest.mark.parametrize("what", NESTED)
def test_nor_what_the_tests_directory_was(judge: Ask, what: str) -> None:
    grader = PytestGrader(kind="pytest", files={"tests/test_it.py": TESTS})
    state = archive(*NESTED[what])
    judged = judge(WRONG, grader, state)
    assert (judged.verdict, judged.passed, judged.total) == ("failed", 0, 2)
    judged = judge(DOUBLE, grader, state)
    assert (judged.verdict, judged.message, judged.total) == ("passed", "", 2)


AROUND: dict[str, str] = {
    "a module made by hand": """
import sys, types
name = "tests.test_it"
sys.modules[name] = forged = types.ModuleType(name)
forged.__file__ = "/box/work/tests/test_it.py"
forged.test_one = forged.test_two = lambda: None
""",
    "a path that leads away": "__path__ = ['/box/home/mine']\n",
    "no finder": """
import pathlib, sys
sys.meta_path[:] = [each for each in sys.meta_path if type(each).__name__ != "Files"]
pathlib.Path("/box/work/tests/test_it.py").unlink()
pathlib.Path("/box/work/tests/test_it.py").write_text("def test_one(): pass\\n")
""",
    "a finder of its own": """
import importlib.machinery, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "tests.test_it":
            loader = importlib.machinery.SourceFileLoader(name, "/box/home/mine/test_it.py")
            return importlib.machinery.ModuleSpec(name, loader, origin=loader.path)
sys.meta_path.insert(0, Finder())
""",
    "a conftest of its own": """
import sys, types
sys.modules["tests.more.conftest"] = forged = types.ModuleType("tests.more.conftest")
forged.__file__ = "/box/work/tests/more/conftest.py"
forged.pytest_collection_modifyitems = lambda items: items.clear()
""",
    "a skip": "import pytest\npytestmark = pytest.mark.skip\npytest.skip('', allow_module_level=True)\n",
    "another mark": "import pytest\npytestmark = pytest.mark.skip\ndef setup_module(): pytest.skip('')\n",
}


@pytest.mark.parametrize("what", AROUND)
def test_nor_a_package_of_the_agents_around_the_tests(judge: Ask, what: str) -> None:
    """Its code runs before the tests' does, as a solution's may."""
    more = {"tests/more/conftest.py": "", "tests/more/test_more.py": "def test_more(): pass\n"}
    files = {"tests/test_it.py": TESTS, **more}
    mine = at("home/mine", test_it=f"__file__ = '/box/work/tests/test_it.py'\n{PASS}")
    init = at("work/tests", __init__=AROUND[what]) + at("work/tests/more", __init__="")
    grader = PytestGrader(kind="pytest", files=files)
    judged = judge(WRONG, grader, archive(*init, *mine))
    assert judged.verdict != "passed", judged
    assert judged.passed <= 1


FORGED = "def double(x): return 3 * x\n"
INSTEAD: dict[str, Members] = {
    "a file": [("work/reference.py", Entry(FORGED.encode(), 0o400))],
    "a cache": [(cached("reference"), pyc(FORGED, "reference"))],
    "a package": [("work/reference/__init__.py", FORGED)],
    "an extension": [("work/reference.so", "x")],
    "a file in a directory": [("work/data.json/x", "3"), ("work/reference.pyc", "x")],
    "a link": [
        *at("home", reference=FORGED),
        ("work/reference.py", link("/box/home/reference.py")),
    ],
    "data": [("work/data.json", Entry(b"3", 0o400))],
    "data elsewhere": [("home/data.json", "3"), ("work/data.json", link("../home/data.json"))],
}


@pytest.mark.parametrize("what", INSTEAD)
def test_all_of_the_graders_files_are_its_own(judge: Ask, what: str) -> None:
    reference = "import json\ndef double(x): return json.load(open('data.json')) * x\n"
    test = "from reference import double\nfrom solution import f\ndef test(): assert f(4) == double(4)\n"
    files = {"test_it.py": test, "reference.py": reference, "data.json": "2"}
    grader = PytestGrader(kind="pytest", files=files)
    state = archive(*INSTEAD[what])
    assert judge(WRONG, grader, state).verdict == "failed"
    judged = judge(DOUBLE, grader, state)
    assert (judged.verdict, judged.message) == ("passed", "")


def test_modules_of_the_agents_go_before_the_libraries(judge: Ask) -> None:
    """As they did in its own sandbox; also those of names that putting files in place has loaded."""
    names = ("tarfile", "grp", "gzip", "calendar")
    state = archive(*at("work", **dict.fromkeys(names, "mine = True\n")))
    source = "".join(f"import {name}\nassert {name}.mine\n" for name in names)
    judged = judge(source, EXEC, state)
    assert (judged.verdict, judged.message) == ("passed", "")


def test_settings_of_the_grader_lead_pytest_nowhere_before_it_is_noted(judge: Ask) -> None:
    patch = """
import gc, importlib, sys
sys.path[:] = [path for path in sys.path if not path.endswith("src")]
def lie(self, pyfuncitem):
    self.met.setdefault(pyfuncitem.nodeid, None)
    return True
for thing in gc.get_objects():
    if type(thing).__name__ == "_Reporter":
        type(thing).pytest_pyfunc_call.__code__ = lie.__code__
del sys.modules[__name__]
importlib.import_module(__name__)
"""
    state = archive(*at("work/src", **dict.fromkeys(sys.stdlib_module_names, patch)))
    files = {"test_it.py": TESTS, "pytest.ini": "[pytest]\npythonpath = src\n"}
    judged = judge(WRONG, PytestGrader(kind="pytest", files=files), state)
    assert judged.verdict != "passed"
    assert judged.passed == 0


def test_what_the_agents_modules_raise_is_told(judge: Ask) -> None:
    state = archive(*at("work/mine", core="def two(): raise KeyError('which')\n"))
    source = "from mine.core import two\ndef f(x): return two() * x\n"
    judged = judge(source, PYTEST, state)
    assert judged.failures[0].message == "KeyError"
    skips = archive(
        *at("work/mine", core="import pytest\npytest.skip('', allow_module_level=True)\n")
    )
    more = {**PYTEST.files, "test_more.py": "def test_more(): pass\n"}
    judged = judge(source, PytestGrader(kind="pytest", files=more), skips)
    assert judged.verdict == "runtime_error"


# ---------------------------------------------------------------- the others

SOURCES = {
    DOUBLE: "passed",
    WRONG: "failed",
    "def f(x):\n    raise ValueError('é')\n": "runtime_error",
    "raise KeyError": "runtime_error",
    "def f(x) return": "syntax_error",
    "raise SystemExit(0)\nf = 1": "early_exit",
    "import os\nos._exit(0)\n": "early_exit",
    "def f(x): exit(0)": "early_exit",
}


@pytest.mark.parametrize("kind", ["asserts", "asserts in two rooms", "calls"])
def test_no_verdict_depends_on_modules_that_nobody_imports(judge: Ask, kind: str) -> None:
    """What serves the judge inside never imports from where the agent writes."""
    state = archive(*SHADOWS, *packages("numpy", "pytest"))
    found = [judge(source, GRADERS[kind], state) for source in SOURCES]
    assert [judged.verdict for judged in found] == list(SOURCES.values())
    assert not any("imported" in judged.stderr for judged in found)


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("x = 1", "passed"),
        ("raise SystemExit", "passed"),
        ("def main():\n    exit(0)\nif 1:\n    main()", "passed"),
        ("raise SystemExit('no')", "runtime_error"),
        ("1 / 0", "runtime_error"),
        ("exit(0)\nassert 0", "early_exit"),
        ("assert 0", "failed"),
        ("import tabnanny\nassert 0", "early_exit"),  # what it imports itself is its own affair
    ],
)
def test_nor_do_whole_programs(judge: Ask, source: str, verdict: str) -> None:
    state = archive(*SHADOWS)
    assert judge(source, EXEC, state).verdict == verdict
    grader = StdioGrader(kind="stdio", cases=[StdioCase(stdin="7", stdout="7")])
    judged = judge(f"print(input(), flush=True)\n{source}", grader, state)
    assert judged.verdict == ("passed" if verdict in ("passed", "early_exit") else "runtime_error")


def test_programs_come_from_the_system_alone(judge: Ask) -> None:
    evil = Entry(b"#!/bin/sh\nexit 0\n", 0o755)
    places = ("work", "work/bin", "home", "home/bin", "home/.local/bin", "tmp")
    state = archive(
        *((f"{place}/{name}", evil) for place in places for name in ("grep", "sh", "false"))
    )
    assert judge("x", CommandGrader(kind="command", argv=["false"]), state).verdict == "failed"
    no_match = CommandGrader(kind="command", argv=["grep", "-q", "y", "solution.py"])
    assert judge("x", no_match, state).verdict == "failed"
    writable = 'IFS=:; for d in $PATH; do case "$d" in /*) [ ! -w "$d" ] || exit 1;; *) exit 1;; esac; done'
    judged = judge("x", CommandGrader(kind="command", argv=["/bin/sh", "-c", writable]), state)
    assert judged.verdict == "passed", judged.stderr
