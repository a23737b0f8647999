"""Starts the observation of an interpreter: frameworks come from the image, and are watched."""

import os
import sys
from typing import Any, Dict, Optional

from . import settings
from .channel import Channel
from .frameworks import Frameworks


class Activation:
    """Installs the observation into the frameworks' modules as they are loaded."""

    def __init__(self) -> None:
        self._channel: Optional[Channel] = None
        self._runs: Any = None
        self._has_session = False
        self.frameworks = Frameworks(settings.DIRECTORY, frozenset(settings.CHANGED))
        self.frameworks.when_loaded = self._loaded

    def _opened(self) -> Optional[Channel]:
        if self._channel is None:
            self._channel = Channel(settings.SOCKET, sys.version.partition(" ")[0])
        return self._channel if self._channel.is_open else None

    def _loaded(self, name: str, module: Any) -> None:
        namespace: Dict[str, Any] = vars(module)
        if name == "unittest.case":
            channel = self._opened()
            if channel is not None:
                from .unittest_runs import UnittestRuns

                self._runs = UnittestRuns(channel, self.frameworks)
                module.TestCase.run = self._runs.observed_run(module.TestCase.run)
        elif name == "unittest.loader" and self._runs is not None:
            loader = module.TestLoader
            for key in (
                "loadTestsFromName",
                "loadTestsFromNames",
                "loadTestsFromModule",
                "discover",
            ):
                setattr(loader, key, self._runs.observed_loading(vars(loader)[key]))
        elif name == "unittest.runner" and self._runs is not None:
            module.TextTestRunner.run = self._runs.observed_runner(module.TextTestRunner.run)
        elif name == "_pytest.config":
            self._observe_sessions(namespace)
        elif name == "_pytest.assertion.rewrite":
            self._observe_rewriting(namespace)

    def _observe_sessions(self, namespace: Dict[str, Any]) -> None:
        original = namespace["get_config"]

        def get_config(*args: Any, **kwargs: Any) -> Any:
            config = original(*args, **kwargs)
            channel = None if self._has_session else self._opened()
            if channel is not None:
                self._has_session = True
                import pytest

                from .pytest_session import PytestSession, mark_hooks

                mark_hooks(pytest)
                config.pluginmanager.register(PytestSession(pytest, channel, self.frameworks))
            return config

        namespace["get_config"] = get_config

    def _observe_rewriting(self, namespace: Dict[str, Any]) -> None:
        """Record what rewritten files define; a prepared cache of their code does not count."""
        definitions = self.frameworks.definitions

        def execute(code: Any, names: Dict[str, Any]) -> None:
            exec(code, names)
            definitions.record(names.get("__file__"), names, code)

        namespace["exec"] = execute
        read = namespace.get("_read_pyc")
        if read is not None:

            def read_cache(source: Any, *args: Any, **kwargs: Any) -> Any:
                is_of_tests = os.path.realpath(str(source)).startswith(settings.DIRECTORY + os.sep)
                return None if is_of_tests else read(source, *args, **kwargs)

            namespace["_read_pyc"] = read_cache


def activate() -> None:
    """Install the finder that watches test frameworks; the first of them opens the channel."""
    activation = Activation()
    sys.meta_path.insert(0, activation.frameworks)
    activation.frameworks.observe_loaded()
