"""Several replicas that know each other, each a real server in a thread with scripted sandboxes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
from harness import Service, free_ports, passes, running_service
from scripted_sandboxes import FakeBackend, ScriptedSandbox

from proctor_service.sandbox.interface import Traits
from proctor_service.settings import Settings


class Replica:
    """One of them; it can be ended, and started again at the same address."""

    def __init__(
        self, url: str, settings: Settings, judge: Any, traits: Traits | None = None
    ) -> None:
        self.url = url
        self.traits = traits
        self._settings = settings
        self._judge = judge
        self._stack = ExitStack()
        self.start()

    @property
    def guest(self) -> ScriptedSandbox:
        """Its only sandbox."""
        [guest] = self.inn.guests
        return guest

    def create(self, **fields: Any) -> str:
        """A sandbox that is made here."""
        answer = self.client.post("/sandboxes", json=fields)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def start(self) -> None:
        """Starts it at its address."""
        self.inn = FakeBackend(self.traits)
        port = int(self.url.rpartition(":")[2])
        running = running_service(self._settings, judge=self._judge, backend=self.inn, port=port)
        self.service: Service = self._stack.enter_context(running)
        self.client: httpx.Client = self._stack.enter_context(self.service.client())

    def kill(self) -> None:
        """Ends it at once; what is under way is broken off."""
        self.service.server.force_exit = True
        self._stack.close()

    def close(self) -> None:
        """Ends it, if it runs."""
        self._stack.close()


@contextmanager
def fleet(
    count: int = 3,
    *,
    judge: Any = passes,
    judges: Sequence[Any] = (),
    differing: Mapping[int, Mapping[str, Any]] | None = None,
    traits: Mapping[int, Traits] | None = None,
    **settings: Any,
) -> Iterator[list[Replica]]:
    """So many replicas, until the block ends.

    `judges`, `differing`, `traits`: one's own judge, settings and traits of sandboxes.
    """
    urls = [f"http://127.0.0.1:{port}" for port in free_ports(count)]
    replicas: list[Replica] = []
    with ExitStack() as everything:
        for number, url in enumerate(urls):
            more = (differing or {}).get(number, {})
            own = Settings(**{"peers": urls, "advertise_url": url, **settings, **more})
            its_judge = judges[number] if judges else judge
            replicas.append(Replica(url, own, its_judge, (traits or {}).get(number)))
            everything.callback(replicas[-1].close)
        yield replicas
