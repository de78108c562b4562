"""Go's clients: transactions of franz-go, sarama, and kafka-go, and franz-go's own test suite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headworks._server.child_process import Service
from headworks._server.security.users import derive, write_users
from tests.broker.conftest import start_broker
from tests.interop.in_place import start_in_place
from tests.interop.programs import create, messages

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(
        shutil.which("go") is None, reason="go compiles the clients, and is missing (1.26 or newer)"
    ),
    pytest.mark.timeout(900),  # the first run fetches and compiles
]
_MODULE = Path(__file__).parent / "go"
_KGO = "github.com/twmb/franz-go/pkg/kgo"
_ENVIRONMENT = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false"}
_DEADLINE_SECONDS = 120
_MUST_PASS = {
    *("TestTxnEtl", "TestGroupETL", "TestSCRAMAuth", "TestSCRAMAuthBadCredentials"),
    *("TestConsumeRegex", "Test848RegexBrokerResolves"),  # which want the topic of the offsets
}
_USER = "franz"
_SUITE_TIMEOUT = "30m"
_SUITE_RECORDS = "20000"  # of each test, instead of 500,000


def go(*arguments: str, cwd: Path = _MODULE) -> str:
    """Run Go's command, and return what it prints."""
    done = subprocess.run(
        ["go", *arguments], cwd=cwd, env=_ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("go") / "interop"
    go("build", "-o", str(path), ".")
    return path


@pytest.mark.parametrize("client", ["franz-go", "sarama", "kafka-go"])
def test_transactions_are_committed_aborted_and_fenced(
    program: Path, broker: Service, client: str
) -> None:
    topic = f"{client}-transactions"
    create(broker.address, topic, partitions=1)
    done = subprocess.run(
        [program, client, broker.address, topic],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["committed", "later", "end"]
    assert [m.value() for m in messages(broker.address, topic)] == [b"committed", b"later", b"end"]


def test_sarama_writes_with_each_codec_and_reads_in_a_group(program: Path, broker: Service) -> None:
    create(broker.address, "sarama-everyday", partitions=1)
    done = subprocess.run(
        [program, "sarama-group", broker.address, "sarama-everyday"],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Service]:
    """A broker for the suite, which leaves topics and groups behind."""
    with start_in_place(tmp_path / "data", "--offsets-topic") as running:
        yield running


@pytest.fixture
def login_broker(tmp_path: Path) -> Iterator[Service]:
    """A broker with a user, for the suite's tests of SCRAM."""
    write_users(tmp_path / "users", {_USER: derive(_USER, b"salt" * 6, 4096)})
    with start_broker(tmp_path / "guarded", "--users", str(tmp_path / "users")) as running:
        yield running


@pytest.mark.minutes
@pytest.mark.timeout(3600)
def test_the_suite_of_franz_go(own_broker: Service, login_broker: Service, tmp_path: Path) -> None:
    """The suite itself skips share groups."""
    suite = tmp_path / "kgo.test"
    folder = tmp_path / "module"
    shutil.copytree(_MODULE, folder)
    version = re.search(r"twmb/franz-go (v\S+)", (_MODULE / "go.mod").read_text())
    assert version is not None
    for command in (("get", "-t", f"{_KGO}@{version[1]}"), ("test", "-c", "-o", str(suite), _KGO)):
        done = subprocess.run(
            ["go", *command], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    environment = {
        **os.environ,
        "KGO_SEEDS": own_broker.address,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": _SUITE_RECORDS,
        "KGO_TEST_SCRAM": f"{_USER}:{_USER}",
        "KGO_TEST_SCRAM_SEEDS": login_broker.address,
    }
    source = go("list", "-f", "{{.Dir}}", _KGO).strip()

    def run(log: Path, *options: str) -> tuple[set[str], set[str]]:
        """Return the tests that passed, and those that failed."""
        with log.open("w") as out:
            command = [str(suite), "-test.v", "-test.timeout", _SUITE_TIMEOUT, *options]
            done = subprocess.run(
                command, env=environment, cwd=source, stdout=out, stderr=out, check=False
            )
        found = re.findall(r"^--- (PASS|FAIL): (\w+)", log.read_text(), re.MULTILINE)
        passed, failed = (
            {test for verdict, test in found if verdict == wanted} for wanted in ("PASS", "FAIL")
        )
        assert failed or done.returncode == 0, f"the suite did not end: {log}"
        return passed, failed

    log = tmp_path / "suite.log"
    passed, failed = run(log)
    # Its tests wait for a fixed time, and run many at once: what fails runs once more, one by one.
    for test in sorted(failed | (_MUST_PASS - passed)):
        again, _ = run(tmp_path / f"{test}.log", "-test.run", f"^{test}$")
        assert test in again, (failed, log, tmp_path / f"{test}.log")
