"""The compiler of TypeScript, started with its own compiled code.

V8 keeps the code of functions beside their source: the text must be the same, of Latin-1 alone to be read
at once. Code for another version of node is refused by V8, and compiled anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from proctor_service.settings.languages import TRANSPILE

_, _AT, _BODY = TRANSPILE.partition("for (const fileName")
_OTHERS = re.compile(r"[^\x00-\x7f]")  # "ẞ"
_LOAD = """\
const fs = require("fs"), vm = require("vm"), path = require("path");
const [library] = process.argv.splice(1, 2).slice(1);
function load(cachedData) {
  const source = fs.readFileSync(path.join(__dirname, "library.js"), "latin1");
  const script = new vm.Script(source, { filename: library, cachedData });
  const made = { exports: {} };
  script.runInThisContext().call(made.exports, made.exports, require, made, library, path.dirname(library));
  return [made.exports, script];
}
"""
_PREPARED = 'const [ts] = load(fs.readFileSync(path.join(__dirname, "code")));\n'
_TRAIN = "const [ts, script] = load();\n"
_SAVE = 'fs.writeFileSync(path.join(__dirname, "code"), script.createCachedData());\n'
PREPARED: Mapping[str, str] = MappingProxyType(
    {
        "transpile.js": f"{_LOAD}{_PREPARED}{_AT}{_BODY}",
        "train.js": f"{_LOAD}{_TRAIN}{_AT}{_BODY}{_SAVE}",
    }
)
"""Files beside `library.js`: each takes the path of the library, and the files to compile."""


def as_function(library: str) -> bytes:
    """Return the source of a module as the source of a function, in ASCII."""
    text = f"(function (exports, require, module, __filename, __dirname) {{{library}\n}})"
    return _OTHERS.sub(_escaped, text).encode("ascii")


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
