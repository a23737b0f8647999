"""Environments by name: their interpreters, and the folders with their packages."""

from proctor_service.features.environments.built import BuiltEnvironment
from proctor_service.features.environments.interpreters import default_python, find_python
from proctor_service.features.environments.store import Store, environments_folder

__all__ = ["BuiltEnvironment", "Store", "default_python", "environments_folder", "find_python"]
