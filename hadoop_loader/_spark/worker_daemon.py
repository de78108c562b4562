"""The process from which Spark forks its Python workers, with the loader's modules imported.

A worker that imports them itself uses half a second of a core before its first row. Spark ends
workers that were idle for a minute, so a load every ten minutes would pay for each of them again.
Here they are imported once for each session.

Rules:

- It does what `pyspark.daemon` does, and nothing but imports before.
- No thread may start before a fork: what it holds would be locked in the worker for ever. The
  environment below keeps OpenBLAS and jemalloc from starting theirs.
"""

from __future__ import annotations

import importlib
import os

import pyspark.daemon

_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
_MODULES = ("pyspark.worker", "pyarrow.parquet", "hadoop_loader._spark.jobs")


def import_modules() -> None:
    """Import what the workers need."""
    os.environ.update(_ENVIRONMENT)
    for module in _MODULES:
        importlib.import_module(module)


if __name__ == "__main__":
    import_modules()
    pyspark.daemon.manager()
