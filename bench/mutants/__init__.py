"""Mutation runs: small faults in the service's code, each against the tests that reach its line.

`make mutants` runs `python -m mutants`. The share of noticed faults measures the power of a test
suite.
"""
