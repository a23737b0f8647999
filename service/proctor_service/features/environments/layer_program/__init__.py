"""Unpacks a layer of an image, or completes an image; the layers are hostile.

    python -I -S -c START FOLDER ORDER ANSWER

Standard library only. Order and answer are files with JSON; lines on stdout tell the progress. The program
confines itself first: into a mount and a network namespace of its own, for an ordinary user also a user
namespace, and with the folder to be filled as its root. So a link inside leads to places inside. Programs of
an image never run.
"""

from __future__ import annotations

import errno
import gzip
import json
import resource
import tarfile
from typing import Any

from .completing import complete, set_attributes
from .confinement import Refused, Unable
from .unpacking import unpack

START = """
import sys
sys.path.append(sys.argv[1])
from layer_program import main
main(*sys.argv[2:])
"""
"""Takes the folder of this package, and the arguments of `main`."""
_MEMORY_BYTES = 1 << 30
_ORDERS = {"unpack": unpack, "complete": complete, "attributes": set_attributes}


def main(order_path: str, answer_path: str) -> None:
    """Carry out an order, and write the answer, refusals included."""
    with open(order_path) as file:
        order: dict[str, Any] = json.load(file)
    with open(answer_path, "w") as file:  # opened before the root changes
        json.dump(_answered(order), file)


def _answered(order: dict[str, Any]) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer = _ORDERS[order["kind"]](order)
    except Refused as refused:
        answer = {"refused": str(refused)}
    except Unable as error:
        answer = {"unable": str(error)}
    except MemoryError:
        answer = {"refused": "a layer needs too much memory"}
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, ValueError, RecursionError) as error:
        answer = {"refused": f"a layer's archive is damaged: {error}"}
    except OSError as error:
        faults = {errno.ENAMETOOLONG, errno.EINVAL, errno.EMLINK, errno.ELOOP, errno.ENOTDIR}
        kind = "refused" if error.errno in faults else "failed"
        answer = {kind: f"{error.filename or ''}: {error.strerror}", "errno": error.errno}
    return answer
