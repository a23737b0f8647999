"""Endpoint of the policy: a server at --base-url, the backend's own server there, or OpenAI.

The service calls the policy, so the service must be able to reach the URL.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from proctor_trainers.art.backends import MissingKey

BASE_URL = "http://localhost:8000/v1"
OPENAI_URL = "https://api.openai.com/v1"
OPENAI_MODEL = "gpt-4o-mini"
OPENAI_KEY, SERVER_KEY = "OPENAI_API_KEY", "VLLM_API_KEY"
_LOOK_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Address and model name of a policy. `key_name` is the environment variable of the key.

    `needs_logprobs`: ART trains this policy, and needs rollouts with logprobs.
    """

    base_url: str
    model: str
    key: str = field(default="", repr=False)
    key_name: str = ""
    needs_logprobs: bool = True

    def policy(self) -> Mapping[str, Any]:
        """Return the wire's policy. The temperature is 1, as ART's trainers expect of samples."""
        policy: dict[str, Any] = {
            "base_url": self.base_url,
            "model": self.model,
            "temperature": 1.0,
            "logprobs": True if self.needs_logprobs else "optional",
        }
        return {**policy, "api_key": self.key} if self.key else policy


def openai_endpoint(model: str | None) -> Endpoint:
    """Return OpenAI's endpoint, or the endpoint at OPENAI_BASE_URL. Raises MissingKey.

    ART leaves its models untrained, and some of them refuse to give logprobs.
    """
    key = os.environ.get(OPENAI_KEY)
    if not key:
        raise MissingKey(f"--use-openai needs a key: set {OPENAI_KEY}")
    return Endpoint(
        base_url=os.environ.get("OPENAI_BASE_URL") or OPENAI_URL,
        model=model or OPENAI_MODEL,
        key=key,
        key_name=OPENAI_KEY,
        needs_logprobs=False,
    )


def server_endpoint(base_url: str | None, model: str) -> Endpoint:
    """Return the endpoint of a running server. Its optional key is in the variable used by vLLM."""
    key = os.environ.get(SERVER_KEY, "")
    return Endpoint(
        base_url=base_url or BASE_URL, model=model, key=key, key_name=SERVER_KEY if key else ""
    )


def is_served(base_url: str) -> bool:
    """Return True if a server listens at the URL."""
    url = httpx.URL(base_url)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        socket.create_connection((url.host, port), _LOOK_SECONDS).close()
    except OSError:
        return False
    return True
