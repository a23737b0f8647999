"""Routes of other reward services: their trainers can use Proctor without changes.

Each module translates the requests of a service; the judge and the sandboxes are the same for all.
The clients of each service retry after a different answer, so each module defines this answer (see
`handler.py`).
"""
