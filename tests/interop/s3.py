"""A server that speaks S3, for tests of the loader: moto's, run as a child process.

    with start(folder) as s3, pytest.MonkeyPatch.context() as patch:
        configure(patch, s3)
        root = parse_path(f"s3a://{BUCKET}/warehouse")

`HEADWORKS_TEST_WAREHOUSE=s3 pytest tests/hadoop_loader` puts the warehouses of the loader's tests
there. `jars` fetches what Spark reads s3a:// by (see `maven`).

Rules: on loopback, with a free port, in memory; `start` returns when it answers and has the bucket;
it does not outlive the process that started it. moto looks at a condition first and writes then, so
writes are let in one after the other here: it is a store's business that the two are one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._storage import object_store
from headworks._cli.stack.ports import free_ports
from headworks._server.child_process import Service
from headworks.errors import UnreachableError
from tests.interop import maven

BUCKET = "headworks"
# What a listing has at most; of S3 itself it is a thousand.
LISTED = 20
_POM = Path(__file__).parent / "s3a.xml"
_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@cache
def jars() -> list[Path]:
    """The jars of S3A and of all it needs; fetched once, then from the cache."""
    return maven.fetch(_POM, "s3a", "Hadoop's S3A")


def start(folder: Path, *, timeout: float = 60.0) -> Service:
    """Start a store with one bucket, empty; its log is in `folder`."""
    (port,) = free_ports(1)
    log = (folder / "s3.log").open("a+", encoding="utf-8")
    process = subprocess.Popen(
        [*maven.bound(), sys.executable, "-m", "tests.interop.s3", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        text=True,
        start_new_session=True,
    )
    running = Service("s3", f"127.0.0.1:{port}", process, log)
    try:
        _await(running, timeout)
    except BaseException:
        running.kill()
        raise
    return running


def configure(patch: pytest.MonkeyPatch, s3: Service) -> None:
    """Let this process, and its children, find the store."""
    for name, value in {**_SETTINGS, "AWS_ENDPOINT_URL": s3.url}.items():
        patch.setenv(name, value)
    object_store.endpoint_and_region.cache_clear()


def _await(running: Service, timeout: float) -> None:
    """Return when the bucket is made."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    client = boto3.session.Session().client(
        "s3",
        endpoint_url=running.url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )
    end = time.monotonic() + timeout
    while time.monotonic() < end and running.process.poll() is None:
        try:
            client.create_bucket(Bucket=BUCKET)
            return
        except BotoCoreError:
            time.sleep(0.1)
    raise UnreachableError(f"the S3 server did not come up:\n{running.words()[-4000:]}")


def _serve(port: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    os.environ["MOTO_S3_DEFAULT_MAX_KEYS"] = str(LISTED)
    app = _one_write_at_a_time(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, app, threaded=True)


def _one_write_at_a_time(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    turn = threading.Lock()

    def served(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return app(environ, start_response)
        with turn:
            return list(app(environ, start_response))

    return served


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
