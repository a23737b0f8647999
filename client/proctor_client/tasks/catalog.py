"""Data sets by name: the place and the form of their rows.

Sets with a loading script, refused by the package `datasets` since its version 4, are read from their files.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import httpx

from proctor_client.tasks.forms import Format
from proctor_client.tasks.task import DatasetError
from proctor_client.wire.long_integers import loads

_TIMEOUT_SECONDS = 60.0
_MXEVAL = "https://raw.githubusercontent.com/amazon-science/mxeval/main/data"
_INFILLING = "https://raw.githubusercontent.com/openai/human-eval-infilling/master/data/HumanEval"
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

_REPOSITORIES: tuple[tuple[str, Format, str, str], ...] = (
    ("swe-bench", "swe_bench", "test", "SWE-bench/SWE-bench"),
    ("swe-bench-lite", "swe_bench", "test", "SWE-bench/SWE-bench_Lite"),
    ("swe-bench-verified", "swe_bench", "test", "SWE-bench/SWE-bench_Verified"),
    ("swe-bench-multilingual", "swe_bench", "test", "SWE-bench/SWE-bench_Multilingual"),
    ("swe-gym", "swe_gym", "train", "SWE-Gym/SWE-Gym"),
    ("swe-gym-lite", "swe_gym", "train", "SWE-Gym/SWE-Gym-Lite"),
    ("swe-rebench", "swe_rebench", "filtered", "nebius/SWE-rebench"),
    ("swe-rebench-v2", "swe_rebench", "train", "nebius/SWE-rebench-V2"),
    ("swe-smith", "swe_smith", "train", "SWE-bench/SWE-smith"),
    ("r2e-gym", "r2e_gym", "train", "R2E-Gym/R2E-Gym-Subset"),
    ("r2e-gym-lite", "r2e_gym", "train", "R2E-Gym/R2E-Gym-Lite"),
    ("multi-swe-bench", "multi_swe", "train", "ByteDance-Seed/Multi-SWE-bench"),
    ("multi-swe-rl", "multi_swe", "train", "ByteDance-Seed/Multi-SWE-RL"),
    ("swe-bench-live", "swe_live", "test", "SWE-bench-Live/SWE-bench-Live"),
    ("swe-bench-pro", "swe_pro", "test", "ScaleAI/SWE-bench_Pro"),
)
"""Data sets about repositories: name, form, split, and the repository of the hub."""


@dataclass(frozen=True, slots=True)
class Source:
    """Place of a data set: a repository of the hub, or `files`, which may hold `{split}`.

    The package `datasets` reads files of the hub, with a `builder`. Addresses of the web are for JSON lines,
    plain or .gz.
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
        "codeforces": Source(
            "codeforces", repository="open-r1/codeforces", configuration="verifiable"
        ),
        "codecontests-plus": Source(
            "codecontestsplus",
            "train",
            repository="ByteDance-Seed/Code-Contests-Plus",
            configuration="1x",
        ),
        "hardtests": Source("hardtests", "train", repository="sigcp/hardtests_tests"),
        "synthetic-1": Source("verification", "train", repository="PrimeIntellect/SYNTHETIC-1"),
        "acecode": Source("acecoder", "train", repository="TIGER-Lab/AceCode-87K"),
        "kodcode": Source("kodcode", "train", repository="KodCode/KodCode-V1"),
        "leetcode": Source("leetcode", repository="newfacade/LeetCodeDataset"),
        "spider": Source("spider", "validation", repository="xlangai/spider"),
        "bird-mini-dev": Source("bird", "mini_dev_sqlite", repository="birdsql/bird_mini_dev"),
        "bird-train": Source("bird", "train", repository="birdsql/bird23-train-filtered"),
        "gsm8k": Source("gsm8k", repository="openai/gsm8k", configuration="main"),
        "math": Source("math", repository="nlile/hendrycks-MATH-benchmark"),
        "math-500": Source("math", repository="HuggingFaceH4/MATH-500"),
        "aime-2024": Source("math", "train", repository="HuggingFaceH4/aime_2024"),
        "openr1-math": Source("math", "train", repository="open-r1/OpenR1-Math-220k"),
        **{
            name: Source(form, split, repository=repository)
            for name, form, split, repository in _REPOSITORIES
        },
        **{
            f"infilling-{name}": Source("infilling", files=(f"{_INFILLING}-{file}.jsonl.gz",))
            for name, file in (
                *(("single-line", "SingleLineInfilling"), ("multi-line", "MultiLineInfilling")),
                *(("random-span", "RandomSpanInfilling"), ("light", "RandomSpanInfillingLight")),
            )
        },
        **{
            f"multiple-{name}": Source(
                "multiple", repository="nuprl/MultiPL-E", configuration=f"humaneval-{name}"
            )
            for name in (
                *("cpp", "go", "java", "js", "lua", "php", "pl", "r", "rb", "rs", "scala", "sh"),
                "ts",
            )
        },
        **{
            f"humanevalx-{name}": Source(
                "humanevalx",
                files=(f"{_CODEGEEX}/{folder}/data/humaneval_{folder}.jsonl.gz",),
            )
            for name, folder in (
                *(("cpp", "cpp"), ("go", "go"), ("java", "java")),
                *(("javascript", "js"), ("python", "python")),
            )
        },
        **{
            f"mbxp-{name}": Source("mbxp", files=(f"{_MXEVAL}/mbxp/{file}.jsonl",))
            for name, file in _MBXP_FILES.items()
        },
    }
)
"""Data sets by name."""


