"""The process from which Spark forks its Python workers, ready to load.

A worker that imports the loader itself uses half a second of a core before its first row. Spark
ends workers that were idle for a minute, so a load every ten minutes would pay for each of them
again. Here the modules are imported once for each session, and a message is loaded into memory.

Rules:

- It does what `pyspark.daemon` does, and nothing before but imports and the rehearsal.
- The workers share its objects. They are frozen, because PySpark collects the garbage of a worker
  after each task, and would visit them all.
- No thread may start before a fork: what it holds would be locked in the worker for ever. The
  environment below keeps OpenBLAS and jemalloc from starting theirs.
"""

from __future__ import annotations

import gc
import importlib
import os

import pyspark.daemon

_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
_MODULES = ("pyspark.worker", "pyarrow.parquet", "hadoop_loader._spark.jobs", "encodings.idna")
_REHEARSAL = "hadoop_loader._tasks.rehearsal"


def prepare() -> None:
    """Import what the workers need, and do once what each of them would do once."""
    os.environ.update(_ENVIRONMENT)
    for module in _MODULES:
        importlib.import_module(module)
    importlib.import_module(_REHEARSAL).rehearse()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    prepare()
    pyspark.daemon.manager()
