"""Ctrl-C while Spark starts: which processes are killed, and how long that lasts."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from headworks._cli.demo import interrupted_start
from headworks._cli.demo.interrupted_start import kill_starting_jvm, opened, starting_jvms

pytestmark = pytest.mark.unit


def process(folder: Path, number: int, parent: int, command: str) -> None:
    one = folder / str(number)
    one.mkdir()
    (one / "stat").write_text(f"{number} (a ) name) S {parent} 1 1", encoding="ascii")
    (one / "cmdline").write_bytes(command.replace(" ", "\0").encode())


def test_only_this_process_s_own_spark_is_found(tmp_path: Path) -> None:
    process(
        tmp_path, 11, os.getpid(), "java -cp x org.apache.spark.deploy.SparkSubmit pyspark-shell"
    )
    process(tmp_path, 12, os.getpid(), "bash /site-packages/pyspark/bin/spark-submit --conf a")
    process(tmp_path, 13, os.getpid(), "python -P -m headworks._cli broker start")
    process(tmp_path, 14, 1, "java -cp x org.apache.spark.deploy.SparkSubmit pyspark-shell")
    (tmp_path / "15").mkdir()  # it has ended meanwhile
    (tmp_path / "self").mkdir()
    assert sorted(starting_jvms(tmp_path)) == [11, 12]


def test_it_is_killed_until_the_start_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    opening: Future[Any] = Future()
    killed: list[int] = []

    def kill(number: int, _signal: int) -> None:
        killed.append(number)
        if len(killed) == 2:  # the second one, which began without the class archive
            opening.set_exception(RuntimeError("the JVM ended"))

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(interrupted_start, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(interrupted_start, "starting_jvms", lambda: [17])
    kill_starting_jvm(opening)
    assert killed == [17, 17]
    kill_starting_jvm(opening)
    assert killed == [17, 17]


def test_ctrl_c_that_another_thread_gets_ends_the_wait_for_spark() -> None:
    opening: Future[Any] = Future()

    def interrupt() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest-xdist ignores it
    late = threading.Timer(20, opening.set_result, [None])
    threads = [threading.Timer(0.2, interrupt), late]
    for thread in threads:
        thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            opened(opening)
        assert not opening.done()
    finally:
        late.cancel()
        for thread in threads:
            thread.join()
        signal.signal(signal.SIGINT, before)


def test_the_result_of_the_opening_is_returned_or_raised() -> None:
    opening: Future[Any] = Future()
    opening.set_result("a warehouse")
    assert opened(opening) == "a warehouse"
    failed: Future[Any] = Future()
    failed.set_exception(TimeoutError("Spark's own"))
    with pytest.raises(TimeoutError, match="own"):
        opened(failed)
