"""Fingerprint of a replica: all influences on its verdicts beside the request.

Replicas with equal fingerprints give the same verdicts. Only these replicas judge for each other, and
share results. The parts are texts by name: two replicas can report the differing parts.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

import proctor_client.wire
from proctor_client.wire import Fingerprint
from proctor_service.sandbox.environments import BuiltEnvironment, Environments
from proctor_service.sandbox.installed import on_path
from proctor_service.sandbox.interface import FLOOD_BYTES, Limits, Traits
from proctor_service.settings import Settings
from proctor_service.version import version

Parts = Mapping[str, Mapping[str, str]]
"""Texts by part and name: `{"interpreter": {"version": "3.11.7"}, "packages": {"numpy": "2.1.0"}}`."""

_SERVICE = Path(__file__).parents[1]
_WIRE = Path(proctor_client.wire.__file__).parent
_JUDGING = (
    *("pytest", "pluggy", "iniconfig", "packaging", "pygments"),
    *("pydantic", "pydantic-core", "tree-sitter", "tree-sitter-language-pack"),
)
"""Packages of the service that read requests, analyse tests, or run tests in sandboxes."""
_ORDER = ("judge", "interpreter", "limits", "packages", "environments", "languages")
_NONE = "none"
_MOST_SHOWN = 5
_LONGEST_SHOWN_CHARACTERS = 120


def fingerprint_of(
    settings: Settings,
    traits: Traits,
    defaults: Limits,
    environments: Environments,
    verifiers: Mapping[str, str],
) -> Fingerprint:
    """Return the fingerprint of a service with this started backend; blocks for some milliseconds.

    `defaults`: limits of a submission without its own. `verifiers`: digests by name.
    """
    limits = {name: str(value) for name, value in asdict(defaults).items()}
    parts: dict[str, dict[str, str]] = {
        "judge": {
            "version": version(),
            "code": code_digest(),
            "python": platform.python_version(),
            **_judging_packages(),
        },
        "limits": {**limits, "output_bytes": str(FLOOD_BYTES)},
        "environments": {name: _digest(each) for name, each in environments.items()},
        "verifiers": dict(verifiers),
        "paths": {str(path): "shown" for path in settings.sandbox_paths},
        **{part: dict(texts) for part, texts in traits.judged_with.items()},
    }
    whole = json.dumps(parts, sort_keys=True).encode()
    return Fingerprint(digest=hashlib.blake2b(whole, digest_size=16).hexdigest(), parts=parts)


def differences(theirs: Parts, ours: Parts) -> str:
    """Return in which names two fingerprints differ: `interpreter version 3.12.1, here 3.11.7`."""
    found = list(_differences(theirs, ours))
    more = len(found) - _MOST_SHOWN
    return "; ".join(found[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _differences(theirs: Parts, ours: Parts) -> Iterator[str]:
    others = sorted((theirs.keys() | ours.keys()) - set(_ORDER))
    for part in (*_ORDER, *others):
        there, here = theirs.get(part, {}), ours.get(part, {})
        for name in sorted(there.keys() | here.keys(), key=lambda name: (name != "version", name)):
            if there.get(name) != here.get(name):
                texts = (_shown(each.get(name, _NONE)) for each in (there, here))
                yield f"{_shown(part)} {_shown(name)} {', here '.join(texts)}"


def _shown(text: str) -> str:
    cut = text[:_LONGEST_SHOWN_CHARACTERS]
    return "".join(each if each.isprintable() else "?" for each in cut)


@cache
def code_digest() -> str:
    """Return a digest of the code of the service and of the wire: two builds may share a version."""
    digest = hashlib.blake2b(digest_size=6)
    for top in (_SERVICE, _WIRE):
        for file in sorted(top.rglob("*.*")):
            if file.suffix != ".pyc" and file.is_file():
                digest.update(str(file.relative_to(top)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _judging_packages() -> dict[str, str]:
    packages = on_path(sys.path).packages
    return {name: packages[name] for name in _JUDGING if name in packages}


def _digest(built: BuiltEnvironment) -> str:
    """Return version and digest of an environment, wherever its folder is."""
    image = "" if built.image is None else built.image.digest
    whole = [
        [built.version, dict(built.packages), image, built.remote_image],
        built.definition.model_dump(mode="json"),
    ]
    text = json.dumps(whole, sort_keys=True).encode()
    return f"{built.version} {hashlib.blake2b(text, digest_size=6).hexdigest()}"
