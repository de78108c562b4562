"""Exceptions of Spark, its JVM, the metastore, and the disk, as errors of ours.

Rules:

- All work on a warehouse happens inside `raising_session_errors`, so no user sees a stack trace of
  three languages. Errors of ours pass unchanged.
- A message names the metastore, the first line that says what happened, and the first cause.
- It does not matter how far the work was: the next run continues it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hadoop_loader._commit.table_failures import table_error
from hadoop_loader._storage.filesystem import AnyPath
from headworks.errors import HeadworksError, UnreachableError, UsageError

_MAX_REASON_CHARACTERS = 500
_RETRY_HINT = "nothing is lost, and the next run finishes the work of this one"
_REBUILD_HINT = (
    " (one that is damaged may be moved away: the next load makes it again, tables and all)"
)

_OTHER_PROTOCOL = "Invalid method name"  # Thrift's answer to a call that a server does not have
_CLIENT_FIX = (
    "give Spark a client of the metastore's release, by spark.sql.hive.metastore.version and "
    "spark.sql.hive.metastore.jars in spark-defaults.conf"
)


class SessionError(UnreachableError):
    """Spark, or the metastore behind it, failed."""


@contextmanager
def raising_session_errors(root: AnyPath, metastore: Path | str) -> Iterator[None]:
    """Raise errors of ours for work on the warehouse at `root`.

    `metastore`: the folder of the embedded one, or the URI of another.
    """
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    ours = isinstance(metastore, Path)
    try:
        yield
    except HeadworksError:
        raise
    except (Py4JJavaError, PySparkException) as error:
        reason = first_line(error)
        fix = f"see whether the metastore runs and can be written{_REBUILD_HINT * ours}"
        if _OTHER_PROTOCOL in reason:
            fix = _CLIENT_FIX
        raise SessionError(
            f"Spark or its metastore {metastore} failed: {reason}",
            fix=f"{fix}, then run again; {_RETRY_HINT}",
        ) from None
    except (Py4JError, ConnectionError):
        raise SessionError(
            "Spark's JVM has ended in the middle of the work: killed, or out of memory",
            fix=f"see what killed it, then run again; {_RETRY_HINT}",
        ) from None
    except OSError as error:
        raise disk_error(root, error) from None


def metastore_table_error(error: Exception) -> HeadworksError | None:
    """Return the error of one table for an exception of Spark, its metastore, or the disk.

    Returns None if the exception concerns all tables: the JVM has ended.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if isinstance(error, (Py4JJavaError, PySparkException)):
        return SessionError(
            f"the metastore says {first_line(error)[:_MAX_REASON_CHARACTERS]}",
            fix="repair the table in the metastore, or drop it and its view there: the next run "
            "defines them again, with all partitions",
        )
    return table_error(error)


def iceberg_error(error: Exception) -> HeadworksError | None:
    """Return the error of one table for an exception of the Iceberg catalog or the disk.

    Returns None if the exception concerns all tables: the JVM has ended.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if isinstance(error, (Py4JJavaError, PySparkException)):
        return UnreachableError(
            f"the Iceberg catalog says {first_line(error)[:_MAX_REASON_CHARACTERS]}",
            fix="repair the catalog, or drop the table there: the next run publishes it again",
        )
    return table_error(error)


def disk_error(root: AnyPath, error: OSError) -> UsageError:
    """Return the error for a file under `root` that could not be read or written."""
    where = f" ({error.filename})" if error.filename else ""
    return UsageError(
        f"warehouse {root}: {error.strerror or error}{where}",
        fix=f"free space, or restore the permission to write there, then run again; {_RETRY_HINT}",
    )


def first_line(error: Exception) -> str:
    """Return the line of a Java error that says what happened, with its first cause."""
    thrown = getattr(error, "java_exception", None)
    message = _line(str(error if thrown is None else thrown.getMessage())) or "unknown"
    cause = _first_cause(getattr(error, "_origin", None) if thrown is None else thrown)
    return f"{message} ({cause})" if cause not in message else message


def _first_cause(thrown: Any) -> str:
    """Return the innermost message of a Java exception, or an empty string."""
    found = ""
    while thrown is not None:
        found = _line(str(thrown.getMessage() or "")) or found
        thrown = thrown.getCause()
    return found


def _line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    of_python = lines and lines[0].endswith("Traceback (most recent call last):")
    return lines[-1 if of_python else 0] if lines else ""
