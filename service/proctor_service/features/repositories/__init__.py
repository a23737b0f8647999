"""The feature `repositories`: patches judged by the named tests of a project."""
