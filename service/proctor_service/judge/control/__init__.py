"""The negative control: the same grader with other expected values, and a second run by them.

Pure text work but for `second_run.py`. Literals are replaced in the text itself, on the same lines;
the rest of the text stays as written. An expectation counts only in an assertion with a certain run
in every passing run: in doubt the text is without expectations, since a right program must never
pass the changed tests.
"""
