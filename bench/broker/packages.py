"""The distribution's packages that the peers need: found, or installed by apt if possible.

Rules: nothing present is installed again. Nothing is installed unless we are root on a Debian-like
system. No service starts: while apt runs, a policy file forbids it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headworks.errors import UnreachableError

_POLICY = Path("/usr/sbin/policy-rc.d")
_REFUSE = "#!/bin/sh\nexit 101\n"


@dataclass(frozen=True, slots=True)
class Needed:
    """Debian packages, and the files by which one sees that they are there."""

    packages: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def present(self) -> bool:
        """Whether all of it is installed."""
        return all(Path(file).exists() for file in self.files)


COMPILER = Needed(("gcc", "libc6-dev"), ("/usr/bin/gcc", "/usr/include/stdio.h"))
KAFKA_CLIENT = Needed(("librdkafka-dev",), ("/usr/include/librdkafka/rdkafka.h",))
RABBITMQ = Needed(
    ("rabbitmq-server", "librabbitmq-dev"),
    ("/usr/lib/rabbitmq/bin/rabbitmq-server", "/usr/include/amqp_tcp_socket.h"),
)
NATS = Needed(("nats-server", "libnats-dev"), ("/usr/sbin/nats-server", "/usr/include/nats/nats.h"))
ACTIVEMQ = Needed(
    ("activemq", "default-jdk-headless"),
    ("/usr/share/activemq/lib/activemq-broker.jar", "/usr/bin/javac"),
)


def provide(needed: Sequence[Needed], say: Callable[[str], None]) -> None:
    """Install what is absent; UnreachableError if that cannot be done."""
    packages = [name for one in needed if not one.present for name in one.packages]
    if not packages:
        return
    by_hand = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise UnreachableError(f"not installed: {', '.join(packages)}", fix=by_hand)
    say(f"installing {', '.join(packages)}")
    with _no_service_starts():
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *packages)
    still = [name for one in needed if not one.present for name in one.packages]
    if still:
        raise UnreachableError(f"apt installed {', '.join(still)}, but not where we look")


def _apt(*arguments: str) -> None:
    done = subprocess.run(
        ["apt-get", "--quiet", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UnreachableError(f"apt-get {arguments[0]} failed:\n{done.stderr.strip()[-1000:]}")


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Debian's own switch: a policy that denies starts, unless the machine has a policy."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text(_REFUSE, encoding="ascii")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)
