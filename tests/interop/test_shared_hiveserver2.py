"""Spark's own Thrift server with passwords in LDAP, beside the loader, as the documentation has it.

Loader and Thrift server share a metastore of its own process. The clients are PyHive and beeline.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyhive import hive
from thrift.transport.TTransport import TTransportException

from headworks._cli.stack.ports import free_ports
from headworks._server import child_process
from headworks._server.java import find_java
from headworks.registry_client import RegistryClient
from tests.hadoop_loader.test_killed import Stack
from tests.hadoop_loader.test_loading import V1, V2
from tests.interop import wheels
from tests.interop.directory import PEOPLE, USERS, running_directory
from tests.outgrown.servers import Server, listens
from tests.procedures import commands_of
from tests.soak.hive import metastore
from tests.tools import needs

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.minutes,
    pytest.mark.timeout(900),
    needs("javac"),
]

(START,) = commands_of("A HiveServer2 for many users", "hadoop_loader.md")
ADA, BOB = USERS["ada"], USERS["bob"]
MESSAGES = 100
TOTALS = f"SELECT count(*), sum(n), min(at), max(at) FROM clicks WHERE n < {MESSAGES}"
REFUSED = "Error validating the login"


@dataclass(frozen=True, slots=True)
class Shared:
    """A warehouse with a topic, and a Thrift server on its metastore."""

    stack: Stack
    metastore: str
    directory: Server
    port: int

    def headworks(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.stack.headworks(*arguments, HEADWORKS_METASTORE=self.metastore)

    def load(self, schema: Any, numbers: range) -> None:
        registry = RegistryClient(self.stack.registry.url)
        schema_id = registry.register("clicks-value", json.dumps(schema)).id
        self.stack.produce(schema, schema_id, numbers)
        done = self.headworks("load", "run")
        assert done.returncode == 0, done.stderr

    def connect(self, user: str, password: str | None, auth: str = "LDAP") -> Any:
        return hive.connect("127.0.0.1", self.port, auth=auth, username=user, password=password)

    def beeline(self, *login: str, option: str = "") -> subprocess.CompletedProcess[str]:
        address = f"jdbc:hive2://127.0.0.1:{self.port}/default{option}"
        beeline = str(Path(pyspark.__file__).parent / "bin" / "beeline")
        output = ("--silent=true", "--outputformat=csv2", "--showHeader=false")
        return subprocess.run(
            [beeline, "-u", address, *login, *output, "-e", TOTALS],
            env={**os.environ, **find_java().environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """All servers, after a first load."""
    folder = tmp_path_factory.mktemp("shared")
    here = ("--listen", "127.0.0.1:0")
    broker = ["broker", "start", *here, "--data-dir", str(folder / "broker")]
    registry = ["registry", "start", *here, "--store", f"sqlite:///{folder / 'registry.db'}"]
    (port,) = free_ports(1)
    with ExitStack() as opened:
        enter = opened.enter_context
        stack = Stack(
            folder, enter(child_process.start(broker)), enter(child_process.start(registry))
        )
        (folder / "hive").mkdir()
        address = enter(metastore(folder / "hive"))
        directory, ldap = enter(running_directory(folder))
        found = Shared(stack, address, directory, port)
        found.load(V1, range(MESSAGES))
        server = thrift_server(folder, METASTORE=address, LDAP=ldap, PORT=str(port))
        opened.callback(server.kill)
        server.launch()
        server.wait()
        yield found


def thrift_server(folder: Path, **variables: str) -> Server:
    """The command of the documentation, on a machine that is not in UTC."""
    work = folder / "thrift-server"
    work.mkdir()
    environment = {
        **find_java().environment,
        **variables,
        "HOST": "127.0.0.1",
        "PEOPLE": PEOPLE,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "Asia/Kolkata",
    }
    command = ["bash", "-euc", f'cd "{work}" && exec {START}']
    answers = partial(listens, int(variables["PORT"]))
    return Server("Thrift server", command, folder / "thrift-server.log", answers, environment)


@pytest.fixture(autouse=True)
def sasl(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `pyhive[hive_pure_sasl]` installs beside PyHive."""
    packages = wheels.fetch(Path(__file__).with_name("pyhive-sasl.txt"))
    monkeypatch.syspath_prepend(str(packages))


