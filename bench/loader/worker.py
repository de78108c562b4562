"""A new worker: `python -m bench.loader.worker JSON` prints what it takes, without Spark.

Rules: this process does what the one does from which Spark forks its workers, and is forked as that
one is. A worker is ready when its first message is a row of a Parquet file in memory. Its schema is
new to the worker, so making the decoder is included. Spark's own messages are not.
"""

from __future__ import annotations

import json
import os
import sys
import time

_FORKS = 7


def main(text: str) -> None:
    """Prepare as the daemon does, fork workers one by one, and print the seconds of each."""
    began = time.process_time()
    from hadoop_loader._spark.worker_daemon import prepare

    prepare()
    prepared = time.process_time() - began
    given = json.loads(text)
    workers = [_seconds(given["schema"], bytes.fromhex(given["value"])) for _ in range(_FORKS)]
    sys.stdout.write(json.dumps({"prepared": prepared, "workers": workers}))


def _seconds(schema: str, value: bytes) -> float:
    """Return the seconds from the fork until a new worker has loaded one message."""
    from hadoop_loader._tasks.rehearsal import load_into_memory

    read, write = os.pipe()
    began = time.monotonic()
    worker = os.fork()
    if worker == 0:
        load_into_memory(schema, value)
        os.write(write, str(time.monotonic() - began).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        found = float(answer.read())
    os.waitpid(worker, 0)
    return found


if __name__ == "__main__":
    main(sys.argv[1])
