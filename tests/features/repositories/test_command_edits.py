"""Files that the commands of a task edit themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from proctor_service.features.repositories.command_edits import edits_of

ALL = ["conftest.py", "tests/a_test.py", "tests/b/b_test.py", "tox.ini"]
NONE: Sequence[str] = []
FILES = {
    "run.sh": "set -e\ncp hidden/a_test.py tests/\npytest",
    "Makefile": "test:\n\t@rm -rf tests/b\n\tpytest",
    "package.json": '{"scripts": {"test": "touch tests/a_test.py && jest", "lint": "eslint ."}}',
}
EDITED: Mapping[str, Sequence[str]] = {
    "python -m pytest -rA tests/a_test.py": NONE,
    "cd /repo && pytest tests > log.txt 2>&1; cat log.txt": NONE,
    "sed -n 1,3p tox.ini; grep -r x tests": NONE,
    "sed -i 's/a/b/' tox.ini && pytest": ["tox.ini"],
    "perl -pi -e 's/a/b/' tox.ini": ["tox.ini"],
    "for f in tests/*.py; do sed -i s/a/b/ $f; done": ALL,
    "cp x/a_test.py tests/a_test.py": ["tests/a_test.py"],
    "cp x/a_test.py /repo/tests": ["tests/a_test.py"],
    "cp -r r2e_tests/. .": ALL,
    "cp -r hidden/b tests": ["tests/a_test.py", "tests/b/b_test.py"],
    "cd tests; mv ../x b": ["tests/b/b_test.py"],
    "rm -f tests/*/*.py": ["tests/b/b_test.py"],
    "rm -rf .pytest_cache build; pytest": NONE,
    "rm -rf /tmp/out; mkdir -p out; touch /tmp/x": NONE,
    "cat > conftest.py <<'END'\nimport x\nEND\npytest": ["conftest.py"],
    "echo x >> /repo/tox.ini": ["tox.ini"],
    "git checkout 3f1c0e tests/a_test.py": ALL,
    "git apply - <<'END'\n+x\nEND": ALL,
    "git status; git log -1": NONE,
    "patch -p1 < /tmp/test.patch": ALL,
    "bash -c 'touch tox.ini; pytest'": ["tox.ini"],
    "bash run.sh": ["tests/a_test.py"],
    "./run.sh": ["tests/a_test.py"],
    "npx rimraf tests/b && npx jest": ["tests/b/b_test.py"],
    "find . -name '*.py' | xargs sed -i s/a/b/": ALL,
    "find . -name '*.pyc' -exec rm {} +; pytest": NONE,
    "make test": ["tests/b/b_test.py"],
    "npm test": ["tests/a_test.py"],
    "bash /eval.sh": ALL,
    "cat > /tmp/run.sh <<'END'\npytest\nEND\nbash /tmp/run.sh": NONE,
    "/usr/bin/python3 -m pytest; /opt/venv/bin/pytest": NONE,
    "env A=1 timeout 9 touch tox.ini": ["tox.ini"],
    'echo "an open quote': NONE,
}


@pytest.mark.parametrize("command", EDITED)
def test_the_files_that_a_command_edits(command: str) -> None:
    edits = edits_of([command], "/repo", FILES.get)
    assert [path for path in ALL if edits.has(path)] == EDITED[command]
