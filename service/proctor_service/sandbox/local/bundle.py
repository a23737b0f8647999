"""Start-up data of the zygote: code sent over its stdin, and a short loader.

No part of the service is on a path visible to a sandbox, and the modules leave `sys.modules` before
the first submission runs, so a submission cannot import them.
"""

from __future__ import annotations

import json
import marshal
import subprocess
import sys
from collections.abc import Sequence

from proctor_service.sandbox import code_bundle

_MODULES = (
    *code_bundle.GUEST,
    *(f"sandbox/linux/{name}.py" for name in ("kernel", "syscalls")),
    *(
        f"sandbox/local/{name}.py"
        for name in ("gaps", "isolation", "image_root", "fork_server", "zygote")
    ),
)

# Runs once in the sandboxes' interpreter, with -OO; each zygote of the same interpreter loads the
# result. Compiling enlarges a process by some megabytes, and a fork pays for each page of its parent.
# As for any import, Python keeps the result beside the source, where it may write. A sandbox sees no
# path of the service.
_MARSHAL_VERSION = 2  # which every Python 3 reads; json would take a third of the process's time
_COMPILE = """
import marshal, sys
from importlib.machinery import SourceFileLoader
def nameless(code):
    inner = (nameless(each) if isinstance(each, type(code)) else each for each in code.co_consts)
    return code.replace(co_filename="<sandbox>", co_consts=tuple(inner))
codes = {
    name: nameless(SourceFileLoader(name, path).get_code(name) if path else compile("", "", "exec"))
    for name, path in marshal.loads(sys.stdin.buffer.read()).items()
}
sys.stdout.buffer.write(marshal.dumps(codes))
"""

# Runs in the new interpreter as `-c`: reads configuration and code from stdin, makes the modules,
# and starts the zygote. The argument is the descriptor of the socket for orders. The finder derives
# from no class of `importlib.abc`: that module imports tempfile, and thereby 20 more with 30 mappings.
BOOT = """
import builtins, importlib, importlib.machinery, json, marshal, os, site, socket, sys
orders = socket.socket(fileno=int(sys.argv.pop()))
def read(size):
    data = bytearray()
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data
start = json.loads(read(int(read(8))))
codes = marshal.loads(read(int(read(8))))
packages = {name.rpartition(".")[0] for name in codes}
null = os.open("/dev/null", os.O_RDONLY)
os.dup2(null, 0)
os.close(null)
own_builtins = dict(vars(builtins))  # what a submission patches, it patches for itself
class Codes:
    def find_spec(self, name, path, target=None):
        if name in codes:
            return importlib.machinery.ModuleSpec(name, self, is_package=name in packages)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        module.__dict__["__builtins__"] = own_builtins
        exec(codes[module.__name__], module.__dict__)
# What `site` would do, without the code that packages hook into every start by .pth files: it would
# be in the memory of each sandbox.
sys.path[:] = start["config"]["python_path"]
sys.prefix = sys.exec_prefix = start["config"]["python_prefix"]
site.setquit(), site.setcopyright(), site.sethelper()
finder = Codes()
sys.meta_path.insert(0, finder)
zygote = importlib.import_module("proctor.sandbox.local.zygote")
try:
    for name in start["preload"]:
        importlib.import_module(name)
        if len(os.listdir("/proc/self/task")) > 1:  # a fork has no threads, but their locks
            raise RuntimeError(f"preload: {name} starts threads, so it cannot be preloaded")
    program = importlib.import_module("proctor.guest.main")
    inside_main, warm_up = program.main, program.warm_up
    sys.meta_path.remove(finder)
    for name in [name for name in sys.modules if name in codes]:
        del sys.modules[name]
    config = start["config"]
    start.clear()
    codes.clear()
    zygote.main(orders, config, inside_main, warm_up)
except BaseException as error:
    orders.send(f"{type(error).__name__}: {error}".encode()[:4000])
    os._exit(1)
"""


def compiled(python: str) -> bytes:
    """Return all code of fork servers and sandboxes, compiled and marshalled by `python`.

    Raises OSError and subprocess.CalledProcessError when the interpreter fails.
    """
    options = ["-I", "-S", "-OO"]
    if sys.dont_write_bytecode:
        options.append("-B")
    if sys.pycache_prefix is not None:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    files = {
        name: "" if path is None else str(path)
        for name, path in code_bundle.files(_MODULES).items()
    }
    command = [python, *options, "-c", _COMPILE]
    text = marshal.dumps(files, _MARSHAL_VERSION)
    return subprocess.run(command, input=text, capture_output=True, check=True, env={}).stdout


def start_message(config: dict[str, object], preload: Sequence[str], code: bytes) -> bytes:
    """Return configuration and code for a new zygote, each after its length in eight digits."""
    text = json.dumps({"config": config, "preload": list(preload)}).encode()
    return f"{len(text):08d}".encode() + text + f"{len(code):08d}".encode() + code
