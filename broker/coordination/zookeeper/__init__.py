"""Coordination of brokers that are peers, through ZooKeeper."""

from broker.coordination.zookeeper.store import ClusterOptions, ZooKeeperCoordination

__all__ = ["ClusterOptions", "ZooKeeperCoordination"]
