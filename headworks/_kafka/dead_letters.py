"""The names that the broker, consumers, and commands agree on about dead letters.

Rule: names alone. The broker and `consumer_sdk` each write their own dead letters, and
`headworks dead-letter` reads both.
"""

from __future__ import annotations

from typing import Final

DEAD_LETTER_SUFFIX: Final = ".dead-letter"
"""What the name of a topic gets in that of its dead-letter topic, unless another is configured."""
DEAD_LETTER_HEADER: Final = "headworks.dead-letter."
"""The headers about a dead letter begin so: `topic`, `partition`, `offset`, `reason`, and more."""
