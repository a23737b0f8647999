"""HTML of the journal: the pages under /console, and the report of a job in one file.

All that they show is hostile. Jinja2 escapes every value, and no page holds an inline script.
"""
