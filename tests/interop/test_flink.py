"""Apache Flink's Kafka sink writes each message once, though Flink is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from headworks._server.child_process import Service
from tests.interop import maven
from tests.interop.programs import (
    Feed,
    Follower,
    Program,
    create,
    kill_in_a_transaction,
    messages,
    repeated_or_missing,
)

pytestmark = [pytest.mark.contract, pytest.mark.timeout(1200)]
_FOLDER = Path(__file__).parent / "flink"
_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_PROGRESS = 200  # messages before and after the kill
_COMPILE_SECONDS = 120


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The jars of Flink, and the compiled program."""
    if shutil.which("javac") is None:
        pytest.skip("there is no `javac` on the path: install a JDK, 17 or newer")
    jars = os.pathsep.join(map(str, maven.fetch(_FOLDER / "pom.xml", "flink", "Apache Flink")))
    folder = tmp_path_factory.mktemp("flink")
    options = ["-proc:none", "-cp", jars, "-d", str(folder)]
    sources = map(str, _FOLDER.glob("*.java"))
    subprocess.run(["javac", *options, *sources], check=True, timeout=_COMPILE_SECONDS)
    return f"{folder}{os.pathsep}{jars}"


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_each_message_is_copied_once(
    classpath: str, broker: Service, tmp_path: Path, naming: str
) -> None:
    source, target = f"flink-in-{naming}", f"flink-out-{naming}"
    create(broker.address, source, target)
    program = ["java", *_OPTIONS, "-cp", classpath, "ExactlyOnceCopy"]
    arguments = [broker.address, source, target, str(tmp_path / "checkpoints"), naming]
    with (
        Program([*program, *arguments], tmp_path / "flink.log") as flink,
        Follower(broker.address, target, flink) as copied,
        Feed(broker.address, source, keys=5) as feed,
    ):
        flink.start()
        copied.wait_for(_PROGRESS)
        kill_in_a_transaction(flink, broker.address, target)
        flink.start()
        copied.wait_for(copied.count + _PROGRESS)
        feed.finish()
        copied.wait_for(len(feed.sent))
    assert "restored" in flink.words()
    found = [message.value() or b"" for message in messages(broker.address, target)]
    assert repeated_or_missing(found, [value for _, value in feed.sent]) == ""
    written = len(messages(broker.address, target, committed=False))
    assert written > len(found), "Flink was not killed inside a transaction"
