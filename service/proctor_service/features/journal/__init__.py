"""The journal: a record of every evaluation and rollout, in a database.

`entry.py` makes records from outcomes, `recorder.py` sends records to the writer process (`process.py`),
`store.py` writes them into the tables of `schema.py`, and `reading.py` reads them. `answering/` and
`console/` show them over HTTP, `cli/` in a terminal.
"""
