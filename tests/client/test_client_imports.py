"""A trainer's process imports the client, and must not get a web framework or a tensor with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import proctor_client
from proctor_client import _public

OURS = {"proctor_client", "httpx", "pydantic"}
# What httpx and pydantic declare to need, and the extras that httpx takes where they are.
THEIRS = {
    "annotated_types",
    "anyio",
    "brotli",
    "brotlicffi",
    "certifi",
    "h11",
    "h2",
    "httpcore",
    "idna",
    "click",
    "markdown_it",
    "mdurl",
    "pydantic_core",
    "pygments",
    "rich",
    "sniffio",
    "socksio",
    "typing_extensions",
    "typing_inspection",
    "zstandard",
}
PROGRAM = """
import json, sys
before = set(sys.modules)
import proctor_client, proctor_client.testing
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def test_importing_the_client_imports_little() -> None:
    home = Path(proctor_client.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(home)},
    )
    loaded = set(json.loads(done.stdout))
    assert loaded >= OURS
    assert not loaded & {"fastapi", "starlette", "uvicorn", "torch", "numpy", "proctor_service"}
    strangers = {
        name
        for name in loaded - OURS - THEIRS
        if name not in sys.stdlib_module_names and not name.startswith("_")
    }
    assert strangers == set()


def test_the_models_need_no_client() -> None:
    program = (
        "import sys\n"
        "from proctor_client import wire\n"
        "import proctor_client.tasks.task\n"
        "print(wire.Result.__name__, {'httpx', 'proctor_client.client'} & set(sys.modules))\n"
        "from proctor_client import *\n"
        "print(Client.__name__, __version__, wire.Result.__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "Result set()",
        f"Client {proctor_client.__version__} Result",
    ]


def test_a_name_that_the_package_lacks_is_no_attribute() -> None:
    assert {"Client", "wire", "__version__"} <= set(dir(proctor_client))
    assert all(hasattr(proctor_client, name) for name in _public.__all__)
    for name in ("Clientele", "_nothing"):
        assert not hasattr(proctor_client, name)
