"""The console's sources: registry, broker, groups, audit, and loads, each read in the background.

Rules: a page never asks a server for a list. It uses the last snapshot, however old, and shows its
age. A request that a reader waits for concerns one thing and has a deadline.
"""

from headworks._console.sources.all_sources import Endpoints, Sources
from headworks._console.sources.poller import Poller, PollResult

__all__ = ["Endpoints", "PollResult", "Poller", "Sources"]
