"""A program meets signals as outside of a sandbox: each table entry also runs in a plain process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from harness import Service
from judging import judge

PRINTS = "print('on', flush=True)\n"
PYTHON = {
    "alarm": "import signal, time\nsignal.alarm(1)\ntime.sleep(5)\n",
    "its own SIGKILL": f"import os\n{PRINTS}os.kill(os.getpid(), 9)\n",
    "its own SIGTERM": f"import os\n{PRINTS}os.kill(os.getpid(), 15)\n",
    "SIGHUP raised": f"import signal\n{PRINTS}signal.raise_signal(signal.SIGHUP)\n",
    "its group's SIGTERM": f"import os\n{PRINTS}os.killpg(0, 15)\n",
    "abort": f"import os\n{PRINTS}os.abort()\n",
    "a timer of its own": f"import signal\n{PRINTS}"
    "signal.setitimer(signal.ITIMER_REAL, 0.01)\nwhile True: pass\n",
    "SIGUSR1 in a thread": "import os, signal, threading, time\n"
    f"{PRINTS}threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1)).start()\ntime.sleep(5)\n",
    "a signal of a child": "import os, time\nif os.fork() == 0:\n    os.kill(os.getppid(), 15)\n"
    f"    os._exit(0)\ntime.sleep(5)\n{PRINTS}",
    "a signal that it handles": "import os, signal\nsignal.signal(15, lambda *_: print('on'))\n"
    "os.kill(os.getpid(), 15)\n",
    "a signal that it ignores": "import os, signal\nsignal.signal(15, signal.SIG_IGN)\n"
    f"os.kill(os.getpid(), 15)\n{PRINTS}",
    "SIGINT as an exception": "import os\ntry:\n    os.kill(os.getpid(), 2)\n    [0 for _ in range(10**6)]\n"
    f"except KeyboardInterrupt:\n    {PRINTS}",
    "its child killed": "import os, signal\npid = os.fork()\nif not pid:\n    signal.pause()\n"
    f"os.kill(pid, 9)\nassert os.WTERMSIG(os.waitpid(pid, 0)[1]) == 9\n{PRINTS}",
    "orphans that it need not know": "import os\nread, write = os.pipe()\nif os.fork() == 0:\n"
    "    if os.fork() == 0:\n        os.write(write, b'x')\n    os._exit(0)\nos.wait()\nos.read(read, 1)\n"
    f"try:\n    os.wait()\nexcept ChildProcessError:\n    {PRINTS}",
}
STDIO = {"kind": "stdio", "cases": [{"stdin": "", "stdout": "on\n"}]}


def passes_outside(command: list[str]) -> bool:
    # A shell's job in the background ignores SIGINT, and so would all that it starts.
    command = ["env", "--default-signal", *command]
    done = subprocess.run(command, capture_output=True, start_new_session=True, check=False)
    return (done.returncode, done.stdout) == (0, b"on\n")


def test_a_program_ends_by_signals_as_its_plain_interpreter_does(service: Service) -> None:
    items = [{"completion": program, "grader": STDIO} for program in PYTHON.values()]
    for name, program, result in zip(PYTHON, PYTHON.values(), judge(service, *items), strict=True):
        right = passes_outside([sys.executable, "-c", program])
        wanted = (1.0, "passed") if right else (0.0, "runtime_error")
        assert (name, result["reward"], result["verdict"]) == (name, *wanted), result


def test_tests_beside_a_program_end_by_signals_too(service: Service) -> None:
    tests = "import os\nassert f(2) == 4 or os.kill(os.getpid(), 15)"
    alarm = "import signal\nsignal.alarm(1)\nwhile f(2) != 4: pass"
    graders: list[dict[str, Any]] = [
        {"kind": "asserts", "tests": [each], "integrity": "in_process"} for each in (tests, alarm)
    ]
    test = "import os\nfrom solution import f\ndef test_f():\n    f(2) == 4 or os.kill(os.getpid(), 9)\n"
    graders.append({"kind": "pytest", "files": {"test_f.py": test}})
    programs = {"def f(x): return x * x": "passed", "def f(x): return x": "runtime_error"}
    for program, verdict in programs.items():
        results = judge(service, *({"completion": program, "grader": each} for each in graders))
        assert [result["verdict"] for result in results] == [verdict] * len(graders), results
