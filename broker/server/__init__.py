"""The broker's process: sockets, the flusher, start and stop."""

from broker.server.server import BrokerServer, ServerConfig

__all__ = ["BrokerServer", "ServerConfig"]
