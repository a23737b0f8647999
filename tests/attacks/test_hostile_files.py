"""A hostile agent's files: what is read, written and graded of them leads nowhere else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from hostile.rooms import SOLUTION, WRONG, Room

ODD_FILES = """
import os, socket
os.makedirs("d/e"); open("d/one", "w").write("1")
targets = ("/etc/shadow", "../../../../etc/passwd", "/proc/1/environ", "/", "..", "d", "loop")
for n, target in enumerate((*targets, "/proc/self/fd/1")):
    os.symlink(target, f"link{n}")
os.symlink("loop", "loop"); os.link("d/one", "hard"); os.link("link0", "hardlink"); os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
for name in (
    b"a\\nb", b"\\xff\\xfe\\xed\\xa0\\x80", b"-rf", b"x" * 255, b"..\\xe2\\x80\\xa4", b"$(id)",
    b"\\x1b[31m", b" ", b"...",
):
    open(name, "wb").write(b"x"); os.mkdir(b"d/" + name); os.symlink(name, b"s" + name[:200])
os.truncate(os.open("sparse", os.O_RDWR | os.O_CREAT), 10 << 30)
os.mkdir("closed"); open("closed/x", "w"); os.chmod("closed", 0); os.chmod("d/one", 0)
open("unreadable", "w").write("x"); os.chmod("unreadable", 0)
for when in (-(1 << 40), 1 << 40): os.utime("hard", (when, when)) if when < 1 << 33 else None
here = os.open(".", 0)
for _ in range(60): os.mkdir("n" * 200); os.chdir("n" * 200)
os.fchdir(here)
for name in ("user.x",):
    try: os.setxattr("d/one", name, b"y" * 1000)
    except OSError: pass
"""


def test_odd_files_change_no_grade_and_lead_nowhere(room: Room) -> None:
    ended = room.python(ODD_FILES)
    assert ended["exit_code"] == 0, ended["stderr"]
    assert room.put("solution.py", WRONG.encode()) == 204
    assert room.grade()["reward"] == 0.0
    assert room.put("solution.py", SOLUTION.encode()) == 204
    assert room.grade()["reward"] == 1.0
    for number in range(8):
        answer = room.get(f"link{number}")
        assert answer.status_code in (404, 422) or b"sandbox:x:" in answer.content, answer.content
    inside = room.grade(kind="command", argv=["cat", "link0", "link1", "link2"])
    assert "root:$" not in inside["stdout"] + inside["stderr"]


TRAVERSALS = (
    "../../../../etc/shadow",
    "/etc/shadow",
    "/proc/1/environ",
    "/proc/1/root/etc/shadow",
    "/proc/self/root/../etc/shadow",
    "/proc/self/mem",
    "/dev/mem",
    "/sys/kernel/notes",
    "away/etc/shadow",
    "a\0b",
    "x" * 5000,
    "/" + "../" * 1000 + "etc/shadow",
)


@pytest.mark.parametrize("path", TRAVERSALS, ids=lambda path: repr(path)[:30])
def test_no_path_leads_out_of_it(room: Room, path: str) -> None:
    room.shell("ln -s / away")
    answer = room.get(path)
    assert answer.status_code in (404, 422), answer.content[:100]
    assert room.put(path, b"x") in (404, 422)
    assert room.shell("echo alive")["stdout"] == "alive\n"


def test_a_directory_that_is_swapped_for_a_link_all_the_time(room: Room) -> None:
    room.background("""
import os
os.mkdir("/tmp/away")
while True:
    try:
        os.mkdir("d"); os.rename("d", "e"); os.symlink("/usr", "d"); os.unlink("d")
        os.symlink("/tmp/away", "d"); os.unlink("d"); os.rmdir("e")
    except OSError: os.system("rm -rf d e")
""")
    for number in range(20):
        assert room.put(f"d/file{number}", b"x") in (204, 404, 422)
        assert room.get(f"d/file{number}").status_code in (200, 404, 422)
    assert room.grade()["verdict"] == "no_code"


def test_its_own_directories_may_be_links_or_gone(room: Room) -> None:
    room.shell("cd /; mv /box/work /box/w; ln -s /etc /box/work; rm -rf /box/tmp")
    room.shell("ln -s / /box/home2; mv /box/home /box/h")
    assert room.grade()["verdict"] in ("no_code", "runtime_error")
    assert room.exec(command=["true"]).status_code == 200


def test_an_environment_made_to_harm_harms_no_grade(room: Room) -> None:
    room.put("evil.py", b"raise SystemExit(0)\n")
    room.python("""
import os
here = "/box/work"
os.environ.update(
    LD_PRELOAD=f"{here}/evil.so", PYTHONSTARTUP=f"{here}/evil.py", PYTHONPATH=here, BASH_ENV="evil.py",
    PATH=here, HOME=here, TMPDIR="/nowhere", PYTHONHOME=here, LD_LIBRARY_PATH=here,
)
for n in range(200): os.environ[f"X{n}"] = "x" * 200
""")
    assert room.put("solution.py", WRONG.encode()) == 204
    assert room.grade()["reward"] == 0.0
    assert room.put("solution.py", SOLUTION.encode()) == 204
    assert room.grade()["reward"] == 1.0


def test_the_grade_is_of_one_moment_whatever_moves(room: Room) -> None:
    room.background("""
import os
right, wrong = "def double(x):\\n    return 2 * x\\n", "def double(x):\\n    return 3 * x\\n"
while True:
    for text in (right, wrong):
        open("s", "w").write(text); os.rename("s", "solution.py")
""")
    with ThreadPoolExecutor(2) as pool:
        loud = pool.submit(room.exec, code="import os\nwhile True: os.write(1, b'x' * 4096)")
        verdicts = {room.grade()["verdict"] for _ in range(6)}
        assert loud.result().status_code in (200, 410)
    assert verdicts <= {"passed", "failed", "no_code"}
