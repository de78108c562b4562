"""The coordination store of a cluster, in ZooKeeper."""

from headworks._broker.coordination.zookeeper.store import ClusterOptions, ZooKeeperCoordination

__all__ = ["ClusterOptions", "ZooKeeperCoordination"]
