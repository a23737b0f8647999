"""A network for pods under runc: a bridge with the address of all Services, and a link to each pod.

As a CNI plugin does it: the link is made when the pod's network namespace is there, before the first
process runs. Network policies are not played.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deploy.manifests import Json

PREFIX = 24
PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
ATTACH = """
pid=$(sed 's/.*"pid": *\\([0-9]*\\).*/\\1/')
ip link add {link} type veth peer name eth0 netns "$pid"
ip link set {link} master {bridge} up
nsenter -t "$pid" -n ip address add {address}/{prefix} dev eth0
nsenter -t "$pid" -n ip link set eth0 up
"""


@dataclass(frozen=True)
class PodNetwork:
    """The bridge. `services` is the address at which the node listens for the pods."""

    bridge: str
    network: str

    @property
    def services(self) -> str:
        """The node's own address in it."""
        return f"{self.network}.1"

    def address(self, number: int) -> str:
        """The address of a pod."""
        return f"{self.network}.{10 + number}"

    def hooks(self, address: str) -> Json:
        """The runtime's hooks that give a pod this address."""
        link = f"pt{secrets.token_hex(4)}"
        script = ATTACH.format(link=link, bridge=self.bridge, address=address, prefix=PREFIX)
        hook = {"path": "/bin/sh", "args": ["sh", "-ec", script], "env": [PATH]}
        return {"createRuntime": [hook]}


@contextmanager
def pod_network() -> Iterator[PodNetwork]:
    """A bridge, until the block ends."""
    # 198.18.0.0/15 is for such tests: RFC 2544.
    name = secrets.token_hex(4)
    found = PodNetwork(f"pb{name}", f"198.{18 + secrets.randbelow(2)}.{secrets.randbelow(256)}")
    _ip("link", "add", found.bridge, "type", "bridge")
    try:
        _ip("address", "add", f"{found.services}/{PREFIX}", "dev", found.bridge)
        _ip("link", "set", found.bridge, "up")
        yield found
    finally:
        _ip("link", "delete", found.bridge)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
