"""Leases in a real ensemble of three, of which one follower lags behind.

The follower is cut off from the others for longer than a session lasts, and goes on answering reads
from what it knew. The leader ends the sessions meanwhile, and another process may take over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from consumer_sdk._zookeeper_group.directory import GroupDirectory
from headworks._broker.coordination.interface import ClusterMember
from headworks._broker.coordination.zookeeper.async_session import AsyncSession
from headworks._broker.coordination.zookeeper.registration import Registration
from headworks._cli.stack.ports import free_ports
from headworks._zookeeper import MemberNode, ZooKeeperSession, open_session, paths
from headworks._zookeeper.lease import LeaseThread
from tests.ensemble import Server
from tests.relay import Relay
from tests.waiting import until

pytestmark = pytest.mark.contract

TIMEOUT = 6.0  # seconds of silence after which the leader ends a session
PATIENCE = "syncLimit=240"  # ticks: no server of the ensemble gives up another one in a test
GROUP = "readers"


@dataclass
class LaggingEnsemble:
    """Two servers that agree, and one that reaches them through a cable."""

    others: str  # the addresses of the two
    follower: str
    cables: list[Relay]

    @contextmanager
    def cut(self) -> Iterator[None]:
        for cable in self.cables:
            cable.cut()
        try:
            yield
        finally:
            for cable in self.cables:
                cable.mend()


@contextmanager
def lagging_ensemble(folder: Path) -> Iterator[LaggingEnsemble]:
    ports = free_ports(9)
    clients, quorum, election = ports[:3], ports[3:6], ports[6:]
    with ExitStack() as stack:
        cables = [stack.enter_context(Relay(f"127.0.0.1:{port}")) for port in quorum[1:]]
        through = [f"{quorum[0]}", *(cable.address.rpartition(":")[2] for cable in cables)]
        servers = []
        for number in range(3):
            # The lowest id follows: the servers elect the highest of those with the same data.
            seen = through if number == 0 else [str(port) for port in quorum]
            voters = [f"server.{n + 1}=127.0.0.1:{seen[n]}:{election[n]}" for n in range(3)]
            server = Server(folder / str(number), clients[number], [*voters, PATIENCE])
            (server.folder / "data").mkdir(parents=True)
            (server.folder / "data" / "myid").write_text(f"{number + 1}\n", encoding="utf-8")
            servers.append(server)
            stack.callback(server.kill)
            server.launch()
        for server in servers:
            server.wait()
        assert servers[0].mode() == "follower"
        others = ",".join(server.address for server in servers[1:])
        yield LaggingEnsemble(others, servers[0].address, cables)


def has(session: ZooKeeperSession, path: str) -> bool:
    return session.client.exists(path) is not None


def test_no_lease_outlasts_the_session_while_a_follower_lags(tmp_path: Path) -> None:
    with lagging_ensemble(tmp_path) as ensemble, ExitStack() as stack:
        asyncio.run(_scenario(ensemble, stack, tmp_path / "broker"))


async def _scenario(ensemble: LaggingEnsemble, stack: ExitStack, folder: Path) -> None:
    def session(address: str, timeout: float = TIMEOUT) -> ZooKeeperSession:
        return stack.enter_context(open_session(address, timeout=timeout, wait=60))

    reader = session(ensemble.follower)  # it only reads, as an observer of the follower's data
    successor = session(ensemble.others, timeout=20)
    folder.mkdir()
    registration = Registration(
        AsyncSession(session(ensemble.follower), asyncio.get_running_loop()),
        *(1, folder, lambda: None, lambda error: pytest.fail(str(error))),
    )
    await registration.claim()
    await registration.join(ClusterMember(1, "127.0.0.1", 9092))
    consumer = session(ensemble.follower)
    directory, node = GroupDirectory(consumer, GROUP), MemberNode({"clicks": 1})
    joined = time.monotonic()
    await asyncio.to_thread(directory.join, "member", node)
    lease = LeaseThread(
        lambda: directory.renew("member", node),
        lambda: consumer.timeout,
        lambda: None,
        joined=joined,
    )
    stack.callback(lease.end)
    held: dict[str, Callable[[], bool]] = {
        paths.broker(1): lambda: registration.lease.valid,
        paths.member(GROUP, "member"): lambda: lease.valid,
    }
    await asyncio.sleep(2 * TIMEOUT)
    for is_valid in held.values():  # renewed through the follower
        await asyncio.to_thread(until, is_valid)
    with ensemble.cut():
        await asyncio.gather(*(_end_of(path, held[path], reader, successor) for path in held))
    await registration.leave()


async def _end_of(
    path: str, is_valid: Callable[[], bool], reader: ZooKeeperSession, successor: ZooKeeperSession
) -> None:
    """Wait until another process could take over a node: its owner must have stopped by then."""
    while await asyncio.to_thread(has, successor, path):
        await asyncio.sleep(0.02)
    assert not is_valid(), f"two processes would hold {path}"
    assert await asyncio.to_thread(has, reader, path), "the follower must lag"
