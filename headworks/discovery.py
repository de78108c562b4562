"""Which brokers a client of ours begins with: those it is told, or those that live in ZooKeeper.

Rules: one place decides it, for SDKs, loader and command line alike. What is given beats what is
set; an address of brokers beats one of ZooKeeper. ZooKeeper is asked for a beginning only: after
that the brokers themselves tell who they are.
"""

from __future__ import annotations

from headworks.errors import UnreachableError
from headworks.settings import lookup, resolve, resolve_optional
from headworks.zookeeper import live_brokers, open_session

__all__ = ["bootstrap_of", "registered_brokers"]


def bootstrap_of(bootstrap: str | None = None, zookeeper: str | None = None) -> str:
    """HOST:PORT[,HOST:PORT..] of brokers, by these arguments and the settings of this process.

    UnreachableError if ZooKeeper is asked and does not answer, or nobody is registered there.
    """
    if bootstrap is not None:
        return bootstrap
    if zookeeper is None:
        found = lookup("bootstrap")
        zookeeper = resolve_optional("zookeeper")
        if found.source != "default" or zookeeper is None:
            return resolve("bootstrap")
    return registered_brokers(zookeeper)


def registered_brokers(zookeeper: str) -> str:
    """HOST:PORT[,HOST:PORT..] of the living brokers; UnreachableError if there are none."""
    with open_session(zookeeper) as session:
        brokers = live_brokers(session)
    if not brokers:
        raise UnreachableError(
            f"no broker is registered in the ZooKeeper at {zookeeper}",
            fix="start one with `headworks broker start --zookeeper`, or correct the chroot",
        )
    return ",".join(broker.address for broker in brokers.values())
