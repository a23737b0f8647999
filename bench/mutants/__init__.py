"""Mutation runs: small faults in the service's code, each against the tests that reach its line.

`make mutants` runs `python -m mutants`. The share of faults that a test notices measures the power of a
test suite.
"""
