"""Environments by name: the interpreters of the machine, and folders of packages built for them."""
