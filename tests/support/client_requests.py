"""The requests that a fake service received, as the client's tests compare these."""

from __future__ import annotations

import json
from typing import Any

from proctor_client.testing import FakeProctor


def bodies(proctor: FakeProctor) -> list[Any]:
    """The JSON that came."""
    return [json.loads(each.content) for each in proctor.requests if each.method == "POST"]


def sent(proctor: FakeProctor) -> list[str]:
    """What was asked for, in order."""
    return [f"{each.method} {each.path}" for each in proctor.requests]


def statuses(proctor: FakeProctor) -> list[str]:
    """Of the sandboxes that were made."""
    return [each.status for each in proctor.sandboxes]
