"""The registration of a broker in its cluster: it claims its id, and keeps its session proven.

Rules:

- A broker id belongs to one data folder, and the folder to one cluster. A broker with another
  folder is rejected, whether the id is alive or not.
- The lock of the folder keeps a second process out. So a node with this folder and place is left
  from an earlier run of this broker, and may be replaced. A copy of the folder elsewhere has no
  such lock: its registration is watched for signs of life first.
- The broker writes its own node again and again. Each acknowledged write extends the lease, which
  expires before ZooKeeper can end the session (`headworks._zookeeper.lease`).
- After the end of a session, everything is checked again before the broker registers. An error that
  cannot pass, such as another cluster or another folder under this id, stops the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headworks._broker.coordination.folder import FolderIdentity, claim_folder
from headworks._broker.coordination.interface import ClusterMember
from headworks._broker.coordination.zookeeper.async_session import AsyncSession
from headworks._zookeeper import BrokerNode, SessionState, paths
from headworks._zookeeper.lease import Lease
from headworks.errors import CorruptError, HeadworksError, UnreachableError, UsageError

_log = logging.getLogger(__name__)
_WRITES_PER_TIMEOUT = 6  # to the own node, each of which extends the lease


class Registration:
    """The registration of one broker.

    `changed` is called in the loop when the lease becomes valid or invalid, and after `join`.
    `failed` is called with an error that must stop the broker.
    """

    def __init__(
        self,
        zookeeper: AsyncSession,
        broker: int,
        folder: Path,
        changed: Callable[[], None],
        failed: Callable[[HeadworksError], None],
    ) -> None:
        self.lease = Lease(zookeeper.loop.time)
        self.served: dict[str, int] = {}  # how many partitions of each topic are served
        self._zookeeper = zookeeper
        self._broker = broker
        self._folder = folder
        self._place = f"{socket.gethostname()}:{folder.resolve()}"
        self._changed = changed
        self._failed = failed
        self._identity: FolderIdentity | None = None
        self._node: BrokerNode | None = None  # to register; None before `join`
        self._session = 0  # the session in which the node was written
        self._version = 0  # of the node
        self._reported_valid = False  # the lease, when `changed` was last called
        self._expired_before = False  # whether the lease ever expired
        self._renew_now = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        zookeeper.session.on_state(self._on_state)

    @property
    def identity(self) -> FolderIdentity:
        """The identity of the folder, after `claim`."""
        assert self._identity is not None
        return self._identity

    async def claim(self, *, take_over: bool = False) -> None:
        """Check that folder, id, and cluster belong together; UsageError if they do not.

        With `take_over`, this folder replaces the lost one to which the id belongs.
        """
        identity = claim_folder(self._folder, await self._cluster(), self._broker)
        await self._claim_id(identity, take_over=take_over)
        await self._reject_copied_folder()
        self._identity = identity

    async def join(self, member: ClusterMember) -> None:
        """Register, and start writing the node."""
        assert self._identity is not None
        self._node = BrokerNode(member.host, member.port, self._identity.folder, self._place)
        await self._register()
        loop = self._zookeeper.loop
        self._tasks = [
            loop.create_task(self._renew_forever()),
            loop.create_task(self._watch_expiry()),
        ]

    async def leave(self) -> None:
        """Withdraw the registration, and end the lease."""
        self._zookeeper.session.off_state(self._on_state)
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks = []
        registered, self._node = self._node is not None, None
        self.lease.end()
        if registered:
            with contextlib.suppress(UnreachableError):
                await self._zookeeper.remove(paths.broker(self._broker))

    async def set_served(self, topic: str, partitions: int) -> None:
        """Register how many partitions of a topic are served; 0 removes the entry.

        Before `join`, this is only noted; `join` registers it.
        """
        if not partitions:
            self.served.pop(topic, None)
            await self._zookeeper.remove(paths.served(topic, self._broker))
            return
        self.served[topic] = partitions
        if self._node is not None:
            await self._register_topic(topic)

    # -- checks ------------------------------------------------------------------------------

    async def _cluster(self) -> str:
        """Return the cluster id, which the first broker creates."""
        found = await self._zookeeper.value(paths.CLUSTER_ID)
        if found is None:
            if self._identity is not None:
                raise UsageError(
                    f"the ZooKeeper at {self._zookeeper.session.address} has lost cluster"
                    f" {self._identity.cluster}",
                    fix="restore ZooKeeper's data (docs/backup.md); the messages are untouched",
                )
            name = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            for path in (paths.BROKERS, paths.FOLDERS, paths.TOPICS, paths.CONSUMERS, "/cluster"):
                await self._zookeeper.ensure(path)
            with contextlib.suppress(self._zookeeper.NodeExists):  # another broker was faster
                await self._create(paths.CLUSTER_ID, name.encode())
            found = await self._zookeeper.value(paths.CLUSTER_ID)
            assert found is not None
        return str(found[0].decode())

    async def _claim_id(self, identity: FolderIdentity, *, take_over: bool) -> None:
        path = paths.folder(self._broker)
        with contextlib.suppress(self._zookeeper.NodeExists):
            await self._create(path, identity.folder.encode())
        found = await self._zookeeper.value(path)
        if found is None:
            raise CorruptError(f"the ZooKeeper node {path} was removed meanwhile")
        if found[0].decode() == identity.folder:
            return
        alive = await self._alive()
        if alive is not None:
            raise UsageError(
                f"broker {self._broker} is alive already, at {alive.address}",
                fix="give every broker a --broker-id of its own",
            )
        if not take_over:
            raise UsageError(
                f"broker id {self._broker} belongs to another data folder than {self._folder}",
                fix="start it with its own --data-dir; if that is lost with its messages, give"
                " --take-over; or give another --broker-id",
            )
        _log.warning(
            "broker id %d is taken over by an empty folder",
            self._broker,
            extra={"id": self._broker},
        )
        stat = found[1]
        await self._zookeeper.ask(
            self._zookeeper.client.set_async, path, identity.folder.encode(), stat.version
        )

    async def _reject_copied_folder(self) -> None:
        """Raise UsageError if a copy of the folder serves elsewhere, and so renews this node."""
        path = paths.broker(self._broker)
        first = await self._zookeeper.value(path)
        if first is None or first[1].ephemeralOwner == self._zookeeper.session.id:
            return
        node = BrokerNode.load(first[0], path)
        if node.place == self._place:
            return
        # longer than a lease holds: a broker that was paused so long no longer answers as the owner
        await asyncio.sleep(
            self._zookeeper.session.timeout * (_WRITES_PER_TIMEOUT - 1) / _WRITES_PER_TIMEOUT
        )
        again = await self._zookeeper.value(path)
        if again is not None and again[1].version != first[1].version:
            raise UsageError(
                f"broker {self._broker} is alive already, at {node.address}, with a copy of this"
                f" data folder ({node.place})",
                fix="stop one of the two, and never start it again from the copy",
            )

    async def _alive(self) -> BrokerNode | None:
        path = paths.broker(self._broker)
        found = await self._zookeeper.value(path)
        return None if found is None else BrokerNode.load(found[0], path)

    # -- registering -------------------------------------------------------------------------

    async def _register(self) -> None:
        """Register in the present session."""
        node = self._node
        assert node is not None
        self.lease.end()
        session = self._zookeeper.session.id
        if self._session:  # a later one: another broker may have registered meanwhile
            await self.claim()
        await self._zookeeper.each(self._register_topic, self.served)
        sent = self._zookeeper.loop.time()
        await self._replace(paths.broker(self._broker), node.dump())
        self._session, self._version = session, 0
        self.lease.extend(sent, self._zookeeper.session.timeout)
        self._report_lease()
        _log.info(
            "broker %d is registered at %s", self._broker, node.address, extra={"id": self._broker}
        )

    async def _register_topic(self, topic: str) -> None:
        path = paths.served(topic, self._broker)
        with contextlib.suppress(self._zookeeper.NoNode):  # the topic was deleted meanwhile
            await self._replace(path, b"%d" % self.served.get(topic, 0))

    async def _replace(self, path: str, value: bytes) -> None:
        """Create an ephemeral node in this session, replacing one of an earlier session."""
        while True:
            try:
                await self._create(path, value, ephemeral=True)
            except self._zookeeper.NodeExists:
                with contextlib.suppress(self._zookeeper.NoNode):
                    await self._zookeeper.ask(self._zookeeper.client.delete_async, path)
            else:
                return

    async def _create(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        await self._zookeeper.ask(
            self._zookeeper.client.create_async, path, value, ephemeral=ephemeral
        )

    # -- proving -----------------------------------------------------------------------------

    async def _renew_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._zookeeper.session.timeout / _WRITES_PER_TIMEOUT):
                    await self._renew_now.wait()
            self._renew_now.clear()
            try:
                await self._renew()
            except UnreachableError as error:
                _log.debug("the lease was not extended: %s", error, extra={"id": self._broker})
            except HeadworksError as error:
                self.lease.end()
                self._report_lease()
                self._failed(error)
                return
            except Exception:  # this write proves nothing, but the next one may
                _log.exception("registration failed", extra={"id": self._broker})

    async def _renew(self) -> None:
        node, session = self._node, self._zookeeper.session
        assert node is not None
        if session.id != self._session:
            await self._register()
            return
        path = paths.broker(self._broker)
        sent = self._zookeeper.loop.time()
        try:
            stat = await self._zookeeper.ask(
                self._zookeeper.client.set_async, path, node.dump(), self._version
            )
        except self._zookeeper.NoNode:  # an operator removed it
            await self._register()
        except self._zookeeper.BadVersion:  # an unanswered write, or another broker
            await self._reread_node(path)
        else:
            self._version = stat.version
            self.lease.extend(sent, session.timeout)
        self._report_lease()

    async def _reread_node(self, path: str) -> None:
        found = await self._zookeeper.value(path)
        if found is not None and found[1].ephemeralOwner == self._session:
            self._version = found[1].version
            self._renew_now.set()
            return
        await self._register()

    async def _watch_expiry(self) -> None:
        """Report an expired lease soon, for the groups: their members wait, and send nothing."""
        while True:
            await asyncio.sleep(self._zookeeper.session.timeout / _WRITES_PER_TIMEOUT / 4)
            self._report_lease()

    def _report_lease(self) -> None:
        held = self.lease.valid
        if held == self._reported_valid:
            return
        self._reported_valid = held
        about = {"id": self._broker}
        if held and self._expired_before:
            _log.info(
                "broker %d is sure of its session again, and answers as before",
                self._broker,
                extra=about,
            )
        elif not held and self._node is not None:
            self._expired_before = True
            _log.warning(
                "broker %d cannot be sure of its session with ZooKeeper: it stops answering as"
                " owner and coordinator until it is",
                self._broker,
                extra=about,
            )
        self._changed()

    def _on_state(self, state: SessionState) -> None:
        def wake(_: Any = None) -> None:
            self._renew_now.set()

        if state is SessionState.CONNECTED:
            self._zookeeper.call_in_loop(wake)
