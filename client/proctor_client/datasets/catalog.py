"""Data sets by name: where their rows are, and in which form.

Sets that came with a loading script, which the package `datasets` has refused since its version 4,
are read from their files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from proctor_client.datasets.forms import Format
from proctor_client.datasets.tasks import DatasetError

_MXEVAL = "https://raw.githubusercontent.com/amazon-science/mxeval/main/data"
_CODEGEEX = "https://raw.githubusercontent.com/THUDM/CodeGeeX/main/codegeex/benchmark/humaneval-x"
_MBXP_FILES: Mapping[str, str] = MappingProxyType(
    {
        "cpp": "mbcpp_release_v1.2",
        "go": "mbgp_release_v1.1",
        "java": "mbjp_release_v1.2",
        "javascript": "mbjsp_release_v1.2",
        "kotlin": "mbkp_release_v1.2",
        "perl": "mbplp_release_v1",
        "php": "mbphp_release_v1.2",
        "python": "mbpp_release_v1",
        "ruby": "mbrbp_release_v1.2",
        "scala": "mbscp_release_v1",
        "typescript": "mbtsp_release_v1.2",
    }
)


@dataclass(frozen=True, slots=True)
class Source:
    """Place of a data set: a repository of the hub, or `files` with a `builder` that reads them.

    `files` may hold `{split}`.
    """

    form: Format
    split: str = "test"
    repository: str = ""
    configuration: str | None = None
    builder: str = ""
    files: tuple[str, ...] = ()


CATALOG: Mapping[str, Source] = MappingProxyType(
    {
        "mbpp": Source("mbpp", repository="google-research-datasets/mbpp", configuration="full"),
        "mbppplus": Source("mbppplus", repository="evalplus/mbppplus"),
        "humaneval": Source("humaneval", repository="openai/openai_humaneval"),
        "humanevalplus": Source("humanevalplus", repository="evalplus/humanevalplus"),
        "bigcodebench": Source("bigcodebench", "v0.1.4", repository="bigcode/bigcodebench"),
        "classeval": Source("classeval", repository="FudanSELab/ClassEval"),
        "cruxeval-output": Source("cruxeval_output", repository="cruxeval-org/cruxeval"),
        "cruxeval-input": Source("cruxeval_input", repository="cruxeval-org/cruxeval"),
        "ds1000": Source("ds1000", repository="xlangai/DS-1000"),
        "apps": Source(
            "apps", builder="json", files=("hf://datasets/codeparrot/apps/{split}.jsonl",)
        ),
        "taco": Source(
            "taco", builder="parquet", files=("hf://datasets/BAAI/TACO/ALL/{split}-*.parquet",)
        ),
        "livecodebench": Source(
            "livecodebench",
            builder="json",
            files=("hf://datasets/livecodebench/code_generation_lite/{split}*.jsonl",),
        ),
        "codecontests": Source("codecontests", repository="deepmind/code_contests"),
        **{
            f"humanevalx-{name}": Source(
                "humanevalx",
                builder="json",
                files=(f"{_CODEGEEX}/{folder}/data/humaneval_{folder}.jsonl.gz",),
            )
            for name, folder in (
                *(("cpp", "cpp"), ("go", "go"), ("java", "java")),
                *(("javascript", "js"), ("python", "python")),
            )
        },
        **{
            f"mbxp-{name}": Source("mbxp", builder="json", files=(f"{_MXEVAL}/mbxp/{file}.jsonl",))
            for name, file in _MBXP_FILES.items()
        },
    }
)
"""Data sets by name."""


def source_of(name: str, form: Format | None = None) -> Source:
    """Return the place of a data set: a name of CATALOG, or `owner/name` of the hub with a form.

    Raises DatasetError.
    """
    known = CATALOG.get(name.lower())
    if known is not None:
        return known
    if "/" not in name:
        raise DatasetError(f"no data set {name!r}: the names are {', '.join(CATALOG)}")
    if form is None:
        raise DatasetError(f"{name}: which form do its rows have? give --format")
    return Source(form, repository=name)


def rows_of(name: str, source: Source, split: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row of a data set with its place, `name:number`. Raises DatasetError.

    Needs the package `datasets`, and the network or its cache.
    """
    if find_spec("datasets") is None:
        raise DatasetError(
            f"the data set {name} needs the package datasets: pip install 'proctor-client[datasets]'"
        )
    import datasets

    split = split or source.split
    streaming = (
        not datasets.config.HF_HUB_OFFLINE
    )  # rows as they are needed; but the cache is whole
    try:
        if source.builder:
            files = [each.format(split=split) for each in source.files]
            loaded = datasets.load_dataset(
                source.builder, data_files={split: files}, split=split, streaming=streaming
            )
        else:
            loaded = datasets.load_dataset(
                source.repository, source.configuration, split=split, streaming=streaming
            )
        for number, row in enumerate(loaded, 1):
            yield f"{name}:{number}", row
    except Exception as error:  # includes any error of its file systems
        raise DatasetError(
            f"the data set {name} ({split}) could not be loaded: {error}\n"
            "a file of its rows does, too: its path in place of the name, with --format "
            f"{source.form}"
        ) from None
