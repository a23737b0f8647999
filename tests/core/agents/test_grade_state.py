"""Submissions that are judged in the final state of a sandbox that a hostile agent had to itself.

The real judge, in real sandboxes. What the agent left may break its own solution and nothing else: an
honest solution passes among the same files with which a wrong one tries to.
"""

from __future__ import annotations

import pytest
from archives import WHEN, Entry, archive, folder, hard, link
from state_judging import DOUBLE, EXEC, GRADERS, LIMITS, PYTEST, WRONG, Ask, Places, shell

from proctor_client.wire import AssertsGrader, Call, CallsGrader, Grader, StdioCase, StdioGrader
from proctor_service.codec.limits import MAX_LINE_BYTES
from proctor_service.errors import InvalidTask
from proctor_service.judge.submission import source_of
from proctor_service.sandbox.interface import Command

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


@pytest.mark.parametrize("mode", [0o755, 0o200])
def test_a_compiler_finds_them_too_and_so_does_what_it_made(judge: Ask, mode: int) -> None:
    state = archive(
        ("work/head", "#!/bin/sh\n"),
        ("work/data", "42"),
        ("work/solution", Entry(b"#!/bin/sh\necho old\n", mode)),
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
        async with places.backend.open(LIMITS) as sandbox:
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


@pytest.mark.parametrize("kind", GRADERS)
def test_a_solution_that_no_sandbox_takes_is_a_failure_of_its_own(judge: Ask, kind: str) -> None:
    """Were it an error, a policy could have a reward of 0.0 left out of its training."""
    for source in ("\x01" * 12_000_000, "\0" * 30_000_000):
        judged = judge(source, GRADERS[kind], archive(("work/solution.py", "")))
        assert judged.verdict in ("runtime_error", "syntax_error"), judged


def test_tests_that_no_sandbox_takes_are_an_invalid_task(judge: Ask) -> None:
    case = Call(args=["x" * MAX_LINE_BYTES], expected=1)
    grader = CallsGrader(kind="calls", entry_point="f", cases=[case])
    with pytest.raises(InvalidTask, match="larger than a sandbox takes"):
        judge(DOUBLE, grader, archive())


def test_a_solution_is_read_in_the_encoding_that_it_names() -> None:
    text = "# -*- coding: latin-1 -*-\nassert len('\xe9') == 1\n"
    assert source_of(text.encode("latin-1"), EXEC) == text
    assert source_of(text.encode(), EXEC) == text.replace("\xe9", "\xc3\xa9")
    assert source_of(text.encode("latin-1"), PYTEST) == ""  # the file stays as it is
    assert source_of(b"# coding: punycode\nx = 1", EXEC) == "# coding: punycode\nx = 1"
    assert source_of(b"\xef\xbb\xbfx = 1", EXEC) == "x = 1"
    assert source_of(b"x = '\xff'", EXEC) == "x = '\udcff'"
