"""Cooperation of replicas: find the replica with a sandbox, and send requests to peers.

A stateful sandbox lives in a single replica, and the sandbox id names this replica. Any replica
forwards a request to the holder, so a load balancer works without knowledge of sandboxes. A replica
sends requests only to known peers. The package is independent of HTTP routes.

A large batch is spread: peers with free cores judge a part of the batch.
"""
