"""The visibility that a view asks for; `headworks._console.app.visibility` implements it."""

from __future__ import annotations

from typing import Protocol


class CanSee(Protocol):
    """Answers whether a principal may see a name."""

    def topic(self, name: str) -> bool:
        """Return whether a topic is visible, with its messages, audit, and table."""

    def group(self, name: str) -> bool:
        """Return whether a consumer group is visible."""

    def subject(self, name: str) -> bool:
        """Return whether a subject is visible, with its schemas."""
