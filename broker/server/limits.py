"""Limits that keep one client from hurting the others."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of a request, number of connections, requests of one connection without a reply."""

    request_bytes: int = 32 << 20
    connections: int = 2000
    in_flight: int = 1000
