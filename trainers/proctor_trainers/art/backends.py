"""Backends of the script, with checks of their requirements before the policy is loaded.

ART's own two backends serve the trained model, on a configurable port.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import httpx

from proctor_trainers.extras import MissingExtra

BACKENDS = ("local", "tinker", "memory")
_RELEASE = "0.5.18"


class MissingKey(RuntimeError):
    """Raised for a required key missing from the environment; the message names the variable."""


def check_backend(name: str) -> str:
    """Return a short description of the backend. Raises MissingExtra."""
    if name == "memory":
        return "memory, which trains nothing"
    extra = {"local": "backend", "tinker": "tinker"}[name]
    missing = [each for each in _needed(name) if find_spec(each) is None]
    if missing:
        raise MissingExtra(
            f"--backend {name}: {', '.join(missing)} cannot be imported: "
            f"pip install 'openpipe-art[{extra}]=={_RELEASE}'"
        )
    if name == "local":
        import torch

        if not torch.cuda.is_available():
            raise MissingExtra(
                "--backend local needs a CUDA device, and torch finds none here; "
                "--backend tinker and --backend memory need none"
            )
    return name


def set_tinker_key() -> str:
    """Set TINKER_API_KEY, and return the key's variable. Raises MissingKey.

    ART reads TINKER_API_KEY, also in its child processes. ART would print a key passed as an
    argument.
    """
    for name in ("TINKER_API_KEY", "ART_TINKER_API_KEY"):
        if os.environ.get(name):
            os.environ["TINKER_API_KEY"] = os.environ[name]
            return name
    raise MissingKey("--backend tinker needs a key: set TINKER_API_KEY or ART_TINKER_API_KEY")


def make_backend(name: str) -> Any:
    """Return an art.Backend. Raises MissingExtra and MissingKey."""
    check_backend(name)
    if name == "memory":
        from proctor_trainers.art.memory import MemoryBackend

        return MemoryBackend(keeps=False)
    if name == "tinker":
        set_tinker_key()
        from art.tinker import TinkerBackend

        return TinkerBackend()
    from art.local import LocalBackend

    return LocalBackend()


def server_config(base_url: str) -> dict[str, Any]:
    """Return the config for serving at this URL's port; the two backends read different fields."""
    url = httpx.URL(base_url)
    port = url.port or (443 if url.scheme == "https" else 80)
    return {"port": port, "server_args": {"port": port}}


def _needed(name: str) -> tuple[str, ...]:
    return ("torch", "unsloth") if name == "local" else ("torch", "tinker", "tinker_cookbook")
