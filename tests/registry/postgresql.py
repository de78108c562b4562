"""A PostgreSQL server of the tests' own: the real one, in a folder under /tmp, on a free port.

The server never runs as root (it refuses to), and ends when the test process does, however that
ends. Without the server's programs, the tests that need it are skipped (tests/tools.py).
"""

from __future__ import annotations

import itertools
import os
import pwd
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from headworks._cli.stack.ports import free_ports
from tests import tools
from tests.tools import require


@dataclass(slots=True)
class Cluster:
    """A server of one folder, that trusts everybody on loopback."""

    command: Sequence[str | Path]
    port: int
    log: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)
    server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        with self.log.open("wb") as output:
            self.server = subprocess.Popen(self.command, stdout=output, stderr=output, cwd="/")
        until = time.monotonic() + 120
        while True:
            try:
                psycopg.connect(self._address("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                if self.server.poll() is not None or time.monotonic() > until:
                    said = self.log.read_text()
                    raise AssertionError(f"PostgreSQL does not start:\n{said}") from None
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End the server at once."""
        if self.server is not None:
            self.server.send_signal(signal.SIGQUIT)
            self.server.wait(120)

    def new_store(self) -> str:
        """The address of a database that nobody else uses."""
        name = f"registry_{next(self.numbers)}"
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self._address(name)

    def _address(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A new cluster; it is gone afterwards."""
    require("postgresql")
    programs = tools.postgresql()
    assert programs is not None
    with tempfile.TemporaryDirectory(prefix="headworks-postgresql-") as folder:
        data = Path(folder) / "data"
        as_user: list[str | Path] = ["setpriv", "--pdeathsig", "INT"]
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            as_user += [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
        made = ["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"]
        # A language's order of names, so that no test passes by the order of bytes.
        made += ["--locale-provider=icu", "--icu-locale=en-US", "--locale=C.UTF-8"]
        subprocess.run(
            [*as_user, programs / "initdb", "-D", data, *made],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
        )
        (port,) = free_ports(1)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            # What a crash of the machine loses is PostgreSQL's to test; ours is a crash of us.
            "fsync": "off",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [*as_user, programs / "postgres", "-D", data, *options]
        cluster = Cluster(command, port, Path(folder) / "log")
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
