"""Environments by name: their interpreters, and the folders with their packages."""
