"""Clients of 2017 to 2019, the oldest that write today's record format, unmodified."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from headworks._server.child_process import Service
from tests.interop import maven, wheels
from tests.interop.programs import create

pytestmark = pytest.mark.contract
_FOLDER = Path(__file__).parent / "old"
_DEADLINE_SECONDS = 180
_X86_LINUX = (sys.platform, platform.machine()) == ("linux", "x86_64")
# the wheels of that time are of another Python
_FOR_36 = ("--python-version", "36", "--abi", "cp36m", "--platform", "manylinux1_x86_64")


def run(command: list[str], **environment: str) -> str:
    """Run a program; return what it prints."""
    done = subprocess.run(
        command,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.our_broker("Apache Kafka 4 has no DescribeConfigs 0")
def test_java_0_11_writes_reads_commits_aborts_and_is_fenced(
    broker: Service, tmp_path: Path
) -> None:
    jars = maven.fetch(_FOLDER / "pom.xml", "old-client", "an old Java client")
    classpath = os.pathsep.join(map(str, [tmp_path, *jars]))
    options = ["-Xlint:all", "-Werror", "-proc:none", "-cp", classpath, "-d", str(tmp_path)]
    run(["javac", *options, str(_FOLDER / "OldClient.java")])
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    command = ["java", quiet, "-cp", classpath, "OldClient", broker.address, "old-java"]
    assert run(command) == "done\n"


@pytest.mark.our_broker("Apache Kafka 4 has no ListOffsets 0, which librdkafka sends up to 1.7")
@pytest.mark.skipif(not _X86_LINUX, reason="its library was built for Linux on x86-64 only")
def test_librdkafka_0_11_writes_and_reads_in_a_group(broker: Service) -> None:
    create(broker.address, "old-librdkafka", partitions=1)
    [library] = wheels.fetch(_FOLDER / "librdkafka.txt", *_FOR_36).glob(
        "confluent_kafka/.libs/librdkafka.so*"
    )
    program = [sys.executable, "-m", "tests.interop.old.librdkafka"]
    found = run(
        [*program, str(library), broker.address, "old-librdkafka"],
        LD_LIBRARY_PATH=str(library.parent),
    )
    codecs = ("none", "gzip", "snappy", "lz4")
    expected = [f"{codec}-{number}" * 30 for codec in codecs for number in range(3)]
    assert found.split() == [*expected, "next"]


def test_kafka_python_1_4_writes_and_reads_in_a_group(broker: Service) -> None:
    package = wheels.fetch(_FOLDER / "kafka-python.txt")
    program = _FOLDER / "kafka_python.py"
    found = run([sys.executable, str(program), str(package), broker.address, "old-kafka-python"])
    assert found.split() == ["None-0", "None-1", "None-2", "gzip-0", "gzip-1", "gzip-2"]