def answer(connection: Any, query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


@pytest.mark.parametrize("user", USERS)
def test_pyhive_reads_with_a_password(shared: Shared, user: str) -> None:
    with shared.connect(user, USERS[user]) as connection:
        [row] = answer(connection, TOTALS)
    times = [datetime.fromisoformat(text) for text in ("1970-01-01", "1970-01-05T03:00")]
    assert row == (MESSAGES, 4950, *times)


def test_beeline_reads_with_a_password(shared: Shared, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(ADA)
    done = shared.beeline("-n", "ada", "-w", str(password))
    assert done.returncode == 0, done.stderr
    row = f"{MESSAGES},4950,1970-01-01 00:00:00.0,1970-01-05 03:00:00.0"
    assert done.stdout.rstrip().endswith(f"> {row}"), done.stdout  # after a prompt


@pytest.mark.parametrize(
    ("user", "password", "auth"),
    [
        pytest.param("ada", f"{ADA}x", "LDAP", id="wrong-password"),
        pytest.param("ada", BOB, "LDAP", id="password-of-another-user"),
        # A directory takes a login with an empty password for an anonymous one, and accepts it.
        pytest.param("ada", "", "LDAP", id="empty-password"),
        pytest.param("eve", ADA, "LDAP", id="unknown-user"),
        pytest.param("ada", None, "NONE", id="no-password"),
    ],
)
def test_pyhive_is_refused(shared: Shared, user: str, password: str | None, auth: str) -> None:
    with pytest.raises(TTransportException, match=REFUSED):
        shared.connect(user, password, auth)


def test_pyhive_without_sasl_is_refused(shared: Shared) -> None:
    with pytest.raises(TTransportException, match="read 0 bytes"):
        shared.connect("ada", None, "NOSASL")


@pytest.mark.parametrize(
    ("login", "option", "reason"),
    [
        pytest.param(("-n", "ada", "-p", f"{ADA}x"), "", REFUSED, id="wrong-password"),
        pytest.param(("-n", "eve", "-p", ADA), "", REFUSED, id="unknown-user"),
        pytest.param((), "", REFUSED, id="anonymous"),
        pytest.param(("-n", "ada", "-p", ADA), ";auth=noSasl", "No current", id="without-sasl"),
    ],
)
def test_beeline_is_refused(
    shared: Shared, login: tuple[str, ...], option: str, reason: str
) -> None:
    done = shared.beeline(*login, option=option)
    assert done.returncode != 0
    assert reason in done.stderr
    assert "4950" not in done.stdout


def test_our_command_is_refused(shared: Shared) -> None:
    done = shared.headworks("sql", "SELECT 1", "--hive", f"127.0.0.1:{shared.port}")
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "answers no client without a login" in done.stderr


def test_an_open_session_sees_each_load(shared: Shared) -> None:
    later = f"SELECT how, count(*), sum(n) FROM clicks WHERE n >= {MESSAGES} GROUP BY how"
    first, second = range(MESSAGES, 110), range(110, 150)  # `first` is of a day that has rows
    with shared.connect("ada", ADA) as connection:
        assert answer(connection, TOTALS)[0][0] == MESSAGES
        shared.load(V1, first)
        total = f"SELECT count(*), sum(n) FROM clicks WHERE n >= {MESSAGES}"
        assert answer(connection, total) == [(len(first), sum(first))]
        shared.load(V2, second)
        rows = [("mouse", len(first), sum(first)), ("touch", len(second), sum(second))]
        assert sorted(answer(connection, later)) == rows
        compacted = shared.headworks("load", "compact")
        assert compacted.returncode == 0, compacted.stderr
        assert sorted(answer(connection, later)) == rows


def test_nobody_logs_in_while_the_directory_is_away(shared: Shared) -> None:
    shared.directory.kill()
    try:
        with pytest.raises(TTransportException, match=REFUSED):
            shared.connect("ada", ADA)
    finally:
        shared.directory.launch()
        shared.directory.wait()
    with shared.connect("ada", ADA) as connection:
        assert answer(connection, "SELECT 1") == [(1,)]
