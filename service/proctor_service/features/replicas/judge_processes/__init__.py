"""Judge processes: the judge on other cores, behind the seam `evaluate.Judge`.

The listening process parses, schedules, caches and answers. Judge processes lease sandboxes, talk
with them, decode and compare: what hostile output does to a process, it does to one of these.
`pool.py` distributes submissions; `worker.py` is a judge process seen from the listening process;
`process.py` is its inside.
"""
