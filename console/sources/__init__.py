"""What the console knows: registry, broker, groups, audit and loads, each read in the background.

Rules: a page never asks a source for a list; it takes the last reading, however old, and says how
old it is. What is asked while somebody waits is about one thing, with a deadline.
"""

from headworks._console.sources.all_sources import Endpoints, Sources
from headworks._console.sources.poller import Poller, PollResult

__all__ = ["Endpoints", "PollResult", "Poller", "Sources"]
