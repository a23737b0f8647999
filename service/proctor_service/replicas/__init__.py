"""Many replicas that act as one: which one holds a sandbox, and how the others are asked.

A stateful sandbox lives in one replica, and its id says in which. Whichever replica gets a request
passes it on to that one, so that a load balancer need know nothing. Only known peers are ever asked.
Nothing here knows a route.
"""

from proctor_service.replicas.asking import FORWARDED, Question, Replicas
from proctor_service.replicas.identity import Identity
from proctor_service.replicas.peers import Peers, base_url

__all__ = ["FORWARDED", "Identity", "Peers", "Question", "Replicas", "base_url"]
