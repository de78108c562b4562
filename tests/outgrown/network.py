"""A network of a test's own: each host is a network namespace with a cable that can be pulled.

Rules: Linux, root, and iproute2 only; `possible` says whether they are there. Everything is gone
when the block ends. The next run removes what a killed one left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_BRIDGE = "hw-outgrown"
_SUBNET = "10.213.77"


def possible() -> bool:
    """Return whether this process may make namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    made = subprocess.run(["ip", "netns", "add", _BRIDGE], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", _BRIDGE], capture_output=True, check=False)
    return made.returncode == 0


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the network; `inside` is what to run a command there with."""

    name: str
    address: str

    @property
    def inside(self) -> list[str]:
        """The beginning of a command that runs on the host."""
        return ["ip", "netns", "exec", self.name]

    def pull_cable(self) -> None:
        """Cut the host off: nothing that is sent to it or by it arrives."""
        _ip("link", "set", self.name, "down")

    def plug_in(self) -> None:
        """Connect it again."""
        _ip("link", "set", self.name, "up")


@contextmanager
def network(size: int) -> Iterator[list[Host]]:
    """Make that many hosts, which reach each other and this process."""
    hosts = [Host(f"{_BRIDGE}-{n + 1}", f"{_SUBNET}.{n + 11}") for n in range(size)]
    _remove(hosts)
    try:
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{_SUBNET}.1/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
        for host in hosts:
            _ip("netns", "add", host.name)
            _ip(
                "link", "add", host.name, "type", "veth", "peer", "name", "eth0", "netns", host.name
            )
            _ip("link", "set", host.name, "master", _BRIDGE, "up")
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", host.name, "link", "set", "eth0", "up")
            _ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts
    finally:
        _remove(hosts)


def _remove(hosts: list[Host]) -> None:
    for host in hosts:  # the kernel removes the cable of a namespace some time after it
        subprocess.run(["ip", "link", "del", host.name], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", _BRIDGE], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
