"""What befalls the replicas, one fault after the other, while somebody works with them."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator

import httpx

from fault_rig.rig import TOKENS, Rig

LAST_SECONDS = 2.5
REST_SECONDS = 0.5
FLOOD = 400


class Faults:
    """Does one after the other, to one replica after the other; `done` are their names.

    All of it happens in the thread that calls: a replica ends with the thread that started it.
    """

    def __init__(self, rig: Rig, over: threading.Event) -> None:
        self._rig = rig
        self._over = over
        self.done: list[str] = []

    def all(self, at_least: int) -> None:
        """Goes on until it is over, and until each was done, or so many."""
        for number, fault in zip(itertools.count(), self._in_turn(), strict=False):
            if self._over.is_set() and number >= at_least:
                return
            fault(number % len(self._rig.processes))
            self._over.wait(REST_SECONDS)

    def _in_turn(self) -> Iterator[Callable[[int], None]]:
        kinds = (self.kill, self.cut, self.stop, self.fill, self.slow, self.dead, self.restart)
        return itertools.cycle(kinds)

    def kill(self, number: int) -> None:
        """Killed with -9, and started again."""
        self.done.append("killed")
        self._rig.processes[number].kill()
        self._rest()
        self._rig.processes[number].start()

    def restart(self, number: int) -> None:
        """Told to end, and started again once it has."""
        self.done.append("restarted")
        self._rig.processes[number].send(signal.SIGTERM)
        assert self._rig.processes[number].wait() == 0
        self._rig.processes[number].start()

    def stop(self, number: int) -> None:
        """Stopped in the middle, and then goes on."""
        self.done.append("stopped")
        self._rig.processes[number].send(signal.SIGSTOP)
        self._rest()
        self._rig.processes[number].send(signal.SIGCONT)

    def cut(self, number: int) -> None:
        """Cut off: connections break, and none is taken."""
        self.done.append("cut off")
        self._turn(number, "cut")

    def dead(self, number: int) -> None:
        """Gone from the network: connections are there, and nothing comes through."""
        self.done.append("dead")
        self._turn(number, "dead")

    def slow(self, number: int) -> None:
        """Every piece takes its time."""
        self.done.append("slow")
        self._turn(number, "slow")

    def fill(self, number: int) -> None:
        """Another tenant fills its queue to the limit, and hangs up after a while."""
        self.done.append("filled")
        body = {
            "submissions": [{"completion": f"import time; time.sleep(0.05)  # {n}"} for n in range(FLOOD)],
            "grader": {"kind": "exec"},
            "cache": False,
        }  # fmt: skip
        headers = {"Authorization": f"Bearer {TOKENS['other']}"}
        url = self._rig.processes[number].url
        try:
            httpx.post(f"{url}/reward", json=body, headers=headers, timeout=LAST_SECONDS)
        except httpx.HTTPError:
            return

    def _turn(self, number: int, state: str) -> None:
        cable = self._rig.cables[number]
        cable.turn(state)  # type: ignore[arg-type]
        self._rest()
        cable.turn("whole")

    def _rest(self) -> None:
        threading.Event().wait(LAST_SECONDS)
