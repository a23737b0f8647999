"""The thin client of Proctor, a judge of model-written code.

    from proctor_client import Client

    with Client.from_env() as proctor:
        answer = proctor.reward(completions, grader={"kind": "asserts", "tests": tests})
        rewards = [result.reward for result in answer.results]  # None where `error` is set

        with proctor.sandbox(tags=["run-7"]) as sandbox:  # a stateful sandbox
            print(sandbox.exec(["ls", "-l"]).stdout)

`proctor_client.wire` holds the models of requests and responses. `proctor_client.testing` holds a
fake service for your own tests. The package needs only httpx and pydantic.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from proctor_client._version import __version__ as __version__

if TYPE_CHECKING:
    from proctor_client import wire as wire
    from proctor_client._public import *  # noqa: F403 (it has the names in __all__)
else:

    def __getattr__(name: str) -> Any:
        """Import all public names with the first use of one.

        Until then, `import proctor_client.wire` imports neither httpx nor a client.
        """
        if name == "wire":
            return import_module("proctor_client.wire")
        if name == "__all__" or not name.startswith("_"):
            public = import_module("proctor_client._public")
            globals().update({each: getattr(public, each) for each in public.__all__})
            globals()["__all__"] = [*public.__all__, "__version__", "wire"]
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
