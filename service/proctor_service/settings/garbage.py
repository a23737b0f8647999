"""Settings of the garbage collector, for processes in which thousands of requests are under way.

Most objects of a batch live until the batch ends. With the defaults of CPython, the collector visits
them again and again: a quarter of the CPU time of the listening process (bench/README.md). Reference
counts free nearly everything here; the collector is for the rest, which is small.
"""

from __future__ import annotations

import gc

THRESHOLDS = (2_000, 5, 1_000)
"""Objects made until the youngest are visited; visits of one generation for each of the next.

A visit stops the process: of 10,000 objects for a few milliseconds, of all in a large batch for 60."""


def spare_collector() -> None:
    """Make collections rarer, and exclude the present objects from them.

    Call it when the process is set up: these objects stay alive. Garbage among them is a thousand
    objects of the imports; a full collection takes 0.1 s.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
