"""The journal: a record of every evaluation and rollout, in a database.

`entry.py` makes records from outcomes, `recorder.py` sends them to the process of `process.py`, which
writes them by `store.py` into the tables of `schema.py`; `reading.py` answers questions about them.
"""
