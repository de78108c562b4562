"""Tasks as one Spark job of one stage: parallelize, flatMap, collect.

Rules: the functions that workers run are module functions (found by name, not pickled by value). An
error of ours is raised as it is, without a Java stack trace. Spark replaces a worker that dies; if
it gives up, the error says that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from hadoop_loader._fetch.broker_fetcher import BrokerFetcher
from hadoop_loader._spark.errors import disk_error, first_line
from hadoop_loader._tasks.load_task import LoadTask, TaskManifest, run_load_task
from hadoop_loader._tasks.rewrite_task import RewriteResult, RewriteTask, run_rewrite_task
from headworks.errors import HeadworksError

_Task = TypeVar("_Task", LoadTask, RewriteTask)
_Result = TypeVar("_Result")


class TaskError(HeadworksError):
    """Spark could not finish a job: its workers died, or the cluster did."""


@dataclass(frozen=True, slots=True)
class _TaskFailure:
    """A HeadworksError on its way between processes."""

    kind: type[HeadworksError]
    message: str
    fix: str | None


class SparkJobs:
    """Runs jobs in the executors of a session; `client` holds librdkafka's properties."""

    def __init__(self, spark: Any, client: Mapping[str, Any]) -> None:
        self._spark = spark
        self._client = client

    def load(self, tasks: Sequence[LoadTask]) -> list[TaskManifest]:
        """Run load tasks; raises the first HeadworksError of a task."""
        return self._run(partial(_guarded, partial(_load, self._client)), tasks)

    def rewrite(self, rewrites: Sequence[RewriteTask]) -> list[RewriteResult]:
        """Rewrite partitions; raises the first HeadworksError of a task."""
        return self._run(partial(_guarded, run_rewrite_task), rewrites)

    def _run(self, work: Callable[[Any], Iterator[Any]], tasks: Sequence[Any]) -> list[Any]:
        from py4j.protocol import Py4JJavaError

        try:
            rows = self._spark.sparkContext.parallelize(list(tasks), len(tasks))
            found = rows.flatMap(work).collect()
        except Py4JJavaError as error:
            raise TaskError(
                f"Spark did not finish the job: {first_line(error)}",
                fix="see what killed its workers (memory?), then load again: nothing is lost, "
                "offsets are where they were",
            ) from None
        for result in found:
            if isinstance(result, _TaskFailure):
                raise result.kind(result.message, fix=result.fix)
        return list(found)


def _load(client: Mapping[str, Any], task: LoadTask) -> TaskManifest:
    with BrokerFetcher(client) as fetcher:
        return run_load_task(task, fetcher)


def _guarded(work: Callable[[_Task], _Result], task: _Task) -> Iterator[_Result | _TaskFailure]:
    """Yield the result of a task, or the error that ended it."""
    try:
        yield work(task)
    except HeadworksError as error:
        yield _failure(error)
    except OSError as error:
        warehouse = task.staging.parent.parent
        yield _failure(disk_error(warehouse, error))


def _failure(error: HeadworksError) -> _TaskFailure:
    return _TaskFailure(type(error), error.message, error.fix)
