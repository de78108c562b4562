"""What all connections of a server share."""

from __future__ import annotations

from dataclasses import dataclass

from headworks._broker.handlers import Authority, Node
from headworks._broker.server.authentication import LoginDesk
from headworks._broker.server.limits import Limits, Memory

__all__ = ["House"]


@dataclass(frozen=True, slots=True)
class House:
    """The broker's parts, its limits, and who may come in; without users `desk` is None."""

    node: Node
    limits: Limits
    memory: Memory
    authority: Authority
    desk: LoginDesk | None