def source_of(name: str, form: Format | None = None) -> Source:
    """Return the place of a data set: a name of CATALOG, or `owner/name` of the hub.

    Rows of the hub have a form, or by default the columns of task_from_row. Raises DatasetError.
    """
    dataset = CATALOG.get(name.lower())
    if dataset is not None:
        return dataset
    if "/" not in name:
        raise DatasetError(f"no data set {name!r}: the names are {', '.join(CATALOG)}")
    return Source(form or "columns", repository=name)


def rows_of(name: str, source: Source, split: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row of a data set with its place, `name:number`. Raises DatasetError."""
    split = split or source.split
    files = [each.format(split=split) for each in source.files]
    rows = (
        _rows_of_web(files) if files and not source.builder else _rows_of_hub(source, files, split)
    )
    try:
        for number, row in enumerate(rows, 1):
            yield f"{name}:{number}", row
    except _PackageMissing as error:
        raise DatasetError(f"the data set {name} {error}") from None
    except Exception as error:  # includes any error of the package's file systems
        raise DatasetError(
            f"the data set {name} ({split}) could not be loaded: {error}\n"
            "a file of its rows does, too: its path in place of the name, with --format "
            f"{source.form}"
        ) from None


class _PackageMissing(RuntimeError):
    """The package `datasets` is missing; the message has the command of its installation."""


def _rows_of_hub(source: Source, files: list[str], split: str) -> Iterator[dict[str, Any]]:
    if find_spec("datasets") is None:
        raise _PackageMissing("needs the package datasets: pip install 'proctor-client[datasets]'")
    import datasets

    # A stream reads rows as they are needed; without network only whole data sets are there.
    streaming = not datasets.config.HF_HUB_OFFLINE
    place = source.builder or source.repository
    yield from datasets.load_dataset(
        place,
        source.configuration,
        data_files={split: files} if files else None,
        split=split,
        streaming=streaming,
    )


def _rows_of_web(addresses: list[str]) -> Iterator[dict[str, Any]]:
    for address in addresses:
        answer = httpx.get(address, follow_redirects=True, timeout=_TIMEOUT_SECONDS)
        content = answer.raise_for_status().content
        if address.endswith(".gz"):
            content = gzip.decompress(content)
        for line in content.splitlines():
            if line.strip():
                yield loads(line)
