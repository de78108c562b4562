"""What a view asks before it shows something; `headworks._console.app.visibility` answers."""

from __future__ import annotations

from typing import Protocol

__all__ = ["CanSee"]


class CanSee(Protocol):
    """Whether one principal may see a thing of that name."""

    def topic(self, name: str) -> bool:
        """A topic, with its messages, audit and table."""

    def group(self, name: str) -> bool:
        """A consumer group."""

    def subject(self, name: str) -> bool:
        """A subject, with its schemas."""
