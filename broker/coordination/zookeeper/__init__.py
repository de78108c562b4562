"""Coordination of brokers that are peers, through ZooKeeper."""

from headworks._broker.coordination.zookeeper.store import ClusterOptions, ZooKeeperCoordination

__all__ = ["ClusterOptions", "ZooKeeperCoordination"]
