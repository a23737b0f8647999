"""HTML of the journal: the pages under /console, and the report of a job in one file.

All shown values are hostile. Jinja2 escapes every value, and pages hold only linked scripts.
"""
