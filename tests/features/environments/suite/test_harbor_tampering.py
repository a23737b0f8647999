"""What an agent may do to the verifier of a Harbor task, as root in its sandbox: none is rewarded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from harbor_service import harbor
from harbor_tasks import SHARED
from harness import running_service

from proctor_service.settings import Settings

# The verifier takes programs from PATH, starts an interpreter in the agent's folder, and imports.
TEST = """#!/bin/bash
cd /app
if python3 /tests/check.py && cat answer.txt | grep -qx 42; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
"""
CHECK = """
import json, os, subprocess, sys
said = subprocess.run(["sh", "-c", "cat answer.txt"], capture_output=True, text=True, check=True)
assert json.loads(said.stdout) == 42
"""
SAY_YES = (
    "#!/bin/sh\\n/usr/bin/mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; exit 0\\n"
)
PYTHON_SAYS_YES = "import os\\nopen('/logs/verifier/reward.txt', 'w').write('1')\\nos._exit(0)\\n"
LIBRARY = r"""
cat > /tmp/x.c <<'C'
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) {
    FILE *f = fopen("/logs/verifier/reward.txt", "w");
    if (f) { fputs("1", f); fclose(f); _Exit(0); }
}
C
gcc -shared -fPIC -o /app/x.so /tmp/x.c && cp /app/x.so /usr/lib/x.so
"""
TAMPERING = {
    "tests made before": f"""
        mkdir -p /tests && printf "{SAY_YES}" > /tests/test.sh && chmod 777 /tests/test.sh
        printf "{PYTHON_SAYS_YES}" | tee /tests/check.py /tests/json.py > /tests/sitecustomize.py
    """,
    "tests that cannot be written": f"""
        mkdir -p /tests/sub && printf "{SAY_YES}" > /tests/test.sh && chmod 555 /tests/test.sh /tests
        chattr +i /tests/test.sh || true; mkdir /tests/check.py
    """,
    "tests as a link": f"""
        mkdir -p /app/mine && printf "{SAY_YES}" > /app/mine/test.sh && chmod 755 /app/mine/test.sh
        rm -rf /tests && ln -s /app/mine /tests
    """,
    "a reward made before": """
        mkdir -p /logs/verifier && echo 1 > /logs/verifier/reward.txt
        echo '{"reward": 1}' > /logs/verifier/reward.json && chmod -R 555 /logs
    """,
    "a reward as a link": """
        mkdir -p /logs/verifier && echo 1 > /app/one && echo 1 > /app/reward.json
        ln -s /app/one /logs/verifier/reward.txt && ln -s /app/one /logs/verifier/reward.json
    """,
    "logs as a link": """
        mkdir -p /app/logs/verifier && echo '{"reward": 1}' > /app/logs/verifier/reward.json
        rm -rf /logs && ln -s /app/logs /logs
    """,
    "a reward as a pipe and as a folder": """
        mkdir -p /logs/verifier/reward.json && mkfifo /logs/verifier/reward.txt
        (while true; do echo 1 > /logs/verifier/reward.txt; done) > /dev/null 2>&1 < /dev/null &
    """,
    "programs of PATH": f"""
        for name in python3 cat grep sh env tail chmod rm mkdir; do
            printf "{SAY_YES}" > /usr/local/bin/$name; chmod 755 /usr/local/bin/$name
        done
    """,
    "programs of the system": f"""
        printf "{SAY_YES}" > /app/yes && chmod 755 /app/yes
        for name in python3 cat grep bash env tail chmod; do cp -f /app/yes /usr/bin/$name; done
    """,
    "shells": f"""
        printf "{SAY_YES}" | tee /root/.bashrc /root/.profile /root/.bash_profile > /etc/profile
        printf "{SAY_YES}" > /etc/bash.bashrc
        echo 'BASH_ENV=/root/.bashrc' > /etc/environment; echo 'ENV=/root/.bashrc' > /root/.env
    """,
    "the loader": f"""
        {LIBRARY}
        echo /app/x.so > /etc/ld.so.preload; echo /app > /etc/ld.so.conf
        cp -f /app/x.so /usr/lib/x86_64-linux-gnu/libm.so.6 || true
    """,
    "interpreters": f"""
        for folder in $(python3 -c 'import sys; print(*sys.path)') \\
            /root/.local/lib/python3.11/site-packages /usr/local/lib/python3.11/dist-packages; do
            mkdir -p $folder; printf "{PYTHON_SAYS_YES}" > $folder/sitecustomize.py
            printf "{PYTHON_SAYS_YES}" | tee $folder/usercustomize.py > $folder/x.pth
        done
    """,
    "libraries of the interpreter": f"""
        folder=$(python3 -c 'import json; print(json.__path__[0])')
        printf "{PYTHON_SAYS_YES}" > $folder/__init__.py; rm -rf $folder/__pycache__
    """,
    "the agent's folder": f"""
        printf "{PYTHON_SAYS_YES}" | tee sitecustomize.py json.py conftest.py > subprocess.py
        printf "{SAY_YES}" | tee python3 cat > grep; chmod 755 python3 cat grep
    """,
    "cron and services": f"""
        mkdir -p /etc/cron.d /var/spool/cron/crontabs /etc/init.d /etc/systemd/system
        printf "{SAY_YES}" > /etc/init.d/yes
        echo '* * * * * root /etc/init.d/yes' | tee /etc/cron.d/yes > /var/spool/cron/crontabs/root
        echo '* * * * * root /etc/init.d/yes' > /etc/crontab
    """,
    "processes in the background": """
        for number in 1 2 3; do
            setsid nohup bash -c '
                trap "" TERM HUP INT
                while true; do
                    mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt
                    sleep 0.01
                done' > /dev/null 2>&1 < /dev/null &
        done
    """,
    "a hard link to a program": """
        ln /usr/bin/python3 /app/python && printf '#!/bin/sh\\nexit 0\\n' > /app/other
        cat /app/other > /app/python; ln /usr/bin/cat /app/cat; cat /app/other > /app/cat
    """,
    "folders of the system moved": """
        cp -a /usr /app/usr && printf '#!/bin/sh\\nexit 0\\n' > /app/usr/bin/python3
        ln -sfn /app/usr/bin /bin; ln -sfn /app/usr/lib /lib
    """,
    "a home as a link": f"""
        folder=/app/home/.local/lib/python3.11/site-packages; mkdir -p $folder
        printf "{PYTHON_SAYS_YES}" | tee $folder/usercustomize.py > $folder/sitecustomize.py
        printf "{SAY_YES}" > /app/home/.bashrc; rm -rf /root; ln -s /app/home /root
    """,
    "marks of removed files": """
        mkdir -p /app/.wh.usr /app/x && touch '/app/.wh..wh..opq' '/.wh.usr' '/app/x/.wh.tests' || true
        touch "$(printf '/app/a\\nb')" "$(printf '/app/\\377')" /app/answer.txt/../.wh.answer.txt || true
    """,
    "the first process": """
        for each in /proc/[0-9]*; do
            echo 1 > $each/oom_score_adj; echo x > $each/mem; echo x > $each/cwd/x
        done 2> /dev/null
        for signal in $(seq 1 64); do kill -$signal 1; done 2> /dev/null || true
    """,
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    built = harbor(tmp_path_factory)
    environments: dict[str, Any] = {"environments": built.file, "environments_folder": built.store}
    with (
        running_service(Settings(slots=3, **environments), judge=None) as service,
        service.client() as opened,
    ):
        yield opened


def graded(client: httpx.Client, command: str) -> dict[str, Any]:
    place = f"/sandboxes/{client.post('/sandboxes', json={'environment': SHARED}).json()['id']}"
    done = client.post(f"{place}/exec", json={"command": ["bash", "-c", f"{command}\ntrue"]})
    assert done.json()["ending"] == "exited", done.text
    grader = {"kind": "harbor", "tests": {"test.sh": TEST, "check.py": CHECK}}
    answer = client.post(f"{place}/grade", json={"grader": grader})
    client.delete(place)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


@pytest.mark.parametrize("name", TAMPERING)
def test_it_earns_nothing(client: httpx.Client, name: str) -> None:
    result = graded(client, TAMPERING[name])
    assert (result["reward"], result["verdict"], result["error"]) == (0.0, "failed", None), result


@pytest.mark.parametrize(
    "name",
    ["a home as a link", "a reward made before", "folders of the system moved", "interpreters",
     "logs as a link", "processes in the background", "programs of PATH", "tests as a link"],
)  # fmt: skip
def test_it_changes_nothing_for_a_right_answer(client: httpx.Client, name: str) -> None:
    result = graded(client, f"echo 42 > answer.txt\n{TAMPERING[name]}")
    assert (result["reward"], result["verdict"], result["error"]) == (1.0, "passed", None), result


def test_the_attacks_work_where_the_agent_ran(client: httpx.Client) -> None:
    """Without a fresh sandbox, they would change what a verifier runs."""
    found = {}
    for name in ("programs of PATH", "programs of the system", "the loader", "interpreters",
                 "libraries of the interpreter"):  # fmt: skip
        place = f"/sandboxes/{client.post('/sandboxes', json={'environment': SHARED}).json()['id']}"
        verifier = (
            "/usr/bin/rm -rf /logs; /usr/bin/mkdir -p /logs/verifier; python3 -c 'import json'"
        )
        for command in (TAMPERING[name], verifier):
            client.post(f"{place}/exec", json={"command": ["bash", "-c", command]})
        found[name] = client.get(f"{place}/files//logs/verifier/reward.txt").text.strip()
        client.delete(place)
    assert set(found.values()) == {"1"}, found
