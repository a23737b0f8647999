"""Cooperation of replicas: find the replica that holds a sandbox, and send requests to peers.

A stateful sandbox lives in a single replica, and the sandbox id names this replica. Any replica
forwards a request to the holder, so a load balancer needs no knowledge of sandboxes. A replica
sends requests only to known peers. The package is independent of HTTP routes.

A large batch is spread: peers with free cores judge a part of it.
"""

from proctor_service.features.replicas.forwarding import Question, Replicas
from proctor_service.features.replicas.identity import Identity
from proctor_service.features.replicas.peers import Peers, base_url
from proctor_service.features.replicas.slices import Packed
from proctor_service.features.replicas.spreading import Spreader

__all__ = [
    "Identity",
    "Packed",
    "Peers",
    "Question",
    "Replicas",
    "Spreader",
    "base_url",
]
