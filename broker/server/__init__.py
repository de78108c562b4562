"""The broker's process: sockets, the flusher, start and stop."""

from headworks._broker.server.server import BrokerServer, ServerConfig

__all__ = ["BrokerServer", "ServerConfig"]
