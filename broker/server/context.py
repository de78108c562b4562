"""The parts of a server that all of its connections share."""

from __future__ import annotations

from dataclasses import dataclass

from headworks._broker.handlers import Authorizer, Node
from headworks._broker.server.authentication import Authenticator
from headworks._broker.server.limits import ClientLimits, MemoryPool


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The node, its limits, and its security. `authenticator` is None if there are no users."""

    node: Node
    limits: ClientLimits
    memory: MemoryPool
    authorizer: Authorizer
    authenticator: Authenticator | None
