"""A load's bins as one Spark job of one stage: parallelize, flatMap, collect.

Rules: the functions that workers run are module functions (found by name there, not pickled by
value); an error of ours comes back as what it is, not as a Java stack trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hadoop_loader.raw_fetch import BrokerFetcher
from hadoop_loader.task import Manifest, Task, load
from headworks.errors import HeadworksError

__all__ = ["run_in_spark"]


@dataclass(frozen=True, slots=True)
class _Failure:
    """A HeadworksError on its way between processes."""

    kind: type[HeadworksError]
    message: str
    fix: str | None


def run_in_spark(spark: Any, client: Mapping[str, Any], tasks: Sequence[Task]) -> list[Manifest]:
    """Run the bins in a session's executors; raises the first HeadworksError that one met."""
    bins = spark.sparkContext.parallelize(list(tasks), len(tasks))
    found = bins.flatMap(partial(_run_bin, client)).collect()
    for result in found:
        if isinstance(result, _Failure):
            raise result.kind(result.message, fix=result.fix)
    return list(found)


def _run_bin(client: Mapping[str, Any], task: Task) -> Iterator[Manifest | _Failure]:
    try:
        with BrokerFetcher(client) as fetcher:
            yield load(task, fetcher)
    except HeadworksError as error:
        yield _Failure(type(error), error.message, error.fix)
