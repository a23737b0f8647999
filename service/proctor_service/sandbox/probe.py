"""Reports the content of an image, and compiles the code for every sandbox.

Passed to the image's own interpreter as `-c`, once. Reads eight digits of length and then a JSON
object: sources to compile, and programs to find. Writes a line of JSON, then the code. Python 3.8
and later.
"""

import sys

sys.path[:] = [path for path in sys.path if path]  # excludes the current directory

import importlib.util  # noqa: E402
import json  # noqa: E402
import marshal  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402


def read(size: int) -> bytes:
    """Read `size` bytes of stdin, which may lack a signal of its end."""
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit("stdin ended early")
        data += piece
    return data


def main() -> None:
    """Read the question and write the answer."""
    order = json.loads(read(int(read(8))))
    codes = {
        name: compile(text, "<sandbox>", "exec", dont_inherit=True, optimize=2)
        for name, text in order["sources"].items()
    }
    report = {
        "version": list(sys.version_info[:3]),
        "path": list(sys.path),
        "prefix": sys.prefix,
        "executable": sys.executable,
        "machine": os.uname().machine,
        "root": os.geteuid() == 0,
        "search_path": os.environ.get("PATH") or os.defpath,
        "programs": {name: shutil.which(name) for name in order["programs"]},
        "pytest": importlib.util.find_spec("pytest") is not None,
    }
    sys.stdout.buffer.write(json.dumps(report).encode() + b"\n" + marshal.dumps(codes))


if __name__ == "__main__":
    main()
