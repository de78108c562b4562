"""The broker's process: sockets, TLS, logins, limits, start, and stop."""

from headworks._broker.server.server import BrokerServer, ServerConfig

__all__ = ["BrokerServer", "ServerConfig"]
