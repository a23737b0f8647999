"""Six Harbor tasks for an image of `host_image`: files, a service, a compiler, a long one and more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

SHARED = "harbor-tests"
"""Environment of the tasks that use the image as it is."""
NAMES = ("compiler", "files", "languages", "long", "separate", "service")
_SCRIPT = """#!/bin/bash
if python3 -I /tests/check.py; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""

# The sums by name of a table that the Dockerfile has put in place.
_FILES = {
    "instruction.md": "Write the sums of /app/table.csv by name to /app/sums.txt, as `name sum`.\n",
    "environment/table.csv": "ann,1\nbob,2\nann,3\nbob,4\ncid,5\n",
    "environment/Dockerfile": """FROM {image}
COPY table.csv /app/
RUN echo built > /etc/built
ENV TABLE=/app/table.csv
""",
    "tests/check.py": """
assert open("/etc/built").read() == "built\\n"
assert open("/app/sums.txt").read().split() == ["ann", "4", "bob", "6", "cid", "5"]
""",
    "tests/test.sh": _SCRIPT,
    "solution/solve.sh": """#!/bin/bash
set -e
awk -F, '{{ sum[$1] += $2 }} END {{ for (name in sum) print name, sum[name] }}' "$TABLE" \\
    | sort > /app/sums.txt
""",
}

# The service is started by the verifier, as a user of its own that cannot write the reward.
_SERVICE = {
    "instruction.md": "Write /app/start.sh: it starts a server whose /health answers `ok` on 8080.\n",
    "tests/check.py": """
import http.client, os, subprocess, time

def become_agent():
    os.setgroups([])
    os.setgid(1000)
    os.setuid(1000)

os.chmod("/logs/verifier", 0o700)
served = subprocess.Popen(["bash", "/app/start.sh"], preexec_fn=become_agent)
for _ in range(600):
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=5)
    try:
        connection.request("GET", "/health")
        assert connection.getresponse().read().strip() == b"ok"
        break
    except OSError:
        assert served.poll() in (None, 0), "it did not start"
        time.sleep(0.1)
else:
    raise AssertionError("no answer")
""",
    "tests/test.sh": _SCRIPT,
    "solution/solve.sh": """#!/bin/bash
mkdir -p /app/www && echo ok > /app/www/health
echo 'cd /app/www && exec python3 -m http.server 8080 --bind 127.0.0.1' > /app/start.sh
""",
}

_COMPILER = {
    "instruction.md": "Write /app/double.c: it reads a number and prints its double.\n",
    "tests/test.sh": """#!/bin/bash
echo 0 > /logs/verifier/reward.txt
gcc -O1 -o /tmp/double /app/double.c || exit 0
test "$(echo 21 | /tmp/double)" = 42 || exit 0
test "$(echo -4 | /tmp/double)" = -8 || exit 0
echo 1 > /logs/verifier/reward.txt
""",
    "solution/solve.sh": """#!/bin/bash
cat > /app/double.c <<'C'
#include <stdio.h>
int main(void) {{ long n; if (scanf("%ld", &n) != 1) return 1; printf("%ld\\n", 2 * n); return 0; }}
C
""",
}

# More CPU time than a command has by default, and time without work.
_LONG = {
    "instruction.md": "Count the primes below 200000, slowly, in /app/count.txt.\n",
    "tests/check.py": 'assert open("/app/count.txt").read().strip() == "17984"\n',
    "tests/test.sh": _SCRIPT,
    "solution/solve.sh": """#!/bin/bash
sleep 2
cat > /app/count.py <<'PYTHON'
sieve = bytearray([1]) * 200_000
sieve[:2] = b"\\0\\0"
for n in range(2, 448):
    if sieve[n]:
        sieve[n * n :: n] = bytes(len(sieve[n * n :: n]))
print(sum(sieve))
PYTHON
for number in $(seq 1 60); do python3 -S /app/count.py > /app/count.txt || exit 1; done
""",
}

_LANGUAGES = {
    "instruction.md": "Write /app/cube.c and /app/cube.py: each prints the cube of its argument.\n",
    "tests/check.py": """
import subprocess
subprocess.run(["gcc", "-o", "/tmp/cube", "/app/cube.c"], check=True)
for program in (["/tmp/cube"], ["python3", "-I", "/app/cube.py"]):
    for n in (-3, 0, 7):
        said = subprocess.run([*program, str(n)], capture_output=True, check=True).stdout
        assert int(said) == n**3, (program, n, said)
""",
    "tests/test.sh": _SCRIPT,
    "solution/solve.sh": """#!/bin/bash
cat > /app/cube.c <<'C'
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **given) {{ int n = atoi(given[1]); printf("%d\\n", n * n * n); }}
C
echo 'import sys; print(int(sys.argv[1]) ** 3)' > /app/cube.py
""",
}

# Its verifier sees one file of the agent, and names its reward among others.
_SEPARATE = {
    "instruction.md": "Write yes to /app/out/answer.txt.\n",
    "tests/test.sh": """#!/bin/bash
test -e /app/other && seen=1 || seen=0
grep -qx yes /app/out/answer.txt && right=1 || right=0
echo "{{\\"reward\\": $right, \\"seen\\": $seen, \\"$GREETING\\": 0.5}}" > /logs/verifier/reward.json
""",
    "solution/solve.sh": """#!/bin/bash
mkdir -p /app/out && echo "$ANSWER" | tee /app/other > /app/out/answer.txt
""",
}

_CONTENTS: Mapping[str, Mapping[str, str]] = {
    "compiler": _COMPILER,
    "files": _FILES,
    "languages": _LANGUAGES,
    "long": _LONG,
    "separate": _SEPARATE,
    "service": _SERVICE,
}
_MORE = {
    "separate": """
artifacts = ["/app/out"]
[verifier]
environment_mode = "separate"
env = {GREETING = "hello"}
[solution]
env = {ANSWER = "yes"}
""",
}


def write_tasks(folder: Path, image: str) -> Path:
    """Write the six tasks into a folder; return the folder."""
    for name in NAMES:
        write_task(folder / name, image, _CONTENTS[name], name, _MORE.get(name, ""))
    return folder


def write_task(
    folder: Path, image: str, contents: Mapping[str, str], name: str, more: str = ""
) -> None:
    """Write one task; braces in `contents` are doubled. With a Dockerfile it has its own image."""
    own = "environment/Dockerfile" in contents
    lines = [more, f'[task]\nname = "proctor-tests/{name}"', "[agent]\ntimeout_sec = 120.0"]
    if "[verifier]" not in more:
        lines.append("[verifier]\ntimeout_sec = 120.0")
    if own:
        lines.append("[environment]\nmemory_mb = 1024")
    else:
        lines.append(f"[environment]\ndocker_image = {json.dumps(image)}")
        lines.append(f'[metadata]\nproctor_environment = "{SHARED}"')
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text("\n".join(lines) + "\n")
    (folder / "environment").mkdir()
    for path, text in contents.items():
        is_plain = path.startswith("environment/table") or path == "tests/check.py"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text if is_plain else text.format(image=image))
    (folder / "tests/test.sh").chmod(0o755)
