"""A stand-in for Aviato's gateway, for tests: a process of its own that runs real processes.

`StandIn` starts it and orders its faults. It shows nothing of Aviato's latency, quotas or isolation.
"""
